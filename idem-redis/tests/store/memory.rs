//! A server whose memory is used up: what needs none goes on.

use idem_core::{
    Certainty, Change, Error, ErrorKind, Outcome,
    consumer::{Marked, Recorder},
};
use idem_redis::{RedisStore, testing::Server};

use crate::setup::*;

fn is_full(error: Error) {
    assert!(matches!(error.kind(), ErrorKind::Full), "{error:?}");
    assert_eq!(error.certainty(), Certainty::NothingDone, "{error:?}");
}

#[tokio::test]
async fn a_full_server_refuses_what_is_new_and_serves_what_there_is() {
    for speculative in [false, true] {
        let server = Server::start().unwrap();
        let idem = open_with(RedisStore::builder().speculative(speculative), &server.url()).await;
        put_first(&idem, "k").await;
        assert_eq!(idem.mark_processed("billing", "7").await.unwrap(), Marked::First);
        let claim = claimed(&idem, "c").await;
        set(&server, "maxmemory", "1");

        is_full(put(&idem, "new").await.unwrap_err());
        is_full(added(&idem, "new").await.unwrap_err());
        is_full(idem.mark_processed("billing", "8").await.unwrap_err());
        is_full(on_claim(&idem, "c", &claim, completion(&claim, "1")).await.unwrap_err());
        is_full(claim_error(&idem).await);
        assert!(!has_record(&server, "new") && value_of(&server, "new").is_none());

        assert_eq!(put(&idem, "k").await.unwrap(), Outcome::Replayed(1));
        let other = idem.execute(&request("k", "other"), |tx| put_one(tx, "k")).await;
        assert_eq!(other.unwrap(), Outcome::Conflict);
        assert_eq!(idem.mark_processed("billing", "7").await.unwrap(), Marked::Again);
        assert!(idem.is_processed("billing", "7").await.unwrap());
        assert!(!self::claim(&idem, "k").await.unwrap().ran);
        assert_eq!(count(&idem, "k").await, 1);
        assert_eq!(idem.list(None, 10).await.unwrap().records.len(), 3);
        assert!(on_claim(&idem, "c", &claim, Change::Remove).await.unwrap().ran);
        assert!(idem.forget(&key("k")).await.unwrap());
        assert_eq!(idem.purge(10).await.unwrap().removed, 0);

        set(&server, "maxmemory", "0");
        put_first(&idem, "new").await;
        put_first(&idem, "k").await;
    }
}

async fn claim_error(idem: &Front) -> Error {
    claim(idem, "new").await.unwrap_err()
}

/// An argument that is longer than the server takes.
#[tokio::test]
async fn a_result_that_is_too_long_for_the_server_is_refused() {
    for speculative in [false, true] {
        let server = Server::start().unwrap();
        set(&server, "proto-max-bulk-len", "1mb");
        let idem = open_with(RedisStore::builder().speculative(speculative), &server.url()).await;
        let idem = idem.with_result_limit(64 << 20);
        for megabytes in [2, 1, 8] {
            let long = move |_: &mut idem_redis::RedisTransaction| Ok("x".repeat(megabytes << 20));
            let error = idem.execute(&request("long", "p"), long).await.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::TooLarge { .. }), "{error:?}");
            assert_eq!(error.certainty(), Certainty::NothingDone, "{error:?}");
            assert!(!has_record(&server, "long"));
            assert_eq!(put(&idem, "after").await.unwrap().result(), Some(1));
        }
    }
}

/// What one call sends at most, whatever the server takes.
#[tokio::test]
async fn too_many_values_are_refused_before_they_are_sent() {
    let server = Server::start().unwrap();
    let idem = open(&server.url()).await;
    let values = |count: u32| {
        move |tx: &mut idem_redis::RedisTransaction| {
            use idem_core::Transaction;
            (0..count).try_for_each(|number| tx.put(&number.to_be_bytes(), b""))?;
            Ok(count)
        }
    };
    let error = idem.execute(&request("k", "p"), values(100_001)).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::TooManyValues { values: 100_001, .. }), "{error:?}");
    let outcome = idem.execute(&request("k", "p"), values(10_000)).await.unwrap();
    assert_eq!(outcome, Outcome::Created(10_000));
}
