//! Replies that are lost or late: a call finds out what became of it, or says that it does not know.

use std::{sync::Arc, time::Duration};

use idem_core::{
    Certainty, Change, ErrorKind, ManualClock, Outcome, Purged, Store, Timestamp,
    consumer::{Marked, Recorder},
};
use idem_redis::{
    RedisStore, RedisTransaction,
    testing::{Mode, Moment, Proxy, Server},
};

use uuid::Uuid;

use crate::setup::*;

async fn before(server: &Server, speculative: bool) -> (Proxy, Front) {
    let proxy = Proxy::before(server).unwrap();
    let idem = open_with(hasty(5_000).speculative(speculative), &proxy.url()).await;
    (proxy, idem)
}

/// Sees that there is a connection, and that the server knows the script that commits.
async fn warm(idem: &Front) {
    let event = Uuid::new_v4().to_string();
    assert_eq!(idem.mark_processed("warm", &event).await.unwrap(), Marked::First);
}

/// Cuts the connection after the next requests that name a key, before there can be an answer.
fn cut(times: usize) -> Mode {
    Mode::CutAfterRequest { times, containing: b"idem:" }
}

#[tokio::test]
async fn an_execution_finds_its_own_commit() {
    for speculative in [false, true] {
        let server = Server::start().unwrap();
        let (proxy, idem) = before(&server, speculative).await;
        // Each number of requests is lost in turn: the looks, the commit, and what asks again.
        for (times, name) in [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")] {
            proxy.set(cut(times));
            assert_eq!(added(&idem, name).await.unwrap(), Outcome::Created(1), "{name}");
            assert_eq!(proxy.mode(), Mode::Pass, "all cuts were made");
            assert_eq!(added(&idem, name).await.unwrap(), Outcome::Replayed(1));
            assert_eq!(count(&idem, name).await, 1);
        }
    }
}

/// One request in turn is lost: the first look, the look with the value, the commit.
#[tokio::test]
async fn any_one_request_may_be_lost() {
    for speculative in [false, true] {
        for lost in 0..3 {
            let server = Server::start().unwrap();
            let (proxy, idem) = before(&server, speculative).await;
            let (proxy, runs) = (Arc::new(proxy), Runs::default());
            if lost == 0 {
                proxy.set(cut(1));
            }
            let cutting = proxy.clone();
            let effect = move |tx: &mut RedisTransaction| {
                // What comes after the run is lost.
                if runs.bump() == lost {
                    cutting.set(cut(1));
                }
                add(tx, "k")
            };
            let outcome = idem.execute(&request("k", "p"), effect).await;
            assert_eq!(outcome.unwrap(), Outcome::Created(1), "{lost}");
            assert_eq!(proxy.counts().cut, 1);
            assert_eq!(added(&idem, "k").await.unwrap(), Outcome::Replayed(1));
            assert_eq!(count(&idem, "k").await, 1);
        }
    }
}

#[tokio::test]
async fn a_mark_a_claim_and_a_forgetting_find_their_own_commits() {
    let server = Server::start().unwrap();
    let (proxy, idem) = before(&server, false).await;
    proxy.set(cut(1));
    assert_eq!(idem.mark_processed("billing", "7").await.unwrap(), Marked::First);
    assert_eq!(idem.mark_processed("billing", "7").await.unwrap(), Marked::Again);
    proxy.set(cut(1));
    let claim = claimed(&idem, "k").await;
    let stored = idem.list(None, 100).await.unwrap().records;
    let stored = stored.into_iter().find(|(found, _)| *found == key("k")).unwrap().1;
    assert_eq!(stored, claim, "the answer is the claim that was committed first");
    for times in [1, 2] {
        put_first(&idem, "f").await;
        proxy.set(cut(times));
        assert!(idem.forget(&key("f")).await.unwrap());
        assert!(!idem.forget(&key("f")).await.unwrap());
    }
    assert_eq!(proxy.counts().cut, 5);
}

#[tokio::test]
async fn a_lease_is_extended_completed_and_released_once() {
    let server = Server::start().unwrap();
    let (proxy, idem) = before(&server, false).await;
    let claim = claimed(&idem, "k").await;
    proxy.set(cut(1));
    let longer = Change::Extend { lease: lease(2 * LEASE) };
    let extended = as_holder(&idem, &key("k"), &claim, longer).await;
    assert!(extended.ran);
    let claim = extended.after.unwrap();
    proxy.set(cut(1));
    assert!(on_claim(&idem, "k", &claim, completion(&claim, "\"r\"")).await.unwrap().ran);
    assert_eq!(idem.receipt(&key("k")).await.unwrap().unwrap().result, "\"r\"");
    let claim = claimed(&idem, "released").await;
    proxy.set(cut(1));
    assert!(on_claim(&idem, "released", &claim, Change::Remove).await.unwrap().ran);
    assert!(claimed(&idem, "released").await.attempt != claim.attempt);
}

/// All answers are dropped until the caller gives up.
#[tokio::test]
async fn a_caller_that_hears_nothing_does_not_know() {
    let server = Server::start().unwrap();
    let proxy = Proxy::before(&server).unwrap();
    let idem = open_with(hasty_to_connect(300).speculative(true), &proxy.url()).await;
    for call in ["execution", "mark", "claim", "receipt"] {
        // It has a connection, since greetings are not answered either.
        warm(&idem).await;
        proxy.set(Mode::SwallowReplies);
        let error = match call {
            "execution" => put(&idem, "k").await.unwrap_err(),
            "mark" => idem.mark_processed("billing", "7").await.unwrap_err(),
            "claim" => claim(&idem, "c").await.unwrap_err(),
            _ => idem.receipt(&key("k")).await.unwrap_err(),
        };
        proxy.set(Mode::Pass);
        assert!(matches!(error.kind(), ErrorKind::Unreachable { .. }), "{call}: {error}");
        // Of a read, nothing is done in any case.
        let reads = call == "receipt";
        let expected = if reads { Certainty::NothingDone } else { Certainty::Unknown };
        assert_eq!(error.certainty(), expected, "{call}: {error}");
    }
    assert_eq!(put(&idem, "k").await.unwrap(), Outcome::Replayed(1));
    assert_eq!(idem.mark_processed("billing", "7").await.unwrap(), Marked::Again);
}

#[tokio::test]
async fn a_late_answer_is_waited_for_or_found() {
    let server = Server::start().unwrap();
    let proxy = Arc::new(Proxy::before(&server).unwrap());
    let idem = open_with(hasty(1_000), &proxy.url()).await;
    proxy.set(Mode::DelayReplies(Duration::from_millis(50)));
    assert_eq!(added(&idem, "soon").await.unwrap(), Outcome::Created(1));
    // Longer than a caller waits for one answer, and only that to the commit.
    let runs = Runs::default();
    let before = proxy.counts().delayed;
    let (delayed, counter) = (proxy.clone(), runs.clone());
    let late = request("late", "p");
    let call = idem.execute(&late, move |tx| {
        if counter.bump() == 1 {
            delayed.set(Mode::DelayReplies(Duration::from_millis(1_500)));
        }
        put_one(tx, "late")
    });
    let passes = async {
        eventually("a late answer", || runs.get() > 0 && proxy.counts().delayed > before + 1).await;
        proxy.set(Mode::Pass);
    };
    let (outcome, ()) = tokio::join!(call, passes);
    assert_eq!(outcome.unwrap(), Outcome::Created(1));
    assert_eq!(runs.get(), 1, "it found its own commit and did not run again");
    assert_eq!(put(&idem, "late").await.unwrap(), Outcome::Replayed(1));
    assert_eq!(proxy.counts().connections, 2);
}

/// A request that reaches the server when its caller has given up must not come into force.
#[tokio::test]
async fn a_request_that_comes_too_late_does_nothing() {
    let server = Server::start().unwrap();
    let proxy = Proxy::before(&server).unwrap();
    let idem = open_with(hasty_to_connect(200), &proxy.url()).await;
    warm(&idem).await;
    let before = proxy.counts().requests;
    proxy.set(Mode::HoldRequests(Duration::from_millis(900)));
    let error = idem.mark_processed("billing", "7").await.unwrap_err();
    assert_eq!(error.certainty(), Certainty::Unknown, "{error}");
    // Every one that was held has arrived: the greetings of new connections are among them.
    proxy.set(Mode::Pass);
    let held = proxy.counts().delayed;
    assert!(held > 0);
    eventually("the held requests", || proxy.counts().requests >= before + held).await;
    // The server works one connection's requests off in order, but not those of different ones.
    eventually("the held connections to end", || {
        let clients: String = server.query(&["CLIENT", "LIST", "TYPE", "normal"]).unwrap();
        clients.lines().count() <= 2
    })
    .await;
    assert!(!idem.is_processed("billing", "7").await.unwrap());
    assert_eq!(idem.mark_processed("billing", "7").await.unwrap(), Marked::First);
}

/// A server that cannot be reached any more after the request went through.
#[tokio::test]
async fn a_network_that_is_gone_for_good_leaves_it_unknown() {
    let server = Server::start().unwrap();
    let proxy = Proxy::before(&server).unwrap();
    let idem = open_with(hasty_to_connect(300), &proxy.url()).await;
    warm(&idem).await;
    proxy.close();
    proxy.set(cut(1));
    let error = idem.mark_processed("billing", "7").await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unreachable { .. }), "{error}");
    assert_eq!(error.certainty(), Certainty::Unknown);
    // Nothing of the next call was sent.
    let error = idem.mark_processed("billing", "8").await.unwrap_err();
    assert_eq!(error.certainty(), Certainty::NothingDone, "{error}");
    proxy.open().unwrap();
    assert_eq!(idem.mark_processed("billing", "7").await.unwrap(), Marked::Again);
    assert_eq!(idem.mark_processed("billing", "8").await.unwrap(), Marked::First);
    idem.store().close().await.unwrap();
}

/// Completed, its answer lost, and forgotten by somebody else before it could be found: nobody can tell any more, and
/// least of all that nothing was done.
#[tokio::test]
async fn a_completion_that_is_forgotten_before_it_is_found_is_unknown() {
    let server = Server::start().unwrap();
    let (proxy, idem) = before(&server, false).await;
    warm(&idem).await;
    let direct = open(&server.url()).await;
    let lease = idem.claim::<u64>(&request("a", "p"), LEASE).await.unwrap().lease().unwrap();
    proxy.set(Mode::CutAfterRequest { times: 1, containing: b"completed" });
    proxy.close();
    let completing = tokio::spawn(lease.complete_with(|tx| add(tx, "a")));
    let receipt = async || direct.receipt(&key("a")).await.unwrap();
    within("the commit", async {
        while receipt().await.is_none() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(direct.forget(&key("a")).await.unwrap());
    proxy.open().unwrap();
    let error = within("the answer", completing).await.unwrap().unwrap_err();
    assert_eq!(error.error().certainty(), Certainty::Unknown, "{error:?}");
    assert_eq!(count(&idem, "a").await, 1);
}

#[tokio::test]
async fn a_purge_whose_connection_was_opened_again_says_that_there_may_be_more() {
    const KEYS: usize = 1_500;
    let server = Server::start().unwrap();
    let proxy = Proxy::before(&server).unwrap();
    let clock = ManualClock::at(Timestamp::from_millis(1_000_000));
    let builder = RedisStore::builder().clock(clock.clone()).speculative(true);
    let idem = open_with(builder, &proxy.url()).await;
    for number in 0..KEYS {
        let made = idem.execute(&request(&number.to_string(), "p"), |_| Ok(1)).await.unwrap();
        assert_eq!(made, Outcome::Created(1));
    }
    clock.advance(Duration::from_secs(30 * 24 * 60 * 60));
    // After the first of several batches; the server might have been started again.
    proxy.set(Mode::CutAt { request: 3, moment: Moment::BeforeRequest, lasts: false });
    let first = idem.purge(2 * KEYS).await.unwrap();
    assert_eq!(proxy.mode(), Mode::Pass, "it was cut");
    assert_eq!(first, Purged::new(KEYS, true));
    assert_eq!(idem.purge(2 * KEYS).await.unwrap(), Purged::new(0, false));
}
