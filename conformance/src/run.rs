//! Runs a case on a runtime of its own, and says of one that fails which rule is not kept.

use std::{pin::Pin, thread};

use tokio::runtime::Builder;

use crate::cases::SOURCES;

/// A case under way.
#[doc(hidden)]
pub type Running = Pin<Box<dyn Future<Output = ()>>>;

/// What a case runs on.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// The thread that starts it.
    CurrentThread,
    /// Four threads.
    MultiThread,
}

/// Runs the case of that name.
///
/// Cases come boxed: a runtime's loop for each of their types would be most of what there is to compile.
///
/// # Panics
/// If the store does not keep the rule.
pub(crate) fn run_on(name: &'static str, runtime: Runtime, case: Running) {
    let _told = Told(name);
    let mut builder = match runtime {
        Runtime::CurrentThread => Builder::new_current_thread(),
        Runtime::MultiThread => Builder::new_multi_thread(),
    };
    let runtime = builder.worker_threads(4).enable_all().build();
    runtime.expect("the system has a runtime left").block_on(case);
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

    #[test]
    fn every_case_says_its_rule() {
        for case in cases() {
            let (_, rule) = rule(case.name).unwrap();
            assert!(rule.ends_with('.') && rule.len() > 20, "{}: {rule:?}", case.name);
        }
        let name = "at_its_end_a_receipt_has_expired_and_the_key_runs_again";
        let rule = rule(name).unwrap();
        assert_eq!(rule.0, "ttl");
        assert!(rule.1.starts_with("41. At its end a receipt has expired"), "{rule:?}");
    }
}
