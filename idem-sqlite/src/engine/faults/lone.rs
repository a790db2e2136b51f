//! Operations that have the store for themselves.

use idem_conformance::{callers::within, operations::Operation};

use super::{Case, Fault, Kind, place::Place, try_all};
use crate::countdown::Lasts;

const KINDS: [(Kind, Lasts); 5] = [
    (Kind::File, Lasts::Once),
    (Kind::File, Lasts::On),
    (Kind::Dedicated, Lasts::Once),
    (Kind::Memory, Lasts::Once),
    (Kind::Memory, Lasts::On),
];

/// Tries an operation, with the fault of that number; whether it struck.
async fn fails_at(case: Case, number: usize) -> bool {
    let (place, lease) = Place::new(case, number).await;
    let answer = within(&place.what, case.operation.ask(&place.idem, lease)).await;
    let has_struck = place.calm();
    place.is_told(has_struck, &answer);
    place.settle(&answer).await;
    has_struck
}

fn all(fault: Fault, lasts: Lasts, kind: Kind) -> impl Iterator<Item = Case> {
    Case::of(&Operation::ALL, fault, lasts, kind)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_that_is_interrupted_at_an_instruction_is_whole_or_not_there() {
    try_all(all(Fault::Interrupt, Lasts::Once, Kind::File), 1, fails_at).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_that_is_interrupted_from_an_instruction_on_is_whole_or_not_there() {
    try_all(all(Fault::Interrupt, Lasts::On, Kind::File), 5, fails_at).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupt_costs_a_store_in_memory_nothing_but_the_operation() {
    for lasts in [Lasts::Once, Lasts::On] {
        try_all(all(Fault::Interrupt, lasts, Kind::Memory), 5, fails_at).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_whose_statement_fails_is_whole_or_not_there() {
    for (kind, lasts) in KINDS {
        try_all(all(Fault::Statement, lasts, kind), 1, fails_at).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_whose_commit_fails_is_whole_or_not_there() {
    for (kind, lasts) in KINDS {
        for after in [false, true] {
            try_all(all(Fault::Commit { after }, lasts, kind), 1, fails_at).await;
        }
    }
}
