//! The suite on the sled store.

// A fixture is part of a test: it may unwrap.
#![allow(clippy::unwrap_used)]

use async_trait::async_trait;
use idem_conformance::Fixture;
use idem_core::{ManualClock, Space, Store};
use idem_sled::SledStore;
use tempfile::TempDir;
use tokio::sync::Mutex;

/// A folder is open once: its handles are clones.
struct Folder {
    folder: TempDir,
    open: Mutex<Option<SledStore>>,
}

#[async_trait]
impl Fixture for Folder {
    type Store = SledStore;

    async fn create() -> Self {
        Self { folder: TempDir::new().unwrap(), open: Mutex::new(None) }
    }

    async fn open(&self, clock: ManualClock) -> SledStore {
        let mut open = self.open.lock().await;
        if let Some(store) = &*open
            && is_open(store).await
        {
            return store.clone();
        }
        let store = SledStore::builder().clock(clock).open(self.folder.path()).await.unwrap();
        open.insert(store).clone()
    }
}

async fn is_open(store: &SledStore) -> bool {
    store.value(&Space::tenant("").unwrap(), b"").await.is_ok()
}

idem_conformance::suite! {
    fixture: Folder,
    reopen: yes,
    receipt_faults: no("the engine refuses no single write: what keeps it from one keeps it from all"),
    hostile_effects: no("its transaction is buffered: there is nothing to end"),
}

#[test]
fn what_the_suite_omits_is_known() {
    let fault = (
        "an_error_between_effect_and_receipt_leaves_neither",
        "the engine refuses no single write: what keeps it from one keeps it from all",
    );
    let case = "an_effect_that_ends_the_transaction_harms_only_itself";
    let buffered = (case, "its transaction is buffered: there is nothing to end");
    let portable = (case, "a portable transaction has nothing to end");
    assert_eq!(concrete::OMITTED, [fault, buffered]);
    assert_eq!(dynamic::OMITTED, [fault, portable]);
}
