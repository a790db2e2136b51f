//! The commit of a group of steps: one transaction, a savepoint for each, all answered after the commit.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use idem_core::{Committed, Error};

use crate::{
    job::{Job, StepJob, quietly},
    queue::Lead,
    writer::{CommitFailure, Died, Writer},
};

/// A group takes in no more steps than these, so that its first caller does not wait for ever.
const MAX_STEPS: usize = 256;

/// A group takes in no more steps after this time.
const MAX_TIME: Duration = Duration::from_millis(5);

/// What a step that does not proceed is told, if that can be known without the write lock.
pub(crate) type Look<'l> = &'l dyn Fn(&StepJob) -> Option<Result<Committed, Error>>;

/// Whether a leader may wait for another process's lock.
#[derive(Clone, Copy)]
pub(crate) enum Wait<'l> {
    /// Up to the busy timeout: the writer thread.
    Yes,
    /// Not at all: a caller that leads on its own thread leaves that to the writer thread, but for a step
    /// that turns out not to proceed.
    No(Look<'l>),
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Something was done.
    Done,
    /// There was nothing to do.
    Idle,
    /// The writer thread must do what is next.
    Blocked,
}

type Lent<'q> = Lead<'q, Writer, Job>;

/// A step that has run, and what its caller is told once the group is committed.
type Ran = (Instant, StepJob, Result<Committed, Error>);

/// Commits a group: the steps that are queued, and those that come while it runs, within its bounds.
pub(crate) fn turn(lead: &mut Lent<'_>, wait: Wait<'_>) -> Turn {
    let Some((since, job)) = lead.next() else { return Turn::Idle };
    match job {
        Job::Call(call) if matches!(wait, Wait::No(_)) => {
            lead.put_back(since, Job::Call(call));
            Turn::Blocked
        }
        Job::Call(call) => {
            call(Ok(lead.writer()));
            Turn::Done
        }
        Job::Step(job) if job.is_abandoned() => {
            job.abandon();
            Turn::Done
        }
        Job::Step(job) => commit_group(lead, wait, since, job),
    }
}

fn commit_group(lead: &mut Lent<'_>, wait: Wait<'_>, since: Instant, first: StepJob) -> Turn {
    let patience = match wait {
        Wait::Yes => lead.writer().busy_timeout().saturating_sub(since.elapsed()),
        Wait::No(_) => Duration::ZERO,
    };
    if let Err(error) = lead.writer().begin(patience) {
        if let Wait::No(look) = wait {
            // What a reader can tell does not depend on the writer's health.
            if let Some(answer) = look(&first) {
                first.answer(answer);
                return Turn::Done;
            }
            if crate::failure::is_busy(&error) {
                lead.put_back(since, Job::Step(first));
                return Turn::Blocked;
            }
        }
        first.answer(Err(crate::failure::timed(error, since.elapsed())));
        return Turn::Done;
    }
    match grow(lead, since, first) {
        Grown::Alive(ran) => commit(lead, ran),
        Grown::Dead(ran, Died(error)) => {
            lead.writer().rollback();
            settle_failed(lead, ran, error);
        }
    }
    // A connection that is no good any more must not keep the lock until the next call.
    lead.writer().recover();
    Turn::Done
}

enum Grown {
    Alive(Vec<Ran>),
    /// The transaction is gone, with all that these steps did; the last of them is at fault.
    Dead(Vec<(Instant, StepJob)>, Died),
}

/// Runs steps in the open transaction, and takes in those that come meanwhile.
fn grow(lead: &mut Lent<'_>, since: Instant, first: StepJob) -> Grown {
    let start = Instant::now();
    let mut ran: Vec<Ran> = Vec::new();
    let mut next = Some((since, first));
    while let Some((since, mut job)) = next {
        // The first step of a group needs no savepoint: if it fails, the whole transaction may go.
        let in_savepoint = !ran.is_empty();
        let alone = job.alone;
        match lead.writer().run(&mut job, in_savepoint) {
            Ok(answer) => ran.push((since, job, answer)),
            Err(died) => {
                let mut all = unanswered(ran);
                all.push((since, job));
                return Grown::Dead(all, died);
            }
        }
        // A replay has nothing to commit: it does not wait for what others would do in its group.
        let is_replay = ran.len() == 1 && ran[0].2.as_ref().is_ok_and(|committed| !committed.ran);
        let is_full = alone || is_replay || ran.len() >= MAX_STEPS || start.elapsed() >= MAX_TIME;
        next = if is_full { None } else { next_step(lead) };
    }
    Grown::Alive(ran)
}

/// The next step that may join a group.
fn next_step(lead: &mut Lent<'_>) -> Option<(Instant, StepJob)> {
    loop {
        match lead.next()? {
            (_, Job::Step(job)) if job.is_abandoned() => job.abandon(),
            (since, Job::Step(job)) if !job.alone => return Some((since, job)),
            (since, other) => {
                lead.put_back(since, other);
                return None;
            }
        }
    }
}

fn commit(lead: &mut Lent<'_>, ran: Vec<Ran>) {
    match lead.writer().commit() {
        Ok(()) => ran.into_iter().for_each(|(_, job, answer)| job.answer(answer)),
        Err(CommitFailure::Nothing(error)) => {
            settle_failed(lead, unanswered(ran), Some(error));
        }
        Err(CommitFailure::Unknown(error)) => {
            let error = Arc::new(error);
            for (_, job, answer) in ran {
                // A step that failed was undone for certain.
                job.answer(answer.and(Err(crate::failure::unknown(&error))));
            }
        }
    }
}

/// The steps without what their callers would have been told.
fn unanswered(ran: Vec<Ran>) -> Vec<(Instant, StepJob)> {
    let unanswer = |(since, job, answer)| {
        quietly(|| drop(answer));
        (since, job)
    };
    ran.into_iter().map(unanswer).collect()
}

/// Settles steps of which nothing is kept. A single one gets the error; of several, each runs again alone,
/// so that one step's fault is that step's alone.
fn settle_failed(lead: &mut Lent<'_>, jobs: Vec<(Instant, StepJob)>, error: Option<Error>) {
    let error =
        error.unwrap_or_else(|| Error::nothing_done(idem_core::ErrorKind::TransactionEnded));
    let jobs = match <[_; 1]>::try_from(jobs) {
        Ok([(_, job)]) => return job.answer(Err(error)),
        Err(jobs) => jobs,
    };
    quietly(|| drop(error));
    // From the last to the first, so that they stay in order.
    for (since, mut job) in jobs.into_iter().rev() {
        job.alone = true;
        lead.put_back(since, Job::Step(job));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
