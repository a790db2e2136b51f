//! The suite on the SQLite store: on a file, on a file with a writer thread of its own, and in memory.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

use std::sync::Mutex;

use async_trait::async_trait;
use idem_conformance::{Fixture, HostileEffect};
use idem_core::{Clock, EffectError, Idem, Key, ManualClock, Request, Transaction};
use idem_sqlite::{SqliteBuilder, SqliteStore, SqliteTransaction};
use rusqlite::Connection;
use tempfile::TempDir;

/// The tables of a user, whose constraints end transactions in every way that the engine has.
const TABLES: &str = "
CREATE TABLE taken (q INTEGER UNIQUE);
INSERT INTO taken VALUES (1);
CREATE TABLE parent (id INTEGER PRIMARY KEY);
CREATE TABLE child (p INTEGER REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE guarded (q INTEGER);
CREATE TRIGGER guards BEFORE INSERT ON guarded BEGIN SELECT RAISE(ROLLBACK, 'guarded'); END;
";

/// Runs a statement after the write that must not be kept, and keeps silent about how it went.
fn swallow(tx: &mut SqliteTransaction, sql: &str) -> Result<(), EffectError> {
    tx.put(b"hostile", b"kept")?;
    drop(tx.execute_batch(sql));
    drop(tx.put(b"hostile", b"kept again"));
    Ok(())
}

/// Runs a statement that is refused, and passes the refusal on.
fn pass_on(tx: &mut SqliteTransaction, sql: &str) -> Result<(), EffectError> {
    tx.put(b"hostile", b"kept")?;
    Ok(tx.execute_batch(sql)?)
}

const HOSTILE: [(&str, HostileEffect<SqliteStore>); 20] = [
    ("commit", |tx| swallow(tx, "COMMIT")),
    ("commit and begin", |tx| swallow(tx, "COMMIT; BEGIN")),
    ("end", |tx| swallow(tx, "END")),
    ("rollback", |tx| swallow(tx, "ROLLBACK")),
    ("begin", |tx| swallow(tx, "BEGIN")),
    ("savepoint", |tx| swallow(tx, "SAVEPOINT mine; ROLLBACK TO mine")),
    ("insert or rollback", |tx| swallow(tx, "INSERT OR ROLLBACK INTO taken VALUES (1)")),
    ("commit, then insert or rollback", |tx| {
        swallow(tx, "COMMIT")?;
        swallow(tx, "INSERT OR ROLLBACK INTO taken VALUES (1)")
    }),
    ("raise rollback", |tx| swallow(tx, "INSERT INTO guarded VALUES (1)")),
    ("deferred foreign key", |tx| swallow(tx, "INSERT INTO child VALUES (5)")),
    ("cached commit", |tx| {
        tx.put(b"hostile", b"kept")?;
        drop(tx.prepare_cached("COMMIT").and_then(|mut commit| commit.raw_execute()));
        Ok(())
    }),
    ("unchecked transaction", |tx| {
        tx.put(b"hostile", b"kept")?;
        drop(tx.connection().unchecked_transaction().and_then(rusqlite::Transaction::commit));
        Ok(())
    }),
    ("query only", |tx| pass_on(tx, "PRAGMA query_only = ON")),
    ("busy timeout", |tx| pass_on(tx, "PRAGMA busy_timeout = 0")),
    ("ignored checks", |tx| pass_on(tx, "PRAGMA ignore_check_constraints = ON")),
    ("attach", |tx| pass_on(tx, "ATTACH ':memory:' AS other")),
    ("own records", |tx| pass_on(tx, "DELETE FROM idem_records")),
    ("own tables", |tx| pass_on(tx, "DROP TABLE idem_values")),
    ("shadowed table", |tx| pass_on(tx, "CREATE TEMP TABLE idem_records (k)")),
    ("panic", |tx| {
        tx.put(b"hostile", b"kept")?;
        panic!("in the middle")
    }),
];

/// On a file: the store opens another connection after it.
const LEFT_OPEN: (&str, HostileEffect<SqliteStore>) = ("statement left open", |tx| {
    tx.put(b"hostile", b"kept")?;
    let mut insert = tx.prepare("INSERT INTO taken VALUES (900), (901) RETURNING q")?;
    let mut rows = insert.query([])?;
    rows.next()?;
    std::mem::forget(rows);
    std::mem::forget(insert);
    Ok(())
});

struct File {
    folder: TempDir,
    dedicated_writer: bool,
}

impl File {
    fn new(dedicated_writer: bool) -> Self {
        let folder = TempDir::new().unwrap();
        let connection = Connection::open(folder.path().join("store.db")).unwrap();
        connection.execute_batch(TABLES).unwrap();
        Self { folder, dedicated_writer }
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

struct OnFile<const DEDICATED_WRITER: bool>(File);

#[async_trait]
impl<const DEDICATED_WRITER: bool> Fixture for OnFile<DEDICATED_WRITER> {
    type Store = SqliteStore;

    async fn create() -> Self {
        Self(File::new(DEDICATED_WRITER))
    }

    async fn open(&self, clock: ManualClock) -> SqliteStore {
        self.0.open(clock).await
    }

    async fn refuse_receipts(&self, refuse: bool) {
        self.0.refuse_receipts(refuse);
    }

    fn hostile_effects(&self) -> Vec<(&'static str, HostileEffect<SqliteStore>)> {
        HOSTILE.into_iter().chain([LEFT_OPEN]).collect()
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
            let key = Key::new("setup", "tables", "once").unwrap();
            let tables = Request::new(key).retain_forever();
            let idem = Idem::new(store.clone());
            let made = idem.execute(&tables, |tx| Ok(tx.execute_batch(TABLES)?)).await;
            assert_eq!(made.unwrap().result(), Some(()));
            assert!(idem.forget(tables.key()).await.unwrap());
            *self.0.lock().unwrap() = Some(store);
        }
        self.0.lock().unwrap().clone().unwrap()
    }

    fn hostile_effects(&self) -> Vec<(&'static str, HostileEffect<SqliteStore>)> {
        HOSTILE.to_vec()
    }
}

mod on_file {
    use super::OnFile;
    idem_conformance::suite! {
        fixture: OnFile<false>,
        reopen: yes,
        receipt_faults: yes,
        hostile_effects: yes,
    }
}

mod dedicated_writer {
    use super::OnFile;
    idem_conformance::suite! {
        fixture: OnFile<true>,
        reopen: yes,
        receipt_faults: yes,
        hostile_effects: yes,
    }
}

mod in_memory {
    use super::InMemory;
    idem_conformance::suite! {
        fixture: InMemory,
        reopen: no("nothing survives the store"),
        receipt_faults: no("there is no second connection to make a trigger by"),
        hostile_effects: yes,
    }
}

const NATIVE: (&str, &str) = (
    "an_effect_that_ends_the_transaction_harms_only_itself",
    "a portable transaction has nothing to end",
);

#[test]
fn what_the_suite_omits_is_known() {
    assert_eq!(on_file::concrete::OMITTED, []);
    assert_eq!(on_file::dynamic::OMITTED, [NATIVE]);
    assert_eq!(dedicated_writer::concrete::OMITTED, []);
    assert_eq!(dedicated_writer::dynamic::OMITTED, [NATIVE]);
    let fault = "an_error_between_effect_and_receipt_leaves_neither";
    let no_fault = (fault, "there is no second connection to make a trigger by");
    let gone = "nothing survives the store";
    let reopened = [
        ("what_is_kept_survives_reopening_exactly", gone),
        ("tokens_and_claims_survive_reopening", gone),
        ("leases_and_their_results_survive_reopening", gone),
        ("a_dropped_lease_is_ended_before_its_store_closes", gone),
    ];
    let omitted = [no_fault, reopened[0], reopened[1], reopened[2], reopened[3]];
    assert_eq!(in_memory::concrete::OMITTED, omitted);
    assert_eq!(
        in_memory::dynamic::OMITTED,
        [no_fault, NATIVE, reopened[0], reopened[1], reopened[2], reopened[3]]
    );
}
