//! Servers that do not answer: no caller waits for longer than it was promised.

use std::{
    net::TcpListener,
    time::{Duration, Instant},
};

use idem_core::{Certainty, ErrorKind, consumer::Recorder};
use idem_redis::testing::Server;

use crate::setup::*;

#[tokio::test]
async fn a_port_where_nobody_listens_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = hasty(50).open(&format!("redis://{address}")).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unreachable { .. }), "{error:?}");
    assert_eq!(error.certainty(), Certainty::NothingDone);
}

#[tokio::test]
async fn a_server_that_stands_still_is_unreachable_when_opening() {
    let server = Server::start().unwrap();
    server.pause().unwrap();
    let error = hasty(100).open(&server.url()).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unreachable { .. }), "{error:?}");
    server.resume().unwrap();
    put_first(&open(&server.url()).await, "k").await;
}

/// Each of many callers waits for its own time, not for that of those before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_do_not_wait_for_each_others_connections() {
    let server = Server::start().unwrap();
    let idem = open_with(hasty(200), &server.url()).await;
    server.pause().unwrap();
    let started = Instant::now();
    let calls = (0..32).map(|number| {
        let idem = idem.clone();
        async move { idem.mark_processed("billing", &number.to_string()).await }
    });
    for answer in together(calls).await {
        assert!(matches!(answer.unwrap_err().kind(), ErrorKind::Unreachable { .. }));
    }
    // One answer, patience, and a connection under way at its end: 200 ms each.
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    server.resume().unwrap();
    put_first(&idem, "k").await;
}
