//! Tables that the first version of this library made.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use idem_core::{
    Claim, ErrorKind, Filter, Idem, Key, ManualClock, Outcome, Request, State, Store, Timestamp,
    Token,
};
use idem_sqlite::{SqliteStore, create_tables, run_in};
use rusqlite::{Connection, TransactionBehavior};
use tempfile::TempDir;

/// As they were made.
const VERSION_1: &str = "
CREATE TABLE idem_version (version INTEGER NOT NULL) STRICT;
CREATE TABLE idem_token (last INTEGER NOT NULL) STRICT;
CREATE TABLE idem_records (
    kind TEXT NOT NULL, tenant TEXT NOT NULL, operation TEXT NOT NULL, key TEXT NOT NULL,
    state TEXT NOT NULL, created_at INTEGER NOT NULL, expires_at INTEGER, lease_until INTEGER,
    token INTEGER, attempt BLOB NOT NULL, fingerprint BLOB, result ANY,
    PRIMARY KEY (kind, tenant, operation, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idem_records_expiry ON idem_records (expires_at) WHERE expires_at IS NOT NULL;
CREATE TABLE idem_values (
    kind TEXT NOT NULL, tenant TEXT NOT NULL, name BLOB NOT NULL, value BLOB NOT NULL,
    PRIMARY KEY (kind, tenant, name)
) STRICT, WITHOUT ROWID;
INSERT INTO idem_version VALUES (1);
INSERT INTO idem_token VALUES (9);
INSERT INTO idem_records VALUES
    ('request', 't', 'o', 'done', 'completed', 1000, 61000, NULL, NULL, zeroblob(16), NULL, '7'),
    ('request', 't', 'o', 'held', 'claimed', 1000, 61000, 31000, 7, zeroblob(16), NULL, NULL),
    ('request', 't', 'o', 'ended', 'claimed', 1000, 61000, 1000, 8, zeroblob(16), NULL, NULL),
    ('request', 't', 'o', 'forever', 'claimed', 1000, NULL, 31000, 9, zeroblob(16), NULL, NULL);
";

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn request(name: &str) -> Request {
    Request::new(Key::new("t", "o", name).unwrap()).retain(Duration::from_secs(60))
}

#[tokio::test]
async fn the_first_versions_tables_are_brought_up_to_date() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("old.db");
    Connection::open(&path).unwrap().execute_batch(VERSION_1).unwrap();
    let clock = ManualClock::at(at(2_000));
    let store = SqliteStore::builder().clock(clock.clone()).open(&path).await.unwrap();
    let idem = Idem::new(store);
    let records = idem.store().list(&Filter::all(), None, 10).await.unwrap().records;
    let shown: Vec<_> = records
        .iter()
        .map(|(key, record)| {
            let (until, is_ended) = match record.state {
                State::Claimed { until, is_ended, .. } => (Some(until.as_millis()), is_ended),
                State::Completed { .. } => (None, false),
            };
            (key.request(), until, is_ended, record.gone_at().map(Timestamp::as_millis))
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("done", None, false, Some(61_000)),
            ("ended", Some(1_000), true, Some(61_000)),
            ("forever", Some(31_000), false, None),
            // Kept for as long from its end as it was from its start.
            ("held", Some(31_000), false, Some(91_000)),
        ]
    );
    assert_eq!(idem.execute(&request("done"), |_| Ok(8)).await.unwrap(), Outcome::Replayed(7));
    let held = idem.execute(&request("held"), |_| Ok(8)).await.unwrap();
    assert!(matches!(held, Outcome::InProgress { until, .. } if until == at(31_000)));
    // An ended lease stays so by a clock that is set back.
    clock.set(at(0));
    let Claim::Acquired(next) =
        idem.claim::<u64>(&request("ended"), Duration::from_secs(1)).await.unwrap()
    else {
        panic!("it has ended")
    };
    assert_eq!(next.took_over(), Token::from_u64(8));
    next.release().await.unwrap();
    clock.set(at(91_000));
    assert_eq!(idem.purge(10).await.unwrap().removed, 3, "all but the one that is kept forever");
    idem.close().await.unwrap();
    assert!(SqliteStore::open(&path).await.is_ok(), "it is up to date");
}

#[test]
fn a_borrowed_connection_to_old_tables_is_told_what_to_do() {
    let mut connection = Connection::open_in_memory().unwrap();
    connection.execute_batch(VERSION_1).unwrap();
    let run = |connection: &mut Connection| {
        let behavior = TransactionBehavior::Immediate;
        let transaction = connection.transaction_with_behavior(behavior).unwrap();
        let ran = run_in(&transaction, &request("new"), |_| Ok(1));
        transaction.commit().unwrap();
        ran
    };
    let error = run(&mut connection).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::CannotOpen { .. }), "{error:?}");
    assert!(error.to_string().contains("call create_tables"), "{error}");
    create_tables(&mut connection).unwrap();
    assert_eq!(run(&mut connection).unwrap(), Outcome::Created(1));
}

#[tokio::test]
async fn statements_of_the_older_version_fail_once_the_tables_are_up_to_date() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("old.db");
    let old = Connection::open(&path).unwrap();
    old.execute_batch(VERSION_1).unwrap();
    // Prepared before, as a process has them that still runs.
    let columns = "state, created_at, expires_at, lease_until, token, attempt, fingerprint, result";
    let mut select = old.prepare(&format!("SELECT {columns} FROM idem_records")).unwrap();
    assert!(select.query([]).unwrap().next().unwrap().is_some());
    SqliteStore::open(&path).await.unwrap();
    assert!(select.query([]).unwrap().next().is_err());
    assert!(old.prepare("UPDATE idem_records SET lease_until = 1").is_err());
}
