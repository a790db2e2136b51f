//! A server that has forgotten its scripts: every call works at once.

use idem_core::{
    Outcome,
    consumer::{Marked, Recorder},
};
use idem_redis::{RedisStore, testing::Server};

use crate::setup::*;

fn flush(server: &Server) {
    server.command(&["SCRIPT", "FLUSH"]).unwrap();
}

#[tokio::test]
async fn every_call_works_after_the_scripts_were_flushed() {
    for speculative in [false, true] {
        let server = Server::start().unwrap();
        let builder = RedisStore::builder().speculative(speculative);
        let idem = open_with(builder, &server.url()).await;
        let again = || flush(&server);
        again();
        assert_eq!(put(&idem, "k").await.unwrap(), Outcome::Created(1));
        again();
        assert_eq!(put(&idem, "k").await.unwrap(), Outcome::Replayed(1));
        again();
        let other = idem.execute(&request("k", "other"), |tx| put_one(tx, "k")).await;
        assert_eq!(other.unwrap(), Outcome::Conflict);
        again();
        assert_eq!(added(&idem, "n").await.unwrap(), Outcome::Created(1));
        again();
        assert!(idem.receipt(&key("n")).await.unwrap().is_some());
        again();
        assert_eq!(count(&idem, "n").await, 1);
        again();
        assert_eq!(idem.list(None, 10).await.unwrap().records.len(), 2);
        again();
        assert_eq!(idem.mark_processed("billing", "7").await.unwrap(), Marked::First);
        again();
        assert_eq!(idem.mark_processed("billing", "7").await.unwrap(), Marked::Again);
        again();
        assert!(idem.is_processed("billing", "7").await.unwrap());
        again();
        let claim = claimed(&idem, "c").await;
        again();
        assert!(on_claim(&idem, "c", &claim, completion(&claim, "1")).await.unwrap().ran);
        again();
        assert!(!idem.store().check().await.unwrap().is_empty());
        again();
        assert!(idem.forget(&key("k")).await.unwrap());
    }
}

#[tokio::test]
async fn a_purge_works_after_the_scripts_were_flushed() {
    let server = Server::start().unwrap();
    let clock = idem_core::ManualClock::at(idem_core::Timestamp::from_millis(1_000));
    let idem = open_with(RedisStore::builder().clock(clock.clone()), &server.url()).await;
    put_first(&idem, "k").await;
    clock.advance(std::time::Duration::from_secs(60));
    flush(&server);
    assert_eq!(idem.purge(10).await.unwrap().removed, 1);
}

#[tokio::test]
async fn an_execution_survives_a_flush_between_its_commands() {
    let server = Server::start().unwrap();
    let idem = open(&server.url()).await;
    let flushed = server.unix_url();
    let effect = move |tx: &mut idem_redis::RedisTransaction| {
        let client = redis::Client::open(&*flushed)?;
        redis::cmd("SCRIPT").arg("FLUSH").exec(&mut client.get_connection()?)?;
        add(tx, "n")
    };
    assert_eq!(idem.execute(&request("n", "p"), effect).await.unwrap(), Outcome::Created(1));
    assert_eq!(count(&idem, "n").await, 1);
}
