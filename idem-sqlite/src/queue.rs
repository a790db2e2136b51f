//! Who commits: whoever finds the writer free leads, and commits what is queued as well.
//!
//! One mutex guards the jobs and the writer, so that nobody can queue a job just when the leader has looked
//! for the last time. A leader is a caller in the middle of a poll, or the writer thread: it never waits
//! for another task, so no cancelled or idle task can strand the others.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::sync::{Condvar, Mutex, MutexGuard};

/// Jobs that wait for a writer, and the writer while nobody leads.
pub(crate) struct Queue<W, J> {
    state: Mutex<State<W, J>>,
    /// Wakes the writer thread: there are jobs and the writer is free; or the queue is closed.
    work: Condvar,
    /// Wakes the thread that watches over what waits: there is a first job to watch; or closed.
    waiting: Condvar,
    /// Wakes whoever closes: the writer came back.
    returned: Condvar,
    dedicated: bool,
}

impl<W, J> State<W, J> {
    /// Whether nothing comes any more. A leader that is out may still put jobs back.
    fn is_over(&self) -> bool {
        self.gone || (self.closed && self.jobs.is_empty() && self.writer.is_some())
    }
}

/// Closing was given up, since something is still under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waited;

struct State<W, J> {
    jobs: VecDeque<(Instant, J)>,
    writer: Option<W>,
    /// The writer is gone for good.
    gone: bool,
    closed: bool,
    /// The watching thread sleeps without a deadline.
    unwatched: bool,
}

impl<W, J> Queue<W, J> {
    /// A queue for `writer`. If `dedicated`, callers never lead.
    pub(crate) fn new(writer: W, dedicated: bool) -> Self {
        let (jobs, writer) = (VecDeque::new(), Some(writer));
        let state = State { jobs, writer, gone: false, closed: false, unwatched: false };
        Self {
            state: Mutex::new(state),
            work: Condvar::new(),
            waiting: Condvar::new(),
            returned: Condvar::new(),
            dedicated,
        }
    }

    /// Queues a job. If the caller gets a lead, it must commit.
    ///
    /// # Errors
    /// The job, if the queue is closed.
    pub(crate) fn submit(&self, job: J) -> Result<Option<Lead<'_, W, J>>, J> {
        let mut state = self.state.lock();
        if state.closed || state.gone {
            return Err(job);
        }
        state.jobs.push_back((Instant::now(), job));
        if !self.dedicated
            && let Some(writer) = state.writer.take()
        {
            drop(state);
            return Ok(Some(Lead { queue: self, writer: Some(writer) }));
        }
        self.call(&state);
        Ok(None)
    }

    /// Leads with this job alone, if the writer is free and nothing waits for it. Else gives the job back.
    pub(crate) fn lead_with(&self, job: J) -> Result<Lead<'_, W, J>, J> {
        let mut state = self.state.lock();
        if self.dedicated || state.closed || !state.jobs.is_empty() {
            return Err(job);
        }
        let Some(writer) = state.writer.take() else { return Err(job) };
        state.jobs.push_back((Instant::now(), job));
        drop(state);
        Ok(Lead { queue: self, writer: Some(writer) })
    }

    /// Waits for jobs and a free writer: the writer thread's. None when the queue is closed and empty.
    pub(crate) fn lead(&self) -> Option<Lead<'_, W, J>> {
        let mut state = self.state.lock();
        loop {
            if state.is_over() {
                return None;
            }
            if !state.jobs.is_empty()
                && let Some(writer) = state.writer.take()
            {
                drop(state);
                return Some(Lead { queue: self, writer: Some(writer) });
            }
            self.work.wait(&mut state);
        }
    }

    /// Waits for a job that has waited for `patience`, and takes it out. None when the queue is closed and
    /// empty.
    pub(crate) fn overdue(&self, patience: Duration) -> Option<J> {
        let mut state = self.state.lock();
        loop {
            if state.is_over() {
                return None;
            }
            let Some(&(since, _)) = state.jobs.front() else {
                state.unwatched = true;
                self.waiting.wait(&mut state);
                state.unwatched = false;
                continue;
            };
            let deadline = since + patience;
            if deadline <= Instant::now() {
                let overdue = state.jobs.pop_front().map(|(_, job)| job);
                if state.jobs.is_empty() {
                    // Whoever closes may have waited for this job alone.
                    self.returned.notify_all();
                }
                return overdue;
            }
            self.waiting.wait_until(&mut state, deadline);
        }
    }

    /// Takes no more jobs, waits until those queued are done and the writer is back, and takes it out. Gives
    /// up waiting after `patience`, if there is one; the queue stays closed.
    ///
    /// # Errors
    /// That it gave up.
    pub(crate) fn close(&self, patience: Option<Duration>) -> Result<(), Waited> {
        let deadline = patience.map(|patience| Instant::now() + patience);
        let mut state = self.state.lock();
        state.closed = true;
        self.work.notify_all();
        self.waiting.notify_all();
        while !state.gone && (state.writer.is_none() || !state.jobs.is_empty()) {
            match deadline {
                None => self.returned.wait(&mut state),
                Some(deadline) if self.returned.wait_until(&mut state, deadline).timed_out() => {
                    return Err(Waited);
                }
                Some(_) => {}
            }
        }
        let writer = state.writer.take();
        drop(state);
        if writer.is_none() {
            return Ok(());
        }
        // Letting go of the engine takes its time; whoever else closes waits for that as well.
        drop(writer);
        self.state.lock().gone = true;
        // Whoever else closes, and the threads.
        self.returned.notify_all();
        self.work.notify_all();
        self.waiting.notify_all();
        Ok(())
    }

    /// Does something with the writer while nobody leads.
    #[cfg(test)]
    pub(crate) fn borrow_writer<T>(&self, work: impl FnOnce(&mut W) -> T) -> T {
        work(self.state.lock().writer.as_mut().expect("nobody leads"))
    }

    pub(crate) fn is_closed(&self) -> bool {
        let state = self.state.lock();
        state.closed || state.gone
    }

    /// Calls the threads that the state needs.
    fn call(&self, state: &MutexGuard<'_, State<W, J>>) {
        if state.writer.is_some() {
            self.work.notify_one();
        }
        if state.unwatched {
            self.waiting.notify_one();
        }
    }
}

/// The right to write, and the duty to hand it on: done by dropping it.
pub(crate) struct Lead<'q, W, J> {
    queue: &'q Queue<W, J>,
    writer: Option<W>,
}

impl<W, J> Lead<'_, W, J> {
    /// The writer.
    pub(crate) fn writer(&mut self) -> &mut W {
        self.writer.as_mut().expect("a lead holds the writer until it is dropped")
    }

    /// The next job, and since when it waits.
    pub(crate) fn next(&mut self) -> Option<(Instant, J)> {
        self.queue.state.lock().jobs.pop_front()
    }

    /// Puts a job back as the first.
    pub(crate) fn put_back(&mut self, since: Instant, job: J) {
        let mut state = self.queue.state.lock();
        state.jobs.push_front((since, job));
        self.queue.call(&state);
    }
}

impl<W, J> Drop for Lead<'_, W, J> {
    fn drop(&mut self) {
        let mut state = self.queue.state.lock();
        state.writer = self.writer.take();
        if state.jobs.is_empty() {
            self.queue.returned.notify_all();
            if state.closed {
                self.queue.work.notify_all();
                self.queue.waiting.notify_all();
            }
        } else {
            self.queue.call(&state);
        }
    }
}
