//! What one round showed.

use std::{
    ops::AddAssign,
    time::{Duration, Instant},
};

use idem_core::{BoxError, Outcome};

use crate::{
    Load,
    shop::{Order, Placed},
};

/// How many callers were told what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Created.
    pub created: usize,
    /// Replayed.
    pub replayed: usize,
    /// Conflict.
    pub conflicts: usize,
}

impl AddAssign for Answers {
    fn add_assign(&mut self, other: Self) {
        self.created += other.created;
        self.replayed += other.replayed;
        self.conflicts += other.conflicts;
    }
}

/// What one round showed.
#[derive(Debug)]
pub struct Sample {
    /// From the first caller's start to the last one's end.
    pub elapsed: Duration,
    /// How many calls were answered until the first caller found none left, and when that was.
    ///
    /// If callers share the calls, all of them are busy until then. What is under way then is a call per
    /// caller at most; for a side that makes callers sleep it can take longer than all the calls before.
    steady: (usize, Duration),
    /// How long single calls took.
    pub latencies: Vec<Duration>,
    /// What the callers were told.
    pub answers: Answers,
}

impl Sample {
    pub(crate) fn of(runs: Vec<Run>, load: &Load) -> Self {
        let start = runs.iter().map(|run| run.start).min();
        let first = runs.iter().map(|run| run.end).min();
        let last = runs.iter().map(|run| run.end).max();
        let since = |end: Option<Instant>| {
            start.zip(end).map_or(Duration::ZERO, |(start, end)| end - start)
        };
        let late = runs.iter().filter(|run| Some(run.end) > first).count();
        let steady = if load.is_shared() {
            (load.operations() - late, since(first))
        } else {
            (load.operations(), since(last))
        };
        let (latencies, answers) = (Vec::new(), Answers::default());
        let mut sample = Self { elapsed: since(last), steady, latencies, answers };
        for run in runs {
            sample.latencies.extend(run.latencies);
            sample.answers += run.answers;
        }
        sample
    }

    /// Calls per second, of all calls.
    #[must_use]
    pub fn throughput(&self) -> f64 {
        let Answers { created, replayed, conflicts } = self.answers;
        (created + replayed + conflicts) as f64 / self.elapsed.as_secs_f64()
    }

    /// Calls per second while all callers are busy, where they share the calls; else of all calls.
    #[must_use]
    pub fn steady_throughput(&self) -> f64 {
        self.steady.0 as f64 / self.steady.1.as_secs_f64()
    }
}

/// What one caller saw.
pub(crate) struct Run {
    start: Instant,
    end: Instant,
    every: usize,
    calls: usize,
    latencies: Vec<Duration>,
    answers: Answers,
}

impl Run {
    /// Starts now, and times one call in `every`.
    pub(crate) fn start(every: usize) -> Self {
        let now = Instant::now();
        let (latencies, answers) = (Vec::new(), Answers::default());
        Self { start: now, end: now, every, calls: 0, latencies, answers }
    }

    /// When the call starts, if it is one to time.
    pub(crate) fn call(&mut self) -> Option<Instant> {
        self.calls += 1;
        self.calls.is_multiple_of(self.every).then(Instant::now)
    }

    /// Takes note of an answer, and checks it.
    pub(crate) fn answered(
        &mut self,
        start: Option<Instant>,
        order: &Order,
        outcome: Outcome<Placed>,
    ) -> Result<(), BoxError> {
        if let Some(start) = start {
            self.latencies.push(start.elapsed());
        }
        let placed = match outcome {
            Outcome::Created(placed) => {
                self.answers.created += 1;
                placed
            }
            Outcome::Replayed(placed) => {
                self.answers.replayed += 1;
                placed
            }
            Outcome::Conflict => {
                self.answers.conflicts += 1;
                return Ok(());
            }
            Outcome::InProgress { .. } => return Err("nobody leased the key".into()),
        };
        if placed.number == order.number {
            return Ok(());
        }
        Err(format!("order {} was answered with {placed:?}", order.number).into())
    }

    pub(crate) fn end(mut self) -> Self {
        self.end = Instant::now();
        self
    }
}
