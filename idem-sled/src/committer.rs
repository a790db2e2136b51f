//! The committer: one thread that applies batch after batch and makes each durable before it answers.

use std::{
    iter,
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use idem_core::{Error, HotValues};
use tokio::sync::oneshot;

use crate::{
    commit::{self, Applied, Commit, Verdict, Verdicts},
    database::Database,
    disk::Disk,
    engine::Engine,
    failure::Trouble,
    marker::{Mark, Marker},
    pending::Pending,
    purge::{Due, Purge, Removed},
    queue::{Batch, Queue},
    sweep::Sweep,
};

/// What only the committer touches.
pub(crate) struct Committer {
    marker: Marker,
    disk: Box<dyn Disk>,
    /// How many batches were ever written.
    number: u64,
    pace: Pace,
    sweep: Sweep,
    /// How long it took last to make something durable.
    syncs: Duration,
}

/// The longest that a batch waits for more commits.
const PATIENCE: Duration = Duration::from_millis(1);

/// The longest that a batch which is applied waits for the next one that rests on it.
const FOLLOWING: Duration = Duration::from_micros(300);

/// For how long at least batches that follow each other are applied before they are made durable; a sync that takes
/// longer is worth as long a wait.
const TOGETHER: Duration = Duration::from_millis(2);

/// A group of batches takes no more commits from so many on.
const MOST: usize = 512;

/// How long it is worth to wait for those who were just answered to come again.
#[derive(Default)]
struct Pace {
    answered: usize,
    took: Duration,
}

impl Pace {
    /// Waits for as many as were answered last, but for no longer than a batch takes, and not where callers take turns:
    /// those come one by one.
    fn wait(&self, queue: &Queue, hot_values: &HotValues) {
        if self.answered > 1 && !hot_values.any() {
            queue.gather(self.answered, self.took.min(PATIENCE));
        }
    }
}

impl Committer {
    pub(crate) fn new(marker: Marker, disk: Box<dyn Disk>, batches: u64) -> Self {
        let (pace, sweep, syncs) = (Pace::default(), Sweep::default(), Duration::ZERO);
        Self { marker, disk, number: batches, pace, sweep, syncs }
    }

    /// Commits until the queue is closed and empty.
    pub(crate) fn work(mut self, engine: &Engine) -> Self {
        loop {
            self.pace.wait(&engine.queue, &engine.hot_values);
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
                Batch::Commits(commits) => self.commit(engine, database, commits),
                Batch::Purge(purge) => self.purge(database, &engine.pending, purge),
            })
        };
        // It is closed only after the committer has ended.
        engine.with(turn).unwrap_or(0)
    }

    /// Commits a batch, and with it those that follow at once where callers take turns for a value: each needs the
    /// one before to be applied, and only their answers need it to be durable.
    fn commit(&mut self, engine: &Engine, database: &Database, commits: Vec<Commit>) -> usize {
        let (mut group, start) = (Group::default(), Instant::now());
        let mut next = Some(commits);
        while let Some(commits) = next {
            if let Err(trouble) = self.apply(engine, database, commits, &mut group) {
                return group.doubt(&trouble);
            }
            let left = self.syncs.max(TOGETHER).saturating_sub(start.elapsed());
            next = if group.may_grow(engine) && !left.is_zero() {
                engine.queue.take_more(left.min(FOLLOWING))
            } else {
                None
            };
        }
        if !group.is_written {
            engine.pending.end(group.last);
            return group.answer();
        }
        match self.make_durable(database, &engine.pending, group.last) {
            Ok(()) => group.answer(),
            Err(trouble) => group.doubt(&trouble),
        }
    }

    /// Applies one batch, and tells those at once who need not wait for it to be durable.
    ///
    /// # Errors
    /// Then it is unknown what becomes of the group.
    fn apply(
        &mut self,
        engine: &Engine,
        database: &Database,
        mut commits: Vec<Commit>,
        group: &mut Group,
    ) -> Result<(), Trouble> {
        let pending = &engine.pending;
        // Nobody waits for these: nothing is done.
        commits.retain(|commit| !commit.reply.is_closed());
        if let Some(trouble) = pending.failure() {
            refuse(commits, &trouble);
            return Ok(());
        }
        group.last = pending.begin(commits.iter().flat_map(|commit| commit.entries()));
        match commit::apply(database, &commits, self.number + 1) {
            Applied::Nothing(verdicts) => group.add(pending, commits, verdicts),
            Applied::Written(verdicts) => {
                self.sweep.after(commits.iter().map(Commit::size).sum(), &database.sweep);
                self.number += 1;
                group.is_written = true;
                group.add(pending, commits, verdicts);
            }
            Applied::Refused(trouble) => {
                let unchanged = commits.iter().flat_map(|commit| commit.entries());
                pending.applied(group.last, iter::empty(), unchanged);
                if !group.is_written {
                    pending.end(group.last);
                }
                pending.note(&trouble);
                refuse(commits, &trouble);
                if trouble.is_fatal() {
                    return Err(trouble);
                }
            }
            Applied::Torn(trouble) => {
                pending.fail(trouble.clone());
                for commit in commits {
                    drop(commit.reply.send(Err(trouble.clone().unknown())));
                }
                return Err(trouble);
            }
        }
        Ok(())
    }

    /// Makes all batches up to that one durable.
    fn make_durable(
        &mut self,
        database: &Database,
        pending: &Pending,
        last: u64,
    ) -> Result<(), Trouble> {
        let start = Instant::now();
        let made = self.disk.make_durable(database);
        self.syncs = start.elapsed();
        match &made {
            Ok(()) => pending.end(last),
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
                self.number += 1;
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
        let mark = Mark { batches: self.number, segments: database.segments };
        Ok(self.marker.set(mark)?)
    }
}

/// Batches that become durable together.
#[derive(Default)]
struct Group {
    /// The number of the last batch.
    last: u64,
    /// Whether any batch has written something.
    is_written: bool,
    /// Whose answer must wait until it is durable, and the answers.
    waiting: Vec<(Commit, Result<Verdict, Error>)>,
    /// How many were told before.
    told: usize,
    /// Whether somebody has lost in the last batch who reads, and so will come again at once.
    has_losers: bool,
}

impl Group {
    /// Adds a batch that is applied. Those whose commit has failed are told at once: they need not wait for their
    /// neighbours'.
    fn add(&mut self, pending: &Pending, commits: Vec<Commit>, verdicts: Verdicts) {
        let (mut stay, mut fail) = (Vec::new(), Vec::new());
        for (commit, verdict) in commits.into_iter().zip(verdicts) {
            match verdict {
                Ok(Verdict::Written(_) | Verdict::Unchanged) => stay.push((commit, verdict)),
                _ => fail.push((commit, verdict)),
            }
        }
        let is_written = |(_, verdict): &&_| matches!(verdict, Ok(Verdict::Written(_)));
        let changed = stay.iter().filter(is_written);
        pending.applied(
            self.last,
            changed.flat_map(|(commit, _)| commit.entries()),
            fail.iter().flat_map(|(commit, _)| commit.entries()),
        );
        self.has_losers = fail.iter().any(|(commit, _)| !commit.reads.is_empty());
        for (mut commit, verdict) in stay {
            // The next one can look.
            drop(commit.turn.take());
            self.waiting.push((commit, verdict));
        }
        for (commit, verdict) in fail {
            self.told += tell(commit.reply, verdict);
        }
    }

    /// Whether somebody is about to come whose commit rests on this group's.
    fn may_grow(&self, engine: &Engine) -> bool {
        let is_hot = self.has_losers || engine.hot_values.any();
        is_hot && self.is_written && self.waiting.len() < MOST
    }

    /// Answers, and returns how many callers wait no longer.
    fn answer(self) -> usize {
        let waiting = self.waiting.into_iter();
        self.told + waiting.map(|(commit, verdict)| tell(commit.reply, verdict)).sum::<usize>()
    }

    /// Answers those whose batch may or may not survive.
    fn doubt(mut self, trouble: &Trouble) -> usize {
        for (_, verdict) in &mut self.waiting {
            *verdict = match verdict {
                Ok(Verdict::Written(_)) => Err(trouble.clone().unknown()),
                _ => Err(trouble.clone().nothing_done()),
            };
        }
        self.answer()
    }
}

fn refuse(commits: Vec<Commit>, trouble: &Trouble) {
    for commit in commits {
        tell(commit.reply, Err(trouble.clone().nothing_done()));
    }
}

/// Tells a caller, who may be gone: what is committed stays committed.
fn tell(reply: oneshot::Sender<Result<Verdict, Error>>, answer: Result<Verdict, Error>) -> usize {
    usize::from(reply.send(answer).is_ok())
}
