//! Runs cases by name on stores with a fault, many at a time.

use std::{
    panic::{self, AssertUnwindSafe, catch_unwind},
    sync::{Mutex, Once},
    thread,
    time::Duration,
};

use idem_conformance::{Case, Runtime};
use tokio::{runtime::Builder, time::timeout};

use crate::{engine::lock, faults::Fault, place::set_fault};

/// How many cases run at the same time: more than there are cores, since some wait.
const THREADS: usize = 8;

/// The name of the threads on which a panic is what is wanted.
const NAME: &str = "mutant";

/// What became of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Passed,
    Failed,
    /// It waited for what never came.
    Hung,
}

/// Runs each case on a store with its fault; one that takes as long as the fault's `bound` hangs.
pub(crate) fn run_all(
    pairs: &[(Fault, Case)],
    bound: impl Fn(Fault) -> Duration + Sync,
) -> Vec<(Fault, String, Ended)> {
    silence();
    let (queue, ended) = (Mutex::new(pairs.iter()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let work = || {
                while let Some((fault, case)) = { lock(&queue).next() } {
                    let how = run(*fault, case, bound(*fault));
                    lock(&ended).push((*fault, format!("{}::{}", case.group, case.name), how));
                }
            };
            thread::Builder::new().name(NAME.to_string()).spawn_scoped(scope, work).unwrap();
        }
    });
    ended.into_inner().unwrap()
}

fn run(fault: Fault, case: &Case, bound: Duration) -> Ended {
    set_fault(fault);
    let mut builder = match case.runtime {
        Runtime::CurrentThread => Builder::new_current_thread(),
        Runtime::MultiThread => Builder::new_multi_thread(),
    };
    let runtime = builder.worker_threads(4).thread_name(NAME).enable_all().build().unwrap();
    let run = || runtime.block_on(async { timeout(bound, (case.run)()).await });
    let ended = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => Ended::Passed,
        Ok(Err(_)) => Ended::Hung,
        Err(_) => Ended::Failed,
    };
    // What hangs on one of its threads is not waited for.
    runtime.shutdown_background();
    ended
}

/// Shows no panic of a broken store's cases; the threads that a case starts itself have no name.
fn silence() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let shown = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if thread::current().name().is_some_and(|name| name != NAME) {
                shown(info);
            }
        }));
    });
}
