//! Stores that are broken on purpose: each must fail the case that says which rule it breaks.

// A fixture is part of a test: it may unwrap.
#![allow(clippy::unwrap_used)]

mod also;
mod engine;
mod faults;
mod model;
mod pages;
mod patience;
mod place;
mod reference;
mod report;
mod runner;
mod scope;
mod stored;
mod transaction;

use std::{collections::BTreeSet, time::Duration};

use crate::{
    also::ALSO_CAUGHT,
    faults::{CAUGHT_BY, Fault},
    place::Place,
    runner::{Ended, run_all},
};

// The store without a fault keeps every rule.
idem_conformance::suite! {
    fixture: Place,
    reopen: yes,
    receipt_faults: yes,
    hostile_effects: yes,
}

/// What makes a case wait in vain; all other faults must fail theirs.
const HANGS: [Fault; 4] = [
    Fault::DetachedTaskDropped,
    Fault::DetachedInTheCallersRuntime,
    Fault::CloseWaitsForItself,
    Fault::LockHeldWhileAnEffectRuns,
];

#[test]
fn every_fault_is_caught_by_the_cases_that_name_its_rule() {
    let cases = idem_conformance::cases!(Place);
    let named = |name: &str| {
        let found = cases.iter().find(|case| case.name == name);
        *found.unwrap_or_else(|| panic!("there is no case {name}"))
    };
    let of_a_fault = CAUGHT_BY.iter().flat_map(|(fault, names)| names.iter().map(|n| (*fault, *n)));
    let pairs: Vec<_> =
        of_a_fault.chain(ALSO_CAUGHT.iter().copied()).map(|(f, n)| (f, named(n))).collect();
    let caught: BTreeSet<_> = pairs.iter().map(|(_, case)| case.name).collect();
    let idle: Vec<_> = cases.iter().map(|c| c.name).filter(|n| !caught.contains(n)).collect();
    assert!(idle.is_empty(), "no fault is named for these cases: {idle:?}");
    // What does not hang may wait for a core that others have.
    let bound = |fault| Duration::from_secs(if HANGS.contains(&fault) { 10 } else { 60 });
    let mut uncaught = run_all(&pairs, bound);
    uncaught.retain(|(fault, _, ended)| match ended {
        Ended::Failed => false,
        Ended::Hung => !HANGS.contains(fault),
        Ended::Passed => true,
    });
    assert!(uncaught.is_empty(), "what the case let pass, or waited for in vain: {uncaught:#?}");
}
