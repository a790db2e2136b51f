//! Records: each value that none has, and each that another might have.

use std::{path::Path, time::Duration};

use idem_core::{
    Certainty, EffectError, Error, ErrorKind, Idem, ManualClock, Outcome, Purged, Timestamp,
};
use idem_sqlite::{SqliteStore, SqliteTransaction, run_in};
use rusqlite::{Connection, TransactionBehavior};
use tempfile::TempDir;

use super::{complete, damage, hold, store};
use crate::request;

/// What cannot be a value of that column of a receipt, or of a claim, since no record has it.
const OF_BOTH: [(&str, &[&str]); 4] = [
    (
        "state",
        &["'gone'", "''", "'Completed'", "NULL", "7", "x'636c61696d6564'", "CAST(x'ff' AS TEXT)"],
    ),
    ("created_at", &["NULL", "'1'", "1.5", "9.3e18", "x'01'"]),
    (
        "attempt",
        &["NULL", "x''", "x'00'", "zeroblob(15)", "zeroblob(17)", "7", "'0123456789abcdef'"],
    ),
    (
        "fingerprint",
        &[
            "x''",
            "x'0102'",
            "zeroblob(33)",
            "zeroblob(32)",
            "CAST(x'01' || zeroblob(33) AS BLOB)",
            "7",
            "1.5",
            "'text'",
        ],
    ),
];
const OF_RECEIPTS: [(&str, &[&str]); 4] = [
    ("created_at", &["expires_at", "9223372036854775807"]),
    (
        "expires_at",
        &["'1'", "1.5", "9.3e18", "x'01'", "'forever'", "created_at", "0", "-9223372036854775808"],
    ),
    ("result", &["NULL", "7", "1.5"]),
    // Of a claim that has neither lease nor token.
    ("state", &["'claimed'"]),
];
const OF_CLAIMS: [(&str, &[&str]); 5] = [
    ("expires_at", &["'1'", "1.5", "x'01'", "lease_end", "0", "-9223372036854775808"]),
    ("lease_end", &["NULL", "'1'", "1.5", "9.3e18", "x'01'", "expires_at", "9223372036854775807"]),
    ("took_over", &["-1", "'1'", "1.5", "9223372036854775808", "x'01'"]),
    (
        "token",
        &["NULL", "-1", "-9223372036854775808", "'1'", "1.5", "9223372036854775808", "x'01'"],
    ),
    // Of a receipt that has no result.
    ("state", &["'completed'"]),
];

fn never(_: &mut SqliteTransaction) -> Result<i64, EffectError> {
    panic!("it must not run")
}

/// What a call of each kind on the key is told; but for purging, which asks for no key.
async fn answers(idem: &Idem<SqliteStore>, path: &Path, name: &str) -> Vec<(&'static str, Error)> {
    let request = request(name).fingerprint("p").unwrap();
    let mut connection = Connection::open(path).unwrap();
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    let borrowed = run_in(&transaction, &request, |_| -> Result<i64, EffectError> {
        panic!("it must not run")
    });
    drop(transaction);
    vec![
        ("run_in", borrowed.expect_err("run_in")),
        ("execute", idem.execute(&request, never).await.expect_err("execute")),
        ("claim", idem.claim::<i64>(&request, Duration::from_secs(1)).await.expect_err("claim")),
        ("receipt", idem.receipt(request.key()).await.expect_err("receipt")),
        ("forget", idem.forget(request.key()).await.expect_err("forget")),
        ("list", idem.list(None, 10).await.expect_err("list")),
    ]
}

async fn is_refused(idem: &Idem<SqliteStore>, path: &Path, name: &str, damage: &str) {
    for (call, error) in answers(idem, path, name).await {
        assert!(matches!(error.kind(), ErrorKind::Damaged { .. }), "{damage}: {call}: {error:?}");
        assert_eq!(error.certainty(), Certainty::NothingDone, "{damage}: {call}");
        let text = error.to_string();
        assert!(text.contains(name) && text.contains("delete its row"), "{damage}: {call}: {text}");
    }
}

#[tokio::test]
async fn a_value_that_no_record_has_is_an_error_of_every_call_and_never_a_new_run() {
    let folder = TempDir::new().unwrap();
    let (path, idem) = store(&folder).await;
    let receipts = OF_BOTH.iter().chain(&OF_RECEIPTS).map(|damage| (false, damage));
    let claims = OF_BOTH.iter().chain(&OF_CLAIMS).map(|damage| (true, damage));
    for (is_claim, (column, values)) in receipts.chain(claims) {
        for value in *values {
            let name = format!("{column} = {value}");
            match is_claim {
                true => hold(&idem, "damaged").await,
                false => complete(&idem, "damaged").await,
            }
            damage(&path, &format!("UPDATE idem_records SET {name}"));
            is_refused(&idem, &path, "damaged", &name).await;
            // Purging looks at times alone, and must not make room for a new run.
            assert_eq!(idem.purge(10).await.unwrap(), Purged::new(0, false), "{name}");
            is_refused(&idem, &path, "damaged", &name).await;
            damage(&path, "DELETE FROM idem_records");
        }
    }
    complete(&idem, "damaged").await;
}

/// A claim whose lease has an hour left, or a receipt that has expired.
async fn overdue(idem: &Idem<SqliteStore>, clock: &ManualClock, is_claim: bool) {
    let request = request("damaged").fingerprint("p").unwrap().retain(Duration::from_millis(10));
    if is_claim {
        let claim = idem.claim::<i64>(&request, Duration::from_secs(3600)).await.unwrap();
        claim.lease().expect("the key is free").abandon();
    } else {
        assert_eq!(idem.execute(&request, |_| Ok(7)).await.unwrap(), Outcome::Created(7));
    }
    clock.advance(Duration::from_millis(20));
}

#[tokio::test]
async fn a_purge_when_it_is_due_makes_no_room_for_what_a_damaged_record_kept_out() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    let clock = ManualClock::at(Timestamp::from_millis(1_700_000_000_123));
    let store = SqliteStore::builder().clock(clock.clone()).open(&path).await.unwrap();
    let idem = Idem::new(store);
    let receipts = OF_BOTH.iter().chain(&OF_RECEIPTS).map(|damage| (false, damage));
    let claims = OF_BOTH.iter().chain(&OF_CLAIMS).map(|damage| (true, damage));
    for (is_claim, (column, values)) in receipts.chain(claims) {
        for value in *values {
            overdue(&idem, &clock, is_claim).await;
            let name = format!("{column} = {value}");
            damage(&path, &format!("UPDATE idem_records SET {name}"));
            assert_eq!(idem.purge(10).await.unwrap(), Purged::new(0, false), "{name}");
            is_refused(&idem, &path, "damaged", &name).await;
            damage(&path, "DELETE FROM idem_records");
        }
    }
    overdue(&idem, &clock, false).await;
    assert_eq!(idem.purge(10).await.unwrap(), Purged::new(1, false));
}

/// What a call with the fingerprint is told of a record that could be as it is.
async fn told(idem: &Idem<SqliteStore>) -> String {
    let request = request("damaged").fingerprint("p").unwrap();
    match idem.execute(&request, |_| Ok(8)).await {
        Ok(Outcome::InProgress { .. }) => "in progress".to_string(),
        Ok(outcome) => format!("{outcome:?}"),
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::ResultUndecodable { .. }), "{error:?}");
            assert_eq!(error.certainty(), Certainty::Done);
            "undecodable".to_string()
        }
    }
}

#[tokio::test]
async fn a_value_that_another_record_might_have_is_believed() {
    let folder = TempDir::new().unwrap();
    let (path, idem) = store(&folder).await;
    let receipts = [
        ("created_at = -1", "Replayed(7)"),
        ("expires_at = NULL", "Replayed(7)"),
        ("expires_at = 9223372036854775807", "Replayed(7)"),
        ("attempt = zeroblob(16)", "Replayed(7)"),
        ("fingerprint = NULL", "Conflict"),
        ("fingerprint = CAST(x'01' || zeroblob(32) AS BLOB)", "Conflict"),
        ("result = x'37'", "Replayed(7)"),
        ("result = '9'", "Replayed(9)"),
        ("result = ''", "undecodable"),
        ("result = '7 8'", "undecodable"),
        ("result = CAST(x'ff' AS TEXT)", "undecodable"),
        // A claim's, and not looked at.
        ("lease_end = 'x', token = -1", "Replayed(7)"),
        (
            "state = 'claimed', lease_end = 9223372036854775807, expires_at = NULL, token = 0",
            "in progress",
        ),
    ];
    let claims = [
        ("lease_end = 9223372036854775807, expires_at = NULL", "in progress"),
        ("lease_end = -9223372036854775808", "Created(8)"),
        ("state = 'ended'", "Created(8)"),
        ("took_over = 1", "in progress"),
        ("token = 0", "in progress"),
        ("token = 9223372036854775807", "in progress"),
        ("result = 7", "in progress"),
        ("fingerprint = NULL", "Conflict"),
        ("state = 'completed', result = '9'", "Replayed(9)"),
    ];
    let receipts = receipts.map(|damage| (false, damage));
    for (is_claim, (sql, expected)) in
        receipts.into_iter().chain(claims.map(|damage| (true, damage)))
    {
        match is_claim {
            true => hold(&idem, "damaged").await,
            false => complete(&idem, "damaged").await,
        }
        damage(&path, &format!("UPDATE idem_records SET {sql}"));
        assert_eq!(told(&idem).await, expected, "{sql}");
        damage(&path, "DELETE FROM idem_records");
    }
}

#[tokio::test]
async fn a_damaged_row_is_no_matter_of_other_keys() {
    let folder = TempDir::new().unwrap();
    let (path, idem) = store(&folder).await;
    complete(&idem, "damaged").await;
    complete(&idem, "sound").await;
    damage(&path, "UPDATE idem_records SET state = 'gone' WHERE key = 'damaged'");
    let sound = request("sound").fingerprint("p").unwrap();
    assert_eq!(idem.execute(&sound, never).await.unwrap(), Outcome::Replayed(7));
    complete(&idem, "new").await;
    assert!(idem.forget(sound.key()).await.unwrap());
    complete(&idem, "sound").await;
    damage(&path, "DELETE FROM idem_records WHERE key = 'damaged'");
    assert_eq!(idem.list(None, 10).await.unwrap().records.len(), 2);
}
