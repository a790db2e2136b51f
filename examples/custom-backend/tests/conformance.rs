//! The suite on the redb store.

// A fixture is part of a test: it may unwrap.
#![allow(clippy::unwrap_used)]

use async_trait::async_trait;
use idem_conformance::{
    Fixture,
    model::{self, Options, Wrong},
};
use idem_core::{ManualClock, Space, Store};
use idem_example_redb::RedbStore;
use redb::Database;
use tempfile::TempDir;
use tokio::sync::Mutex;

/// redb opens a file once, so the handles of a place are clones of one store.
struct Place {
    folder: TempDir,
    open: Mutex<Option<RedbStore>>,
}

#[async_trait]
impl Fixture for Place {
    type Store = RedbStore;

    async fn create() -> Self {
        Self { folder: TempDir::new().unwrap(), open: Mutex::new(None) }
    }

    async fn open(&self, clock: ManualClock) -> RedbStore {
        let mut open = self.open.lock().await;
        if let Some(store) = &*open
            && is_open(store).await
        {
            return store.clone();
        }
        let database = Database::create(self.folder.path().join("orders.redb")).unwrap();
        open.insert(RedbStore::new(database, clock).unwrap()).clone()
    }
}

async fn is_open(store: &RedbStore) -> bool {
    store.value(&Space::tenant("").unwrap(), b"").await.is_ok()
}

idem_conformance::suite! {
    fixture: Place,
    reopen: yes,
    receipt_faults: no("after a write that failed the engine commits nothing more until it is opened anew"),
    hostile_effects: no("its transaction is buffered: there is nothing to end"),
}

#[test]
fn each_caller_is_told_what_the_rules_say() -> Result<(), Wrong> {
    model::sequential::<Place>(Options::default().reopens().programs(50))
}

#[test]
fn every_history_has_an_order_that_the_rules_allow() -> Result<(), Wrong> {
    model::histories::<Place>(Options::default().histories(500))
}

#[test]
fn what_the_suite_omits_is_known() {
    let fault = (
        "an_error_between_effect_and_receipt_leaves_neither",
        "after a write that failed the engine commits nothing more until it is opened anew",
    );
    let case = "an_effect_that_ends_the_transaction_harms_only_itself";
    let buffered = (case, "its transaction is buffered: there is nothing to end");
    let portable = (case, "a portable transaction has nothing to end");
    assert_eq!(concrete::OMITTED, [fault, buffered]);
    assert_eq!(dynamic::OMITTED, [fault, portable]);
}
