//! Stores that are broken on purpose: each must fail the case that says which rule it breaks.

// A fixture is part of a test: it may unwrap.
#![allow(clippy::unwrap_used)]

mod engine;
mod faults;
mod model;
mod pages;
mod place;
mod reference;
mod report;
mod runner;
mod scope;
mod stored;
mod transaction;

use std::{collections::BTreeMap, time::Duration};

use crate::{
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
    let pairs: Vec<_> = CAUGHT_BY
        .iter()
        .flat_map(|(fault, names)| names.iter().map(|name| (*fault, named(name))))
        .collect();
    let mut uncaught = run_all(&pairs, Duration::from_secs(10));
    uncaught.retain(|(fault, _, ended)| match ended {
        Ended::Failed => false,
        Ended::Hung => !HANGS.contains(fault),
        Ended::Passed => true,
    });
    assert!(uncaught.is_empty(), "what the case let pass, or waited for in vain: {uncaught:#?}");
}

/// Prints for each fault the cases that catch it, and then how many faults each case catches. It takes some
/// minutes: only if `IDEM_MATRIX` is set.
#[test]
fn matrix() {
    if std::env::var_os("IDEM_MATRIX").is_none() {
        return;
    }
    let cases = idem_conformance::cases!(Place);
    let of_fault = |(fault, _): &(Fault, _)| cases.map(|case| (*fault, case));
    let pairs: Vec<_> = CAUGHT_BY.iter().flat_map(of_fault).collect();
    let mut by_fault: BTreeMap<_, Vec<String>> = BTreeMap::new();
    let mut by_case: BTreeMap<_, usize> = BTreeMap::new();
    for (fault, case, ended) in run_all(&pairs, Duration::from_secs(3)) {
        let is_caught = ended != Ended::Passed;
        *by_case.entry(case.clone()).or_default() += usize::from(is_caught);
        let caught = by_fault.entry(fault).or_default();
        caught.extend(is_caught.then(|| format!("{case} {ended:?}")));
    }
    for (fault, caught) in by_fault {
        println!("{fault:?}: {caught:?}");
    }
    for (case, count) in by_case {
        println!("{count} {case}");
    }
}
