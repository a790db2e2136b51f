//! What a user does with each connection that a store opens.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use common::{nothing, opened, query, request};
use idem_core::{Certainty, EffectError, Error, ErrorKind, Idem, Outcome};
use idem_sqlite::{SqliteStore, SqliteTransaction};
use rusqlite::{Connection, functions::FunctionFlags};
use tempfile::TempDir;

/// Functions and collations of the user's.
fn own(connection: &Connection) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function("twice", 1, flags, |args| Ok(2 * args.get::<i64>(0)?))?;
    connection.create_collation("backwards", |left, right| right.cmp(left))
}

/// Uses them.
fn use_own(tx: &mut SqliteTransaction) -> Result<String, EffectError> {
    tx.execute_batch(
        "CREATE TABLE IF NOT EXISTS words (word TEXT COLLATE backwards, PRIMARY KEY (word));
         INSERT OR IGNORE INTO words VALUES ('a'), ('b')",
    )?;
    let words =
        "SELECT group_concat(word, '') || twice(21) FROM (SELECT word FROM words ORDER BY word)";
    Ok(tx.query_row(words, [], |row| row.get(0))?)
}

/// Breaks the connection, so that the store opens another one.
fn break_connection(tx: &mut SqliteTransaction) -> Result<String, EffectError> {
    let mut insert = tx.prepare("INSERT INTO words VALUES ('x'), ('y') RETURNING word")?;
    let mut rows = insert.query([])?;
    rows.next()?;
    std::mem::forget(rows);
    std::mem::forget(insert);
    Ok(String::new())
}

#[tokio::test]
async fn own_functions_and_collations_are_there_on_each_connection() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let builder = SqliteStore::builder().on_connect(move |connection| {
        counted.fetch_add(1, Ordering::SeqCst);
        own(connection)
    });
    let idem = Idem::new(builder.open(&path).await.unwrap());
    assert_eq!(count.load(Ordering::SeqCst), 1);
    let used = idem.execute(&request("a"), use_own).await.unwrap();
    assert_eq!(used, Outcome::Created("ba42".to_string()));
    assert_eq!(count.load(Ordering::SeqCst), 2, "one to write, one to read");
    let broken = idem.execute(&request("b"), break_connection).await.unwrap_err();
    assert!(matches!(broken.kind(), ErrorKind::TransactionEnded), "{broken:?}");
    let used = idem.execute(&request("c"), use_own).await.unwrap();
    assert_eq!(used, Outcome::Created("ba42".to_string()), "on a connection opened again");
    assert_eq!(count.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn in_memory_own_functions_are_there_too() {
    let store = SqliteStore::builder().on_connect(own).open_in_memory().await.unwrap();
    let used = Idem::new(store).execute(&request("a"), use_own).await.unwrap();
    assert_eq!(used, Outcome::Created("ba42".to_string()));
}

fn refused(opened: Result<SqliteStore, Error>) -> (String, Error) {
    let Err(error) = opened else { panic!("this must not open") };
    assert_eq!(error.certainty(), Certainty::NothingDone);
    match error.kind() {
        ErrorKind::CannotOpen { problem, .. } => (problem.clone(), error),
        _ => panic!("unexpected {error:?}"),
    }
}

#[tokio::test]
async fn one_that_fails_or_panics_or_leaves_a_transaction_is_named() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    let failing = |connection: &Connection| connection.execute_batch("SELECT missing()");
    let (problem, error) = refused(SqliteStore::builder().on_connect(failing).open(&path).await);
    assert!(problem.starts_with("`on_connect` failed: no such function"), "{problem}");
    let source = std::error::Error::source(&error).unwrap();
    assert!(source.downcast_ref::<rusqlite::Error>().is_some(), "{error:?}");

    let panicking = |_: &Connection| panic!("no key");
    let (problem, _) = refused(SqliteStore::builder().on_connect(panicking).open(&path).await);
    assert_eq!(problem, "`on_connect` panicked: no key");

    let beginning = |connection: &Connection| connection.execute_batch("BEGIN");
    let (problem, _) = refused(SqliteStore::builder().on_connect(beginning).open(&path).await);
    assert!(problem.starts_with("`on_connect` left a transaction open"), "{problem}");
}

#[tokio::test]
async fn one_that_fails_later_fails_the_call_and_the_next_one_asks_again() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    let count = AtomicUsize::new(0);
    let second = move |connection: &Connection| match count.fetch_add(1, Ordering::SeqCst) {
        1 => connection.execute_batch("SELECT missing()"),
        _ => Ok(()),
    };
    let idem = Idem::new(SqliteStore::builder().on_connect(second).open(&path).await.unwrap());
    let error = idem.receipt(request("a").key()).await.unwrap_err();
    assert!(error.to_string().contains("`on_connect` failed"), "{error}");
    assert!(matches!(error.kind(), ErrorKind::CannotOpen { .. }), "{error:?}");
    assert_eq!(idem.receipt(request("a").key()).await.unwrap(), None);
    assert_eq!(idem.execute(&request("a"), nothing).await.unwrap(), Outcome::Created(()));
}

/// Would keep the store from writing, from undoing and from sharing the file.
fn weaken(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(
        "PRAGMA journal_mode = OFF; PRAGMA locking_mode = EXCLUSIVE; PRAGMA query_only = ON;
         PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON",
    )
}

async fn assert_whole(store: SqliteStore) {
    let idem = Idem::new(store);
    let violating = |tx: &mut SqliteTransaction| {
        tx.execute_batch(
            "CREATE TABLE parent (id INTEGER PRIMARY KEY);
             CREATE TABLE child (p CHECK (p > 0) REFERENCES parent (id))",
        )?;
        for violation in ["INSERT INTO child VALUES (0)", "INSERT INTO child VALUES (1)"] {
            assert!(tx.execute(violation, []).is_err(), "{violation}");
        }
        Ok(())
    };
    assert_eq!(idem.execute(&request("a"), violating).await.unwrap(), Outcome::Created(()));
    let failing = |tx: &mut SqliteTransaction| -> Result<(), EffectError> {
        tx.execute_batch("INSERT INTO parent VALUES (1)")?;
        Err("declined".into())
    };
    let error = idem.execute(&request("b"), failing).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Effect), "{error:?}");
    let parents = |tx: &mut SqliteTransaction| {
        Ok(tx.query_row("SELECT count(*) FROM parent", [], |row| row.get::<_, i64>(0))?)
    };
    assert_eq!(idem.execute(&request("c"), parents).await.unwrap(), Outcome::Created(0));
}

#[tokio::test]
async fn settings_that_the_store_needs_are_set_afterwards() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    let store = SqliteStore::builder().on_connect(weaken).open(&path).await.unwrap();
    assert_whole(store.clone()).await;
    assert_eq!(query::<String>(&path, "PRAGMA journal_mode"), "wal");
    let beside = opened(&path).await.unwrap();
    assert_eq!(beside.execute(&request("a"), nothing).await.unwrap(), Outcome::Replayed(()));
    assert_whole(SqliteStore::builder().on_connect(weaken).open_in_memory().await.unwrap()).await;
}
