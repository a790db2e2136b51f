//! A server that becomes a replica: it serves nothing, and serves again when it is promoted.

use idem_core::{
    Certainty, Error, ErrorKind, Outcome,
    consumer::{Marked, Recorder},
};
use idem_redis::{Hazard, RedisStore, testing::Server};

use crate::setup::*;

fn is_read_only(error: Error) {
    assert!(matches!(error.kind(), ErrorKind::ReadOnly), "{error:?}");
    assert_eq!(error.certainty(), Certainty::NothingDone, "{error:?}");
}

#[tokio::test]
async fn a_replica_is_refused_and_works_when_it_is_promoted() {
    for speculative in [false, true] {
        let (primary, server) = (Server::start().unwrap(), Server::start().unwrap());
        let idem = open_with(RedisStore::builder().speculative(speculative), &primary.url()).await;
        put_first(&idem, "k").await;
        assert_eq!(idem.mark_processed("billing", "7").await.unwrap(), Marked::First);
        let claim = claimed(&idem, "c").await;

        let idem = open_with(hasty(80).speculative(speculative), &server.url()).await;
        server.replicate_from(&primary).unwrap();
        // It has the data, and yesterday's perhaps: not even what is completed is told.
        assert!(has_record(&server, "k"));
        is_read_only(put(&idem, "k").await.unwrap_err());
        is_read_only(put(&idem, "new").await.unwrap_err());
        is_read_only(idem.receipt(&key("k")).await.unwrap_err());
        is_read_only(idem.mark_processed("billing", "7").await.unwrap_err());
        is_read_only(idem.is_processed("billing", "7").await.unwrap_err());
        is_read_only(idem.forget(&key("k")).await.unwrap_err());
        is_read_only(idem.value(&space(), b"k").await.unwrap_err());
        is_read_only(idem.list(None, 10).await.unwrap_err());
        is_read_only(idem.purge(10).await.unwrap_err());
        let completed = on_claim(&idem, "c", &claim, completion(&claim, "1")).await;
        is_read_only(completed.unwrap_err());
        assert!(idem.store().check().await.unwrap().contains(&Hazard::Replica));
        assert!(!has_record(&server, "new") && value_of(&server, "new").is_none());

        server.promote().unwrap();
        assert_eq!(put(&idem, "k").await.unwrap(), Outcome::Replayed(1));
        assert_eq!(put(&idem, "new").await.unwrap(), Outcome::Created(1));
        assert_eq!(idem.mark_processed("billing", "7").await.unwrap(), Marked::Again);
        assert!(on_claim(&idem, "c", &claim, completion(&claim, "1")).await.unwrap().ran);
        assert!(!idem.store().check().await.unwrap().contains(&Hazard::Replica));
    }
}

/// A failover that is over before the caller loses patience.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_waits_for_the_end_of_a_failover() {
    let (primary, server) = (Server::start().unwrap(), Server::start().unwrap());
    let idem = open(&server.url()).await;
    server.replicate_from(&primary).unwrap();
    let call = tokio::spawn({
        let idem = idem.clone();
        async move { put(&idem, "k").await }
    });
    eventually("the first refusal", || {
        let stats: String = server.query(&["INFO", "errorstats"]).unwrap();
        stats.contains("errorstat_READONLY")
    })
    .await;
    assert!(!call.is_finished());
    server.promote().unwrap();
    assert_eq!(joined("the call", call).await.unwrap(), Outcome::Created(1));
}
