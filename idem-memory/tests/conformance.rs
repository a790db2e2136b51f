//! The suite on the memory store.

// A fixture is part of a test: it may unwrap.
#![allow(clippy::unwrap_used)]

use std::sync::Mutex;

use async_trait::async_trait;
use idem_conformance::Fixture;
use idem_core::{Idem, Key, ManualClock, Request};
use idem_memory::MemoryStore;

/// What fits besides the fillers of a full store.
const CAPACITY: usize = 4000;

#[derive(Default)]
struct Memory {
    store: Mutex<Option<MemoryStore>>,
}

#[async_trait]
impl Fixture for Memory {
    type Store = MemoryStore;

    async fn create() -> Self {
        Self::default()
    }

    async fn open(&self, clock: ManualClock) -> MemoryStore {
        let mut store = self.store.lock().unwrap();
        let built = || MemoryStore::builder().capacity(CAPACITY).clock(clock).build();
        store.get_or_insert_with(built).clone()
    }

    async fn refuse_receipts(&self, refuse: bool) {
        let store = self.store.lock().unwrap().clone().unwrap();
        let idem = Idem::new(store);
        for filler in 0.. {
            let key = Key::new("filler", "fill", filler).unwrap();
            if refuse {
                let filled = idem.execute(&Request::new(key).retain_forever(), |_| Ok(())).await;
                if filled.is_err() {
                    break;
                }
            } else if !idem.forget(&key).await.unwrap() {
                break;
            }
        }
    }
}

idem_conformance::suite! {
    fixture: Memory,
    reopen: no("nothing survives the process"),
    receipt_faults: yes,
    hostile_effects: no("its transaction is portable: there is nothing to end"),
}

#[test]
fn what_the_suite_omits_is_known() {
    let case = "an_effect_that_ends_the_transaction_harms_only_itself";
    let reason = "its transaction is portable: there is nothing to end";
    let gone = "nothing survives the process";
    let reopened = [
        ("what_is_kept_survives_reopening_exactly", gone),
        ("tokens_and_claims_survive_reopening", gone),
        ("leases_and_their_results_survive_reopening", gone),
        ("a_dropped_lease_is_ended_before_its_store_closes", gone),
    ];
    let portable = "a portable transaction has nothing to end";
    assert_eq!(
        concrete::OMITTED,
        [(case, reason), reopened[0], reopened[1], reopened[2], reopened[3]]
    );
    assert_eq!(
        dynamic::OMITTED,
        [(case, portable), reopened[0], reopened[1], reopened[2], reopened[3]]
    );
}
