//! What a backend passes, what it is not asked for and why, and what it promises.

use std::{
    env, fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, PoisonError},
    thread,
};

use idem_core::{Guarantees, ManualClock, Store};

use crate::{
    Case, Fixture,
    placed::{cases, run_dynamic},
    setup::START,
};

/// Names an environment variable: if it is set, no case begins after one has failed. For tests of changed code, where
/// it is enough that one does.
const FAIL_FAST: &str = "IDEM_FAIL_FAST";

/// What [`report!`](crate::report!) found.
#[derive(Clone, Debug)]
pub struct Report {
    /// The cases that passed.
    pub passed: Vec<&'static str>,
    /// The cases that failed; what they said went to the standard error.
    pub failed: Vec<&'static str>,
    /// The cases that are not asked of this backend, each with the reason.
    pub omitted: &'static [(&'static str, &'static str)],
    /// What the store promises when it goes by the clock that the suite gives it.
    pub guarantees: Guarantees,
}

impl Report {
    /// Runs all cases but those, as many at a time as there are cores.
    #[doc(hidden)]
    #[must_use]
    pub fn of<F: Fixture>(omitted: &'static [(&'static str, &'static str)]) -> Self
    where
        <F::Store as Store>::Transaction: Sized,
    {
        let is_asked = |case: &&Case| omitted.iter().all(|(name, _)| *name != case.name);
        let queue = Mutex::new(cases().iter().filter(is_asked));
        let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
        let ended = Mutex::new((Vec::new(), Vec::new()));
        let work = || {
            while let Some(case) = next() {
                let run = || run_dynamic::<F>(case.name, case.runtime);
                let passes = catch_unwind(AssertUnwindSafe(run)).is_ok();
                if !passes && env::var_os(FAIL_FAST).is_some() {
                    queue.lock().unwrap_or_else(PoisonError::into_inner).by_ref().for_each(drop);
                }
                let mut ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
                if passes { ended.0.push(case.name) } else { ended.1.push(case.name) }
            }
        };
        thread::scope(|scope| {
            for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(work);
            }
        });
        let (mut passed, mut failed) = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
        passed.sort_unstable();
        failed.sort_unstable();
        Self { passed, failed, omitted, guarantees: guarantees::<F>() }
    }
}

/// What a fixture's store promises.
fn guarantees<F: Fixture>() -> Guarantees {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("the system has a runtime left").block_on(async {
        let place = F::create().await;
        let store = place.open(ManualClock::at(START)).await;
        let guarantees = store.guarantees();
        store.close().await.expect("closing works");
        guarantees
    })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asked = self.passed.len() + self.failed.len();
        writeln!(f, "passed {} of {asked} cases", self.passed.len())?;
        for name in &self.failed {
            writeln!(f, "  failed: {name}")?;
        }
        for (name, reason) in self.omitted {
            writeln!(f, "  not asked: {name}: {reason}")?;
        }
        write!(f, "  promises, by the suite's clock: {:?}", self.guarantees)
    }
}
