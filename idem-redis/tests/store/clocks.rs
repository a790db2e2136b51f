//! Whose clock decides, and what the server removes by itself.

use std::time::Duration;

use idem_core::{
    Change, Committed, Fingerprint, ManualClock, Outcome, Record, Request, State, Timestamp,
    consumer::Recorder,
};
use idem_redis::{RedisBuilder, RedisStore, testing::Server};

use crate::setup::*;

/// How long the server keeps a record after it may be purged.
const GRACE: i64 = 60_000;

fn stores() -> [RedisBuilder; 2] {
    [RedisStore::builder(), RedisStore::builder().speculative(true)]
}

fn left(server: &Server, name: &str) -> i64 {
    server.query(&["PTTL", name]).unwrap()
}

#[tokio::test]
async fn a_receipt_lives_by_the_servers_clock() {
    let server = Server::start().unwrap();
    for (builder, name) in stores().into_iter().zip(["a", "b"]) {
        let idem = open_with(builder, &server.url()).await;
        let before = server_time(&server);
        put_first(&idem, name).await;
        let after = server_time(&server);
        // Another store, which has no time of its own either, sees the same.
        let other = open(&server.url()).await;
        for idem in [&idem, &other] {
            let receipt = idem.receipt(&key(name)).await.unwrap().unwrap();
            let created_at = receipt.created_at.as_millis();
            assert!((before..=after).contains(&created_at), "{before} {created_at} {after}");
            let expires_at = receipt.expires_at.unwrap().as_millis();
            assert_eq!(expires_at, created_at + 60_000);
        }
        let expires_at = idem.receipt(&key(name)).await.unwrap().unwrap().expires_at.unwrap();
        let gone_at: i64 = server.query(&["PEXPIRETIME", &record_name(name)]).unwrap();
        // It is counted from the commit.
        let late = gone_at - expires_at.as_millis() - GRACE;
        assert!((0..1_000).contains(&late), "{late}");
    }
}

#[tokio::test]
async fn the_server_removes_only_what_ends_under_its_own_clock() {
    let server = Server::start().unwrap();
    for (builder, name) in stores().into_iter().zip(["a", "b"]) {
        let idem = open_with(builder, &server.url()).await;
        let forever = Request::new(key(name)).retain_forever();
        let outcome = idem.execute(&forever, move |tx| put_one(tx, name)).await;
        assert_eq!(outcome.unwrap(), Outcome::Created(1));
        assert_eq!(left(&server, &record_name(name)), -1);
        let event = format!("{name}-event");
        let _ = idem.mark_processed("billing", &event).await.unwrap();
        assert_eq!(left(&server, &format!("idem:{{cbilling}}:r:0::{event}")), -1);
        // Neither the effects nor the last token end ever.
        assert_eq!(left(&server, &format!("idem:{{tnorth}}:v:{name}")), -1);
    }
    for (builder, name) in stores().into_iter().zip(["c", "d"]) {
        let clock = ManualClock::at(Timestamp::from_millis(1_000));
        let idem = open_with(builder.clock(clock), &server.url()).await;
        put_first(&idem, name).await;
        assert_eq!(left(&server, &record_name(name)), -1);
        let claim = format!("{name}-claim");
        claimed(&idem, &claim).await;
        assert_eq!(left(&server, &record_name(&claim)), -1);
    }
    assert_eq!(left(&server, "idem:{tnorth}:token"), -1);
}

/// A retry of a commit must find the record of the first, however short that lives.
#[tokio::test]
async fn a_record_outlives_every_retry_of_its_commit() {
    let server = Server::start().unwrap();
    let builder = RedisStore::builder().response_timeout(Duration::from_secs(600));
    let idem = open_with(builder, &server.url()).await;
    put_first(&idem, "k").await;
    let left = left(&server, &record_name("k"));
    assert!(left > 60_000 + 2 * 600_000, "{left}");
}

/// The record of a claim goes when its lease has been ended for its retention.
#[tokio::test]
async fn an_ended_claim_is_kept_for_its_retention() {
    let server = Server::start().unwrap();
    let idem = open(&server.url()).await;
    // The lease is half a minute, the retention a minute.
    let claim = claimed(&idem, "k").await;
    let gone_at: i64 = server.query(&["PEXPIRETIME", &record_name("k")]).unwrap();
    assert_eq!(gone_at, until(&claim) + 60_000 + GRACE);
    let longer = Change::Extend { lease: lease(10 * LEASE) };
    let extended = on_claim(&idem, "k", &claim, longer).await.unwrap();
    let gone_at: i64 = server.query(&["PEXPIRETIME", &record_name("k")]).unwrap();
    let extended = extended.after.unwrap();
    assert_eq!(gone_at, until(&extended) + 60_000 + GRACE);
    let ended = on_claim(&idem, "k", &extended, Change::End).await.unwrap().after.unwrap();
    let gone_at: i64 = server.query(&["PEXPIRETIME", &record_name("k")]).unwrap();
    assert!(until(&ended) < until(&extended), "it ended when the server stamped it");
    assert_eq!(gone_at, until(&ended) + 60_000 + GRACE);
}

fn short(name: &str, millis: u64) -> Request {
    let request = Request::new(key(name)).with_fingerprint(Fingerprint::of_bytes("p"));
    request.retain(Duration::from_millis(millis))
}

/// At its expiry a key runs anew, although its record is still there.
#[tokio::test]
async fn an_expired_receipt_runs_anew_before_the_server_removes_it() {
    let server = Server::start().unwrap();
    for (builder, prefix) in stores().into_iter().zip(["a", "b"]) {
        let idem = open_with(builder.prefix(prefix), &server.url()).await;
        for millis in [1, 2, 7, 30] {
            let request = short(&millis.to_string(), millis);
            let name = format!("{prefix}:{{tnorth}}:r:5:order:{millis}");
            let outcome = idem.execute(&request, |tx| add(tx, "n")).await.unwrap();
            let Outcome::Created(first) = outcome else { panic!("{outcome:?}") };
            let gone_at: i64 = server.query(&["PEXPIRETIME", &name]).unwrap();
            let expires_at = gone_at - GRACE;
            eventually("the receipt to expire", || server_time(&server) >= expires_at).await;
            assert!(server.query::<bool>(&["EXISTS", &name]).unwrap());
            assert_eq!(idem.receipt(request.key()).await.unwrap(), None);
            let outcome = idem.execute(&request, |tx| add(tx, "n")).await.unwrap();
            assert_eq!(outcome, Outcome::Created(first + 1));
        }
    }
}

/// Claims the key `name` for so many milliseconds.
async fn claimed_for(idem: &Front, name: &str, millis: u64) -> Record {
    let request = request(name, "p");
    let mut step = claim_of(&request);
    if let Change::Claim { lease: of_step, .. } = &mut step.change {
        *of_step = lease(Duration::from_millis(millis));
    }
    transact(idem, request.key(), step).await.unwrap().after.unwrap()
}

fn until(claim: &Record) -> i64 {
    let State::Claimed { until, .. } = claim.state else { panic!("{claim:?}") };
    until.as_millis()
}

async fn complete(idem: &Front, name: &str, claim: &Record) -> Committed {
    as_holder(idem, &key(name), claim, completion(claim, "1")).await
}

/// An ended lease is taken over by a step that has read nothing; its holder sees what is there instead.
#[tokio::test]
async fn a_claim_ends_by_the_servers_clock() {
    let server = Server::start().unwrap();
    let idem = open(&server.url()).await;
    let first = claimed_for(&idem, "k", 30).await;
    eventually("the lease to end", || server_time(&server) >= until(&first)).await;
    let late = complete(&idem, "k", &first).await;
    assert_eq!((late.ran, late.before), (false, Some(first.clone())));
    assert!(late.now.as_millis() >= until(&first));
    let second = claimed(&idem, "k").await;
    assert!(token(Some(&second)) > token(Some(&first)));
    let late = complete(&idem, "k", &first).await;
    assert_eq!((late.ran, late.before), (false, Some(second.clone())));
    assert!(complete(&idem, "k", &second).await.ran);
}

/// The store's own clock runs on where the server's stands still or is set back: it must not end a lease.
#[tokio::test]
async fn a_lease_that_has_ended_here_is_looked_for_on_the_server() {
    let server = Server::start().unwrap();
    let idem = open(&server.url()).await;
    let first = claimed_for(&idem, "k", 30).await;
    // Behind the store's back the lease was renewed, as if the server's clock were behind.
    let longer = Change::Extend { lease: lease(LEASE) };
    let renewed = on_claim(&open(&server.url()).await, "k", &first, longer).await.unwrap();
    eventually("the lease to end", || server_time(&server) >= until(&first)).await;
    let committed = complete(&idem, "k", &first).await;
    assert!(committed.ran, "its token still holds");
    assert_eq!(committed.before, renewed.after);
}

/// By a clock of the user's as well, what is told is what is there.
#[tokio::test]
async fn the_holder_of_an_ended_lease_is_told_what_there_is() {
    let server = Server::start().unwrap();
    let clock = ManualClock::at(Timestamp::from_millis(1_000));
    let idem = open_with(RedisStore::builder().clock(clock.clone()), &server.url()).await;
    let first = claimed(&idem, "k").await;
    clock.advance(LEASE);
    assert!(idem.forget(&key("k")).await.unwrap());
    let late = complete(&idem, "k", &first).await;
    assert_eq!((late.ran, late.before), (false, None));
}
