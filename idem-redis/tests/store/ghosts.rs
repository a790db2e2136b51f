//! Requests that reach the server when nobody waits for them any more, and calls that nobody polls any more.

use std::{
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

use idem_core::{Change, ErrorKind, Outcome};
use idem_redis::testing::{Mode, Proxy, Server};

use crate::setup::{
    added, claimed, eventually, hasty, key, on_claim, open, open_with, put, put_first, value_of,
};

/// Waits until what the proxy held has reached the server: the connection that it came by is closed then, and those
/// of the two stores are left, and the one that asks.
async fn delivered(server: &Server) {
    let connections = || -> Option<u32> {
        let info: String = server.query(&["INFO", "clients"]).unwrap();
        info.lines().find_map(|line| line.strip_prefix("connected_clients:"))?.parse().ok()
    };
    eventually("the request that was held up", || connections() == Some(3)).await;
}

/// Makes `call` through a proxy that holds its first commit for nearly as long as it is valid, and cuts the
/// connection.
async fn held<T>(proxy: &Proxy, call: impl Future<Output = T>) -> T {
    proxy.set(Mode::HoldRequests(Duration::from_millis(800)));
    let held = proxy.counts().delayed;
    let cut = async {
        eventually("the request", || proxy.counts().delayed > held).await;
        proxy.set(Mode::Pass);
        proxy.disconnect();
    };
    tokio::join!(call, cut).0
}

#[tokio::test]
async fn a_request_that_was_held_up_does_not_bring_a_forgotten_key_back() {
    let server = Server::start().unwrap();
    let proxy = Proxy::before(&server).unwrap();
    let direct = open(&server.url()).await;
    let through =
        open_with(idem_redis::RedisStore::builder().speculative(true), &proxy.url()).await;
    put_first(&through, "warm").await;
    assert_eq!(held(&proxy, put(&through, "k")).await.unwrap(), Outcome::Created(1));
    assert!(direct.forget(&key("k")).await.unwrap());
    server.command(&["SET", "idem:{tnorth}:v:k", "later"]).unwrap();
    delivered(&server).await;
    assert_eq!(value_of(&server, "k").as_deref(), Some("later"));
    assert_eq!(direct.receipt(&key("k")).await.unwrap(), None);
}

#[tokio::test]
async fn a_claim_that_was_held_up_does_not_come_back_after_its_release() {
    let server = Server::start().unwrap();
    let proxy = Proxy::before(&server).unwrap();
    let direct = open(&server.url()).await;
    let through = open(&proxy.url()).await;
    claimed(&through, "warm").await;
    let claim = held(&proxy, claimed(&through, "k")).await;
    assert!(on_claim(&direct, "k", &claim, Change::Remove).await.unwrap().ran);
    delivered(&server).await;
    assert_eq!(added(&direct, "k").await.unwrap(), Outcome::Created(1));
}

#[tokio::test]
async fn a_call_that_is_not_polled_while_it_connects_stops_nobody() {
    let server = Server::start().unwrap();
    let proxy = Arc::new(Proxy::before(&server).unwrap());
    let idem = open_with(hasty(500), &proxy.url()).await;
    put_first(&idem, "warm").await;
    proxy.disconnect();
    // So that connecting takes some polls.
    proxy.set(Mode::DelayReplies(Duration::from_millis(100)));
    let key = key("a");
    let mut left = Box::pin(idem.receipt(&key));
    let connections = proxy.counts().connections;
    while proxy.counts().connections == connections {
        assert!(left.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        tokio::task::yield_now().await;
    }
    proxy.set(Mode::Pass);
    put_first(&idem, "b").await;
}

#[tokio::test]
async fn closing_does_not_wait_for_ever_for_a_call_that_is_not_polled() {
    let server = Server::start().unwrap();
    let idem = open_with(hasty(300), &server.url()).await;
    let key = key("a");
    let mut left = Box::pin(idem.receipt(&key));
    assert!(left.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let error = idem.close().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Busy { .. }), "{error:?}");
    let error = put(&idem, "b").await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Closed), "it is closed all the same: {error:?}");
}
