//! The suite on the SQLite store: on a file, on a file with a writer thread of its own, and in memory.

use async_trait::async_trait;
use idem_conformance::Fixture;
use idem_core::{Clock, ManualClock};
use idem_sqlite::{SqliteBuilder, SqliteStore};
use rusqlite::Connection;
use std::sync::Mutex;
use tempfile::TempDir;

struct File {
    folder: TempDir,
    dedicated_writer: bool,
}

impl File {
    fn new(dedicated_writer: bool) -> Self {
        Self { folder: TempDir::new().unwrap(), dedicated_writer }
    }

    async fn open(&self, clock: impl Clock) -> SqliteStore {
        let path = self.folder.path().join("store.db");
        let builder = SqliteStore::builder().clock(clock).dedicated_writer(self.dedicated_writer);
        builder.open(path).await.unwrap()
    }

    /// By a trigger that anybody with access to the file could make.
    fn refuse_receipts(&self, refuse: bool) {
        let connection = Connection::open(self.folder.path().join("store.db")).unwrap();
        let sql = if refuse {
            "CREATE TRIGGER refuse BEFORE INSERT ON idem_records
             BEGIN SELECT RAISE(ABORT, 'no receipts today'); END"
        } else {
            "DROP TRIGGER refuse"
        };
        connection.execute_batch(sql).unwrap();
    }
}

struct OnFile(File);

#[async_trait]
impl Fixture for OnFile {
    type Store = SqliteStore;

    async fn create() -> Self {
        Self(File::new(false))
    }

    async fn open(&self, clock: ManualClock) -> SqliteStore {
        self.0.open(clock).await
    }

    async fn refuse_receipts(&self, refuse: bool) {
        self.0.refuse_receipts(refuse);
    }
}

struct Dedicated(File);

#[async_trait]
impl Fixture for Dedicated {
    type Store = SqliteStore;

    async fn create() -> Self {
        Self(File::new(true))
    }

    async fn open(&self, clock: ManualClock) -> SqliteStore {
        self.0.open(clock).await
    }

    async fn refuse_receipts(&self, refuse: bool) {
        self.0.refuse_receipts(refuse);
    }
}

#[derive(Default)]
struct InMemory(Mutex<Option<SqliteStore>>);

#[async_trait]
impl Fixture for InMemory {
    type Store = SqliteStore;

    async fn create() -> Self {
        Self::default()
    }

    async fn open(&self, clock: ManualClock) -> SqliteStore {
        if self.0.lock().unwrap().is_none() {
            let store = SqliteBuilder::default().clock(clock).open_in_memory().await.unwrap();
            *self.0.lock().unwrap() = Some(store);
        }
        self.0.lock().unwrap().clone().unwrap()
    }
}

mod on_file {
    use super::OnFile;
    idem_conformance::suite! {
        fixture: OnFile,
        reopen: yes,
        receipt_faults: yes,
        hostile_effects: no("x"),
    }
}

mod dedicated_writer {
    use super::Dedicated;
    idem_conformance::suite! {
        fixture: Dedicated,
        reopen: yes,
        receipt_faults: yes,
        hostile_effects: no("x"),
    }
}

mod in_memory {
    use super::InMemory;
    idem_conformance::suite! {
        fixture: InMemory,
        reopen: no("nothing survives the store"),
        receipt_faults: no("there is no second connection to make a trigger by"),
        hostile_effects: no("x"),
    }
}
