//! Leases on a real server, under its clock.

use std::time::Duration;

use idem_conformance::setup::START;
use idem_core::{Claim, ErrorKind, Idem, Lease, ManualClock, Request};
use idem_redis::{RedisStore, testing::Server};

use crate::{
    round_trips::{costs, warm},
    setup::*,
};

type Held = Lease<RedisStore, u64>;

async fn acquired(idem: &Idem<RedisStore>, request: &Request, lease: Duration) -> Held {
    match idem.claim(request, lease).await.unwrap() {
        Claim::Acquired(lease) => lease,
        other => panic!("the key must be free: {other:?}"),
    }
}

#[tokio::test]
async fn each_step_of_a_lease_is_one_round_trip() {
    const LEASE: Duration = Duration::from_secs(600);
    let server = Server::start().unwrap();
    let idem = warm(&server, false).await;
    let request = request("k", "p");
    let mut lease = costs(&server, 1, acquired(&idem, &request, LEASE)).await;
    costs(&server, 1, lease.renew(LEASE)).await.unwrap();
    costs(&server, 1, lease.renew(2 * LEASE)).await.unwrap();
    costs(&server, 1, lease.release()).await.unwrap();
    let lease = acquired(&idem, &request, LEASE).await;
    assert_eq!(costs(&server, 1, lease.complete(7)).await.unwrap(), 7);
    // A stale holder's is refused by one, too.
    let other = open(&server.url()).await;
    let request = crate::setup::request("stale", "p");
    let lease = acquired(&idem, &request, Duration::from_millis(1)).await;
    acquired(&other, &request.wait_for(Duration::from_secs(20)), LEASE).await.abandon();
    assert!(costs(&server, 1, lease.complete(7)).await.is_err());
}

#[tokio::test]
async fn a_waiter_takes_over_when_the_lease_ends_by_the_servers_clock() {
    let server = Server::start().unwrap();
    let (idem, other) = (open(&server.url()).await, open(&server.url()).await);
    let request = request("k", "p");
    let holder = acquired(&idem, &request, Duration::from_millis(300)).await;
    let patient = request.wait_for(Duration::from_secs(20));
    // One that is woken by nobody.
    let next = acquired(&other, &patient, Duration::from_millis(300)).await;
    assert!(server_time(&server) >= holder.until().as_millis(), "not before its end");
    assert_eq!(next.took_over(), Some(holder.token()));
    // One whose front knows the holder.
    let last = acquired(&other, &patient, Duration::from_secs(600)).await;
    assert!(server_time(&server) >= next.until().as_millis(), "not before its end");
    assert_eq!(last.took_over(), Some(next.token()));
    holder.abandon();
}

#[tokio::test]
async fn a_dropped_lease_is_ended_by_the_servers_clock() {
    const LEASE: Duration = Duration::from_secs(600);
    let server = Server::start().unwrap();
    let (idem, other) = (open(&server.url()).await, open(&server.url()).await);
    let request = request("k", "p");
    let mut dropped = acquired(&idem, &request, LEASE).await;
    dropped.renew(2 * LEASE).await.unwrap();
    let (token, until) = (dropped.token(), dropped.until());
    drop(dropped);
    // One that is woken, and one that asks now and then.
    for waiter in [&idem, &other] {
        let patient = request.clone().wait_for(Duration::from_secs(20));
        let next = acquired(waiter, &patient, LEASE).await;
        assert!(next.token() > token && next.took_over() >= Some(token), "{next:?}");
        assert!(server_time(&server) < until.as_millis(), "long before its end");
        drop(next);
    }
}

#[tokio::test]
async fn a_lease_that_is_dropped_without_a_connection_is_ended_all_the_same() {
    const LEASE: Duration = Duration::from_secs(600);
    let server = Server::start().unwrap();
    let (idem, other) = (open(&server.url()).await, open(&server.url()).await);
    let patient = request("k", "p").wait_for(Duration::from_secs(20));
    let dropped = acquired(&idem, &request("k", "p"), LEASE).await;
    let token = dropped.token();
    let _: i64 = server.query(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).unwrap();
    drop(dropped);
    let next = acquired(&other, &patient, LEASE).await;
    assert_eq!(next.took_over(), Some(token));
    next.release().await.unwrap();
}

#[test]
fn a_lease_that_outlives_its_runtime_is_ended_all_the_same() {
    const LEASE: Duration = Duration::from_secs(600);
    let server = Server::start().unwrap();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let dropped = first.block_on(async {
        let idem = open(&server.url()).await;
        acquired(&idem, &request("k", "p"), LEASE).await
    });
    let token = dropped.token();
    drop(first);
    drop(dropped);
    runtime().block_on(async {
        let patient = request("k", "p").wait_for(Duration::from_secs(20));
        let next = acquired(&open(&server.url()).await, &patient, LEASE).await;
        assert_eq!(next.took_over(), Some(token));
    });
}

/// What a claim would be stamped with is looked at when the key is free, not before.
#[tokio::test]
async fn a_retention_that_no_clock_can_hold_is_refused_only_where_a_claim_would_run() {
    let server = Server::start().unwrap();
    let clock = ManualClock::at(START);
    let idem = open_with(RedisStore::builder().clock(clock), &server.url()).await;
    let request = request("k", "p");
    let endless = request.clone().retain(Duration::from_millis(i64::MAX.unsigned_abs()));
    let claim = || idem.claim::<u64>(&endless, Duration::from_secs(30));
    let refused = claim().await.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::InvalidDuration { field: "retention", .. }));
    let holder = acquired(&idem, &request, Duration::from_secs(30)).await;
    assert!(matches!(claim().await.unwrap(), Claim::InProgress { .. }));
    assert_eq!(holder.complete(7).await.unwrap(), 7);
    assert!(matches!(claim().await.unwrap(), Claim::Replayed(7)));
}
