//! What waits for the committer.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use idem_core::locks::{Condvar, Mutex};

use crate::{commit::Commit, purge::Purge};

/// The most commits of one batch.
const MOST: usize = 512;
/// From so many bytes on a batch takes no more commits.
const BYTES: usize = 4 << 20;

/// Something for the committer to do.
pub(crate) enum Job {
    /// One key's commit, in a batch that it shares with others.
    Commit(Box<Commit>),
    /// A purge, in a batch of its own.
    Purge(Purge),
}

/// What the committer does next.
pub(crate) enum Batch {
    Commits(Vec<Commit>),
    Purge(Purge),
}

/// Jobs in the order of their arrival.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    closed: bool,
}

impl Queue {
    /// Puts a job at the end; gives it back if the queue is closed.
    pub(crate) fn push(&self, job: Job) -> Result<(), Job> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(job);
        }
        state.jobs.push_back(job);
        drop(state);
        self.arrived.notify_one();
        Ok(())
    }

    /// Takes no more jobs.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.arrived.notify_one();
    }

    /// Waits until so many jobs have come, but not beyond `patience`.
    pub(crate) fn gather(&self, jobs: usize, patience: Duration) {
        let deadline = Instant::now() + patience;
        let mut state = self.state.lock();
        while state.jobs.len() < jobs && !state.closed {
            if self.arrived.wait_until(&mut state, deadline).timed_out() {
                return;
            }
        }
    }

    /// Waits for more commits, but not beyond `patience`, and takes the first batch of them; none if a purge is next.
    pub(crate) fn take_more(&self, patience: Duration) -> Option<Vec<Commit>> {
        self.gather(1, patience);
        let mut state = self.state.lock();
        match state.jobs.pop_front()? {
            Job::Commit(first) => Some(state.join(*first)),
            purge @ Job::Purge(_) => {
                state.jobs.push_front(purge);
                None
            }
        }
    }

    /// Waits for jobs and takes the first batch of them; none once the queue is closed and empty.
    pub(crate) fn take(&self) -> Option<Batch> {
        let mut state = self.state.lock();
        loop {
            match state.jobs.pop_front() {
                Some(Job::Purge(purge)) => return Some(Batch::Purge(purge)),
                Some(Job::Commit(first)) => return Some(Batch::Commits(state.join(*first))),
                None if state.closed => return None,
                None => self.arrived.wait(&mut state),
            }
        }
    }
}

impl State {
    /// The commits that share a batch with the first.
    fn join(&mut self, first: Commit) -> Vec<Commit> {
        let (mut bytes, mut commits) = (first.size(), vec![first]);
        while commits.len() < MOST && bytes < BYTES {
            match self.jobs.pop_front() {
                Some(Job::Commit(next)) => {
                    bytes += next.size();
                    commits.push(*next);
                }
                Some(other) => {
                    self.jobs.push_front(other);
                    break;
                }
                None => break,
            }
        }
        commits
    }
}
