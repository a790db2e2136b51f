//! The SQLite store against the rules: random programs, and random histories of several clients.

// Not all of it is used here.
#[allow(dead_code, unused_imports, unused_macros)]
mod fixture;

use fixture::OnFile;
use idem_conformance::model::{self, Options, Wrong};

#[test]
fn each_caller_is_told_what_the_rules_say() -> Result<(), Wrong> {
    model::sequential::<OnFile<false>>(Options::default().reopens().programs(50))
}

#[test]
fn every_history_has_an_order_that_the_rules_allow() -> Result<(), Wrong> {
    model::histories::<OnFile<false>>(Options::default())
}
