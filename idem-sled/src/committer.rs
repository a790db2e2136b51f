//! The committer: one thread that applies batch after batch and makes each durable before it answers.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use idem_core::Error;
use tokio::sync::oneshot;

use crate::{
    commit::{self, Applied, Commit, Verdict, Verdicts},
    database::Database,
    disk::Disk,
    engine::Engine,
    failure::Trouble,
    marker::Marker,
    pending::Pending,
    purge::{Due, Purge, Removed},
    queue::{Batch, Queue},
};

/// What only the committer touches.
pub(crate) struct Committer {
    marker: Marker,
    disk: Box<dyn Disk>,
    /// How many batches were ever written.
    number: u64,
    pace: Pace,
}

/// The longest that a batch waits for more commits.
const PATIENCE: Duration = Duration::from_millis(1);

/// How long it is worth to wait for those who were just answered to come again.
#[derive(Default)]
struct Pace {
    answered: usize,
    took: Duration,
}

impl Pace {
    /// Waits for as many as were answered last, but for no longer than a batch takes.
    fn wait(&self, queue: &Queue) {
        if self.answered > 1 {
            queue.gather(self.answered, self.took.min(PATIENCE));
        }
    }
}

impl Committer {
    pub(crate) fn new(marker: Marker, disk: Box<dyn Disk>, batches: u64) -> Self {
        Self { marker, disk, number: batches, pace: Pace::default() }
    }

    /// Commits until the queue is closed and empty.
    pub(crate) fn work(mut self, engine: &Engine) -> Self {
        loop {
            self.pace.wait(&engine.queue);
            let Some(batch) = engine.queue.take() else { return self };
            let start = Instant::now();
            // A panic here would be this library's fault; it must not strand those who come later.
            let turn = AssertUnwindSafe(|| self.turn(engine, batch));
            self.pace.answered = catch_unwind(turn).unwrap_or_else(|_| {
                let problem = "the committer panicked".to_string();
                engine.pending.fail(Trouble::Panicked(problem));
                0
            });
            self.pace.took = start.elapsed();
        }
    }

    /// Commits one batch, and returns how many callers wait no longer.
    fn turn(&mut self, engine: &Engine, batch: Batch) -> usize {
        let turn = |database: &Database| {
            Ok(match batch {
                Batch::Commits(commits) => self.commit(database, &engine.pending, commits),
                Batch::Purge(purge) => self.purge(database, &engine.pending, purge),
            })
        };
        // It is closed only after the committer has ended.
        engine.with(turn).unwrap_or(0)
    }

    fn commit(
        &mut self,
        database: &Database,
        pending: &Pending,
        mut commits: Vec<Commit>,
    ) -> usize {
        // Nobody waits for these: nothing is done.
        commits.retain(|commit| !commit.reply.is_closed());
        if let Some(trouble) = pending.failure() {
            refuse(commits, &trouble);
            return 0;
        }
        let under_way = pending.begin(commits.iter().flat_map(|commit| commit.entries()));
        match commit::apply(database, &commits, self.number + 1) {
            Applied::Nothing(verdicts) => {
                pending.end(under_way);
                answer(commits, verdicts)
            }
            Applied::Refused(trouble) => {
                pending.end(under_way);
                pending.note(&trouble);
                refuse(commits, &trouble);
                0
            }
            Applied::Written(verdicts) => {
                let (commits, verdicts, told) = tell_stale(commits, verdicts);
                match self.make_durable(database, pending, under_way) {
                    Ok(()) => told + answer(commits, verdicts),
                    Err(trouble) => told + doubt(commits, verdicts, &trouble),
                }
            }
            Applied::Torn(trouble) => {
                pending.fail(trouble.clone());
                for commit in commits {
                    drop(commit.reply.send(Err(trouble.clone().unknown())));
                }
                0
            }
        }
    }

    /// Makes the batch durable that was just applied.
    fn make_durable(
        &mut self,
        database: &Database,
        pending: &Pending,
        under_way: u64,
    ) -> Result<(), Trouble> {
        self.number += 1;
        let made = self.disk.make_durable(database);
        match &made {
            Ok(()) => pending.end(under_way),
            Err(trouble) => pending.fail(trouble.clone()),
        }
        made
    }

    fn purge(&mut self, database: &Database, pending: &Pending, purge: Purge) -> usize {
        let removed = self.remove(database, pending, &purge);
        usize::from(purge.reply.send(removed).is_ok())
    }

    fn remove(
        &mut self,
        database: &Database,
        pending: &Pending,
        purge: &Purge,
    ) -> Result<Removed, Error> {
        if let Some(trouble) = pending.failure() {
            return Err(trouble.nothing_done());
        }
        let due = Due::find(database, purge.now, purge.limit)?;
        if due.is_empty() {
            return Ok(Removed { count: 0, all: due.all });
        }
        let under_way = pending.begin(due.records());
        let verdicts = match due.apply(database, self.number + 1) {
            Applied::Nothing(verdicts) => {
                pending.end(under_way);
                verdicts
            }
            Applied::Refused(trouble) => {
                pending.end(under_way);
                pending.note(&trouble);
                return Err(trouble.nothing_done());
            }
            Applied::Torn(trouble) => {
                pending.fail(trouble.clone());
                return Err(trouble.unknown());
            }
            Applied::Written(verdicts) => {
                self.make_durable(database, pending, under_way).map_err(Trouble::unknown)?;
                verdicts
            }
        };
        let mut count = 0;
        for verdict in verdicts {
            count += usize::from(matches!(verdict?, Verdict::Written(_)));
        }
        Ok(Removed { count, all: due.all })
    }

    /// Leaves all that is committed durable, and marks how much that is.
    pub(crate) fn end(&mut self, database: &Database, pending: &Pending) -> Result<(), Trouble> {
        if let Some(trouble) = pending.failure() {
            return Err(trouble);
        }
        // What the user wrote beside the store, too. The mark must not ask for more than what is there.
        self.disk.sync(database)?;
        Ok(self.marker.set_batches(self.number)?)
    }
}

type Waiting = Vec<Commit>;

/// Answers those at once whose commit has failed: they need not wait for their neighbours'.
fn tell_stale(commits: Waiting, verdicts: Verdicts) -> (Waiting, Verdicts, usize) {
    let (mut waiting, mut kept, mut told) = (Vec::new(), Vec::new(), 0);
    for (commit, verdict) in commits.into_iter().zip(verdicts) {
        match verdict {
            Ok(Verdict::Written(_) | Verdict::Unchanged) => {
                waiting.push(commit);
                kept.push(verdict);
            }
            failed => told += tell(commit.reply, failed),
        }
    }
    (waiting, kept, told)
}

fn answer(commits: Waiting, verdicts: Verdicts) -> usize {
    let answers = commits.into_iter().zip(verdicts);
    answers.map(|(commit, verdict)| tell(commit.reply, verdict)).sum()
}

/// Answers those whose batch may or may not survive.
fn doubt(commits: Waiting, verdicts: Verdicts, trouble: &Trouble) -> usize {
    let doubts = verdicts.into_iter().map(|verdict| match verdict {
        Ok(Verdict::Written(_)) => Err(trouble.clone().unknown()),
        _ => Err(trouble.clone().nothing_done()),
    });
    answer(commits, doubts.collect())
}

fn refuse(commits: Waiting, trouble: &Trouble) {
    for commit in commits {
        tell(commit.reply, Err(trouble.clone().nothing_done()));
    }
}

/// Tells a caller, who may be gone: what is committed stays committed.
fn tell(reply: oneshot::Sender<Result<Verdict, Error>>, answer: Result<Verdict, Error>) -> usize {
    usize::from(reply.send(answer).is_ok())
}
