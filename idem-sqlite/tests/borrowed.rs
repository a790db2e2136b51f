//! A request in a transaction that the caller already has.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use idem_core::{Certainty, Error, ErrorKind, Idem, Key, ManualClock, Outcome, Request, Timestamp};
use idem_sqlite::{SqliteStore, create_tables, run_in, run_in_at};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use tempfile::TempDir;

fn request(name: &str) -> Request {
    let key = Key::new("north", "order", name).unwrap();
    Request::new(key).fingerprint("p").unwrap().retain(Duration::from_secs(60))
}

fn database() -> (TempDir, Connection) {
    let folder = TempDir::new().unwrap();
    let mut connection = Connection::open(folder.path().join("store.db")).unwrap();
    connection.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE orders (q INTEGER)").unwrap();
    create_tables(&mut connection).unwrap();
    (folder, connection)
}

fn immediate(connection: &mut Connection) -> Transaction<'_> {
    connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap()
}

fn insert(transaction: &Transaction<'_>) -> Result<i64, idem_core::EffectError> {
    transaction.execute("INSERT INTO orders VALUES (1)", [])?;
    Ok(transaction.last_insert_rowid())
}

fn orders(connection: &Connection) -> i64 {
    connection.query_row("SELECT count(*) FROM orders", [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn the_answer_holds_once_the_caller_commits_and_a_store_replays_it() {
    let (folder, mut connection) = database();
    let transaction = immediate(&mut connection);
    transaction.execute("INSERT INTO orders VALUES (100)", []).unwrap();
    let borrowed = String::from("the effect borrows");
    let outcome = run_in(&transaction, &request("a"), |transaction| {
        assert_eq!(borrowed.len(), 18);
        insert(transaction)
    });
    assert_eq!(outcome.unwrap(), Outcome::Created(2));
    let replayed = run_in(&transaction, &request("a"), insert).unwrap();
    assert_eq!(replayed, Outcome::Replayed(2), "within its own transaction too");
    transaction.commit().unwrap();
    assert_eq!(orders(&connection), 2);

    let store = SqliteStore::open(folder.path().join("store.db")).await.unwrap();
    let idem = Idem::new(store);
    let replayed = idem.execute(&request("a"), |_| Ok(0)).await.unwrap();
    assert_eq!(replayed, Outcome::Replayed(2));
    let other = Request::new(request("a").key().clone());
    assert_eq!(run_in(&immediate(&mut connection), &other, insert).unwrap(), Outcome::Conflict);
}

#[test]
fn what_the_caller_rolls_back_has_not_happened() {
    let (_folder, mut connection) = database();
    let transaction = immediate(&mut connection);
    assert_eq!(run_in(&transaction, &request("a"), insert).unwrap(), Outcome::Created(1));
    transaction.rollback().unwrap();
    assert_eq!(orders(&connection), 0);
    let transaction = immediate(&mut connection);
    assert_eq!(run_in(&transaction, &request("a"), insert).unwrap(), Outcome::Created(1));
}

#[test]
fn an_error_or_a_panic_undoes_the_effect_alone_and_the_transaction_goes_on() {
    let (_folder, mut connection) = database();
    let transaction = immediate(&mut connection);
    transaction.execute("INSERT INTO orders VALUES (100)", []).unwrap();
    let failed: Result<Outcome<i64>, Error> = run_in(&transaction, &request("a"), |transaction| {
        insert(transaction)?;
        Err("declined".into())
    });
    assert!(matches!(failed.unwrap_err().kind(), ErrorKind::Effect));
    let panicked: Result<Outcome<i64>, Error> =
        run_in(&transaction, &request("a"), |transaction| {
            insert(transaction)?;
            panic!("in the middle")
        });
    assert!(matches!(panicked.unwrap_err().kind(), ErrorKind::Panicked(_)));
    let unreadable = run_in(&transaction, &request("a"), |transaction| {
        insert(transaction)?;
        Ok(f64::NAN)
    });
    assert!(matches!(unreadable.unwrap_err().kind(), ErrorKind::ResultUnreadable));
    assert_eq!(orders(&transaction), 1);
    assert_eq!(run_in(&transaction, &request("a"), insert).unwrap(), Outcome::Created(2));
    transaction.commit().unwrap();
    assert_eq!(orders(&connection), 2);
}

#[test]
fn an_effect_that_ends_the_transaction_leaves_no_receipt_and_no_certainty() {
    // What the effect runs, and how many orders are there after the caller has committed.
    let endings = [
        ("ROLLBACK", 0),
        ("COMMIT", 2),
        ("COMMIT; BEGIN", 2),
        ("ROLLBACK; BEGIN", 0),
        ("COMMIT; BEGIN; INSERT INTO orders VALUES (300)", 3),
    ];
    for (ending, left) in endings {
        for declined in [false, true] {
            let (_folder, mut connection) = database();
            let transaction = immediate(&mut connection);
            transaction.execute("INSERT INTO orders VALUES (100)", []).unwrap();
            let outcome = run_in(&transaction, &request("a"), |transaction| {
                insert(transaction)?;
                transaction.execute_batch(ending)?;
                if declined { Err("declined".into()) } else { Ok(1) }
            });
            let error = outcome.expect_err(ending);
            assert!(matches!(error.kind(), ErrorKind::TransactionEnded), "{ending}: {error:?}");
            assert_eq!(error.certainty(), Certainty::Unknown, "{ending}");
            // Fails where there is none.
            drop(transaction.commit());
            assert_eq!(orders(&connection), left, "{ending}");
            let receipts = connection
                .query_row("SELECT count(*) FROM idem_records", [], |row| row.get::<_, i64>(0));
            assert_eq!(receipts.unwrap(), 0, "{ending}");
        }
    }
}

#[test]
fn an_effect_that_runs_its_own_key_is_undone_with_it() {
    let (_folder, mut connection) = database();
    let transaction = immediate(&mut connection);
    let outcome = run_in(&transaction, &request("a"), |transaction| {
        assert_eq!(run_in(transaction, &request("b"), insert)?, Outcome::Created(1));
        assert_eq!(run_in(transaction, &request("a"), insert)?, Outcome::Created(2));
        insert(transaction)
    });
    assert!(matches!(outcome.unwrap_err().kind(), ErrorKind::Reentrant));
    assert_eq!(orders(&transaction), 0);
    assert_eq!(run_in(&transaction, &request("a"), insert).unwrap(), Outcome::Created(1));
}

#[test]
fn a_transaction_that_is_over_is_refused() {
    let (_folder, mut connection) = database();
    let transaction = immediate(&mut connection);
    transaction.execute_batch("COMMIT").unwrap();
    let error = run_in(&transaction, &request("a"), insert).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::TransactionEnded), "{error:?}");
    assert_eq!(error.certainty(), Certainty::NothingDone);
    drop(transaction);
    assert_eq!(orders(&connection), 0);
}

#[test]
fn a_deferred_transaction_that_was_overtaken_is_busy_and_nothing_is_done() {
    let (folder, mut connection) = database();
    let deferred = connection.transaction().unwrap();
    assert_eq!(orders(&deferred), 0);
    let other = Connection::open(folder.path().join("store.db")).unwrap();
    other.execute("INSERT INTO orders VALUES (7)", []).unwrap();
    let error = run_in(&deferred, &request("a"), insert).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Busy { .. }), "{error:?}");
    assert_eq!(error.certainty(), Certainty::NothingDone);
    drop(deferred);
    assert_eq!(orders(&connection), 1);
}

#[test]
fn a_replay_takes_the_write_lock_so_that_its_time_is_the_decisions() {
    let (folder, mut connection) = database();
    let clock = ManualClock::at(Timestamp::from_millis(1_000));
    let transaction = connection.transaction().unwrap();
    let run = |now: i64| {
        clock.set(Timestamp::from_millis(now));
        run_in_at(&transaction, &request("a"), &clock, insert).unwrap()
    };
    assert_eq!(run(1_000), Outcome::Created(1));
    assert_eq!(run(60_999), Outcome::Replayed(1));
    assert_eq!(run(61_000), Outcome::Created(2));
    assert_eq!(run(61_000), Outcome::Replayed(2));
    let other = Connection::open(folder.path().join("store.db")).unwrap();
    other.busy_timeout(Duration::ZERO).unwrap();
    assert!(other.execute_batch("BEGIN IMMEDIATE").is_err(), "the write lock is held");
}

#[test]
fn a_database_without_tables_or_with_newer_ones_is_refused() {
    let mut connection = Connection::open_in_memory().unwrap();
    connection.execute_batch("CREATE TABLE orders (q INTEGER)").unwrap();
    let transaction = immediate(&mut connection);
    let error = run_in(&transaction, &request("a"), insert).unwrap_err();
    assert!(error.to_string().contains("create_tables"), "{error}");
    drop(transaction);
    create_tables(&mut connection).unwrap();
    create_tables(&mut connection).unwrap();
    connection.execute_batch("UPDATE idem_version SET version = 9").unwrap();
    let error = create_tables(&mut connection).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::SchemaNewer { found: 9, .. }), "{error:?}");
    let error = run_in(&immediate(&mut connection), &request("a"), insert).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::SchemaNewer { found: 9, .. }), "{error:?}");
    assert_eq!(orders(&connection), 0);
}

#[test]
fn a_bad_retention_is_refused_before_the_effect() {
    let (_folder, mut connection) = database();
    let transaction = immediate(&mut connection);
    let never = |_: &Transaction<'_>| -> Result<(), idem_core::EffectError> { panic!("no run") };
    let zero = request("a").retain(Duration::ZERO);
    let error = run_in(&transaction, &zero, never).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InvalidDuration { .. }), "{error:?}");
    let clock = ManualClock::at(Timestamp::from_millis(i64::MAX));
    let error = run_in_at(&transaction, &request("a"), &clock, never).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InvalidDuration { .. }), "{error:?}");
}
