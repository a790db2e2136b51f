//! Runs a case on a runtime of its own, and says of one that fails which rule is not kept.

use std::{
    panic::resume_unwind,
    pin::Pin,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use tokio::runtime::Builder;

use crate::cases::SOURCES;

/// A case under way.
#[doc(hidden)]
pub type Running = Pin<Box<dyn Future<Output = ()>>>;

/// What a case runs on.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// One thread.
    CurrentThread,
    /// Four threads.
    MultiThread,
}

/// How long a case may take. What it waits for has a shorter bound of its own, so this is for the store that blocks every
/// thread of its runtime; a sound one takes as long only where hundreds of its commits take minutes.
const BOUND: Duration = Duration::from_secs(300);

/// Runs the case of that name.
///
/// Cases come boxed: a runtime's loop for each of their types would be most of what there is to compile.
///
/// # Panics
/// If the store does not keep the rule.
pub(crate) fn run_on(
    name: &'static str,
    runtime: Runtime,
    case: impl FnOnce() -> Running + Send + 'static,
) {
    let case: Box<dyn FnOnce() -> Running + Send> = Box::new(case);
    let run = move || {
        let _told = Told(name);
        let mut builder = match runtime {
            Runtime::CurrentThread => Builder::new_current_thread(),
            Runtime::MultiThread => Builder::new_multi_thread(),
        };
        let runtime = builder.worker_threads(4).enable_all().build();
        runtime.expect("the system has a runtime left").block_on(case());
    };
    if !bounded(BOUND, run) {
        let _told = Told(name);
        panic!(
            "the case has not ended after {BOUND:?}: the store blocks the threads that it runs on"
        );
    }
}

/// Runs `work` on a thread of its own; whether it ended within `bound`. A panic of the work is the caller's.
fn bounded(bound: Duration, work: impl FnOnce() + Send + 'static) -> bool {
    let (working, ended) = mpsc::channel::<()>();
    let caller = thread::current();
    let thread = thread::Builder::new().name(caller.name().unwrap_or("a case").to_string());
    let thread = thread.spawn(move || {
        // Gone however the work ends.
        let _working = working;
        work();
    });
    let thread = thread.expect("the system has a thread left for a case");
    if ended.recv_timeout(bound) == Err(RecvTimeoutError::Timeout) {
        return false;
    }
    thread.join().unwrap_or_else(|panic| resume_unwind(panic));
    true
}

/// Says the rule of a case that fails.
struct Told(&'static str);

impl Drop for Told {
    fn drop(&mut self) {
        if thread::panicking() {
            let (group, rule) = rule(self.0).expect("every case is written somewhere");
            eprintln!(
                "the rule: {rule}\n(group `{group}`, case `{}`; of two sides that are compared, the left one is \
                 what came, the right one what the rule asks for)",
                self.0
            );
        }
    }
}

/// The group and the documentation of a case.
fn rule(name: &str) -> Option<(&'static str, String)> {
    let function = format!("pub async fn {name}<");
    SOURCES.iter().find_map(|(group, source)| {
        let before = source.split_once(&function)?.0;
        let mut doc: Vec<_> =
            before.lines().rev().map_while(|line| line.strip_prefix("///")).collect();
        doc.reverse();
        Some((*group, doc.into_iter().map(str::trim).collect::<Vec<_>>().join(" ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placed::cases;
    use std::panic::catch_unwind;

    #[test]
    fn work_that_does_not_end_is_told_and_a_panic_is_handed_on() {
        let (end, ended) = mpsc::channel::<()>();
        assert!(!bounded(Duration::from_millis(1), move || assert!(ended.recv().is_err())));
        drop(end);
        assert!(bounded(Duration::from_secs(60), || {}));
        let panicked =
            catch_unwind(|| bounded(Duration::from_secs(60), || resume_unwind(Box::new(7))));
        assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&7));
    }

    #[test]
    fn every_case_says_its_rule() {
        for case in cases() {
            let (_, rule) = rule(case.name).unwrap();
            let is_numbered = rule.starts_with(|first: char| first.is_ascii_digit());
            let is_sentence = rule.ends_with('.') && rule.len() > 20;
            assert!(is_numbered && is_sentence, "{}: {rule:?}", case.name);
        }
        let name = "at_its_end_a_receipt_has_expired_and_the_key_runs_again";
        let rule = rule(name).unwrap();
        assert_eq!(rule.0, "ttl");
        assert!(rule.1.starts_with("41. At its end a receipt has expired"), "{rule:?}");
    }
}
