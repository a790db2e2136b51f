//! Receives that nobody waits for any more.

use std::time::Duration;

use idem_core::consumer::Queue;
use idem_redis::{
    streams::StreamQueue,
    testing::{Mode, Proxy, Server},
};
use tokio::task::JoinHandle;

use crate::setup::*;

/// Its connection is closed, so that the server gives it nothing.
#[tokio::test]
async fn a_receive_that_is_dropped_while_it_waits_takes_nothing() {
    let server = Server::start().unwrap();
    let queue = builder().block(Duration::from_secs(3_600)).open(&server.url()).await.unwrap();
    let waiting = spawn(&queue);
    eventually("the receive to wait", || is_waited_for(&server)).await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    eventually("the server to notice", || !is_waited_for(&server)).await;
    let id = send(&queue, 1).await;
    let delivery = one(&queue).await;
    assert_eq!((&delivery.message.id, delivery.attempt), (&id, 1));
}

/// What was on its way to it comes again: what is new, and what was left over.
#[tokio::test]
async fn what_a_dropped_receive_would_have_delivered_comes_again() {
    let server = Server::start().unwrap();
    let proxy = Proxy::before(&server).unwrap();
    let patient = builder().block(Duration::from_secs(3_600)).open(&proxy.url()).await.unwrap();
    let hasty = builder().open(&proxy.url()).await.unwrap();
    nothing_comes(&hasty).await;
    let waiting = spawn(&patient);
    eventually("the receive to wait", || is_waited_for(&server)).await;
    proxy.set(Mode::SwallowReplies);
    let id: String = server.query(&["XADD", "orders", "*", "number", "1"]).unwrap();
    let is_lost = async |attempt: u64, waiting: JoinHandle<_>| {
        let is_delivered = |entry: &InFlight| entry.3 == attempt;
        eventually("a delivery", || in_flight(&server).iter().any(is_delivered)).await;
        waiting.abort();
        age(&server, &id);
    };
    is_lost(1, waiting).await;
    is_lost(2, spawn(&hasty)).await;
    proxy.set(Mode::Pass);
    let delivery = one(&hasty).await;
    assert_eq!((&delivery.message.id, delivery.attempt), (&id, 3));
    hasty.ack(&delivery.tag).await.unwrap();
    assert!(in_flight(&server).is_empty());
}

fn spawn(queue: &StreamQueue) -> JoinHandle<Vec<Received>> {
    let queue = queue.clone();
    tokio::spawn(async move { queue.receive(10).await.unwrap() })
}
