//! What else idem's tables hold: keys, marks, tokens, values, a version.

use std::time::Duration;

use idem_core::{
    Certainty, Claim, ErrorKind, Outcome, Transaction,
    consumer::{Marked, Recorder},
};
use idem_sqlite::SqliteStore;
use tempfile::TempDir;

use super::{complete, damage, store};
use crate::{column, request};

#[tokio::test]
async fn a_key_that_no_call_can_have_is_an_error_of_a_listing() {
    let folder = TempDir::new().unwrap();
    let (path, idem) = store(&folder).await;
    for sql in [
        "kind = 'gone'",
        "kind = 'event'",
        "tenant = 7",
        "operation = ''",
        "key = ''",
        "key = 'a' || char(10)",
        "key = x'00'",
        "key = CAST(x'ff' AS TEXT)",
    ] {
        complete(&idem, "damaged").await;
        damage(&path, &format!("UPDATE idem_records SET {sql}"));
        let error = idem.list(None, 10).await.expect_err(sql);
        assert!(matches!(error.kind(), ErrorKind::Damaged { .. }), "{sql}: {error:?}");
        damage(&path, "DELETE FROM idem_records");
    }
}

#[tokio::test]
async fn a_damaged_mark_is_an_error_and_never_a_first_one() {
    let folder = TempDir::new().unwrap();
    let (path, idem) = store(&folder).await;
    for sql in ["state = 'gone'", "attempt = x'00'", "result = NULL", "created_at = NULL"] {
        assert_eq!(idem.mark_processed("billing", "1").await.unwrap(), Marked::First);
        damage(&path, &format!("UPDATE idem_records SET {sql}"));
        for error in [
            idem.is_processed("billing", "1").await.expect_err(sql),
            idem.mark_processed("billing", "1").await.expect_err(sql),
        ] {
            assert!(matches!(error.kind(), ErrorKind::Damaged { .. }), "{sql}: {error:?}");
        }
        damage(&path, "DELETE FROM idem_records");
    }
}

#[tokio::test]
async fn a_damaged_counter_of_tokens_is_an_error_of_claims_alone() {
    let folder = TempDir::new().unwrap();
    let (path, idem) = store(&folder).await;
    for sql in [
        "UPDATE idem_token SET last = NULL",
        "UPDATE idem_token SET last = -1",
        "UPDATE idem_token SET last = 'x'",
        "UPDATE idem_token SET last = 1.5",
        "UPDATE idem_token SET last = 9223372036854775808",
        // A token after it would not be larger.
        "UPDATE idem_token SET last = 9223372036854775807",
        "DELETE FROM idem_token",
    ] {
        damage(&path, sql);
        let error = idem.claim::<i64>(&request("a"), Duration::from_secs(1)).await.expect_err(sql);
        assert!(matches!(error.kind(), ErrorKind::Damaged { .. }), "{sql}: {error:?}");
        assert_eq!(error.certainty(), Certainty::NothingDone, "{sql}");
        assert_eq!(column::<i64>(&path, "SELECT count(*) FROM idem_records"), [0], "{sql}");
        complete(&idem, "b").await;
        damage(
            &path,
            "DELETE FROM idem_records; DELETE FROM idem_token; INSERT INTO idem_token VALUES (5)",
        );
    }
    let claim = idem.claim::<i64>(&request("a"), Duration::from_secs(1)).await.unwrap();
    assert!(matches!(claim, Claim::Acquired(_)));
}

#[tokio::test]
async fn a_damaged_value_is_an_error_of_whoever_reads_it() {
    let folder = TempDir::new().unwrap();
    let (path, idem) = store(&folder).await;
    let written = idem.execute(&request("first"), |tx| Ok(tx.put(b"sum", b"7")?)).await;
    assert_eq!(written.unwrap(), Outcome::Created(()));
    for value in ["NULL", "7", "1.5", "'text'"] {
        damage(&path, &format!("UPDATE idem_values SET value = {value}"));
        let read = idem.execute(&request("reads"), |tx| Ok(tx.get(b"sum")?.is_some())).await;
        for error in [
            read.expect_err(value),
            idem.value(&request("reads").key().space(), b"sum").await.expect_err(value),
        ] {
            assert!(matches!(error.kind(), ErrorKind::Damaged { .. }), "{value}: {error:?}");
            assert_eq!(error.certainty(), Certainty::NothingDone, "{value}");
        }
    }
}

#[tokio::test]
async fn a_version_that_never_was_is_refused() {
    for sql in [
        "UPDATE idem_version SET version = NULL",
        "UPDATE idem_version SET version = 0",
        "UPDATE idem_version SET version = 'one'",
        "UPDATE idem_version SET version = 1.5",
        "DELETE FROM idem_version",
    ] {
        let folder = TempDir::new().unwrap();
        let (path, idem) = store(&folder).await;
        complete(&idem, "a").await;
        idem.close().await.unwrap();
        damage(&path, sql);
        let Err(error) = SqliteStore::open(&path).await else { panic!("{sql}: it opens") };
        assert!(
            matches!(error.kind(), ErrorKind::Damaged { .. } | ErrorKind::CannotOpen { .. }),
            "{sql}: {error:?}"
        );
        assert_eq!(column::<i64>(&path, "SELECT count(*) FROM idem_records"), [1], "{sql}");
    }
}
