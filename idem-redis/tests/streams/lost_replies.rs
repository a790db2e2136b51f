//! Replies that are lost: a call finds out what became of it, or says that it does not know.

use std::time::Duration;

use idem_core::{Certainty, Error, ErrorKind, consumer::Queue};
use idem_redis::{
    streams::StreamQueue,
    testing::{Mode, Proxy, Server},
};

use crate::setup::*;

async fn before(server: &Server) -> (Proxy, StreamQueue) {
    let proxy = Proxy::before(server).unwrap();
    let queue = builder().open(&proxy.url()).await.unwrap();
    // The server knows the scripts from now on.
    for number in 0..3 {
        send(&queue, number).await;
        let delivery = one(&queue).await;
        queue.ack(&delivery.tag).await.unwrap();
    }
    (proxy, queue)
}

/// Cuts the connection after the next requests that contain these bytes, before there can be an answer.
fn cut(times: usize, containing: &'static [u8]) -> Mode {
    Mode::CutAfterRequest { times, containing }
}

#[tokio::test]
async fn an_ack_that_was_done_is_found_done() {
    let server = Server::start().unwrap();
    let (proxy, queue) = before(&server).await;
    for times in [1, 2] {
        send(&queue, 1).await;
        let delivery = one(&queue).await;
        proxy.set(cut(times, b"EVALSHA"));
        queue.ack(&delivery.tag).await.unwrap();
        assert_eq!(proxy.mode(), Mode::Pass, "all cuts were made");
        assert!(in_flight(&server).is_empty());
        refused(queue.ack(&delivery.tag).await, &delivery.tag);
    }
}

#[tokio::test]
async fn what_was_given_back_is_found_given_back() {
    let server = Server::start().unwrap();
    let (proxy, queue) = before(&server).await;
    send(&queue, 1).await;
    let delivery = one(&queue).await;
    proxy.set(cut(2, b"EVALSHA"));
    queue.nack(&delivery.tag, &reason()).await.unwrap();
    assert_eq!(one(&queue).await.attempt, 2);
}

#[tokio::test]
async fn what_was_set_aside_is_set_aside_once() {
    let server = Server::start().unwrap();
    let (proxy, queue) = before(&server).await;
    send(&queue, 1).await;
    let delivery = one(&queue).await;
    proxy.set(cut(2, b"EVAL"));
    queue.set_aside(&delivery.tag, &reason()).await.unwrap();
    assert!(in_flight(&server).is_empty());
    let letters: u64 = server.query(&["XLEN", "orders:dead"]).unwrap();
    assert_eq!(letters, 1);
}

#[tokio::test]
async fn what_was_extended_is_in_flight() {
    let server = Server::start().unwrap();
    let (proxy, queue) = before(&server).await;
    let id = send(&queue, 1).await;
    let delivery = one(&queue).await;
    age(&server, &id);
    proxy.set(cut(2, b"EVALSHA"));
    queue.extend(&delivery.tag).await.unwrap();
    nothing_comes(&queue).await;
    queue.ack(&delivery.tag).await.unwrap();
}

/// Whoever takes over while an answer is lost has it: the late one is told so.
#[tokio::test]
async fn a_lost_answer_does_not_settle_what_another_has() {
    let server = Server::start().unwrap();
    let (proxy, queue) = before(&server).await;
    let other = open(&server).await;
    let id = send(&queue, 1).await;
    let delivery = one(&queue).await;
    age(&server, &id);
    let taken_over = one(&other).await;
    proxy.set(cut(1, b"EVALSHA"));
    refused(queue.ack(&delivery.tag).await, &delivery.tag);
    proxy.set(cut(1, b"EVALSHA"));
    refused(queue.set_aside(&delivery.tag, &reason()).await, &delivery.tag);
    proxy.set(cut(1, b"EVALSHA"));
    refused(queue.extend(&delivery.tag).await, &delivery.tag);
    other.ack(&taken_over.tag).await.unwrap();
}

#[tokio::test]
async fn deliveries_that_were_lost_come_again_and_are_counted() {
    let server = Server::start().unwrap();
    let (proxy, queue) = before(&server).await;
    let id = send(&queue, 1).await;
    proxy.set(cut(1, b"XREADGROUP"));
    nothing_comes(&queue).await;
    age(&server, &id);
    proxy.set(cut(1, b"EVALSHA"));
    nothing_comes(&queue).await;
    age(&server, &id);
    assert_eq!(one(&queue).await.attempt, 3);
}

/// What was taken over is delivered, though what is new cannot be read.
#[tokio::test]
async fn half_a_batch_is_delivered() {
    let server = Server::start().unwrap();
    let (_proxy, queue) = before(&server).await;
    let old = send(&queue, 1).await;
    one(&queue).await;
    age(&server, &old);
    send(&queue, 2).await;
    server.command(&["ACL", "SETUSER", "default", "-xreadgroup"]).unwrap();
    assert_eq!(one(&open(&server).await).await.message.id, old);
}

#[tokio::test]
async fn an_entry_whose_answer_is_lost_may_have_been_added() {
    let server = Server::start().unwrap();
    let (proxy, queue) = before(&server).await;
    proxy.set(cut(1, b"XADD"));
    let error = queue.send([("number", "1")]).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unreachable { .. }), "{error:?}");
    assert_eq!(error.certainty(), Certainty::Unknown);
    one(&queue).await;
    nothing_comes(&queue).await;
}

#[tokio::test]
async fn an_ack_whose_answer_cannot_be_asked_for_again_may_have_been_done() {
    let server = Server::start().unwrap();
    let proxy = Proxy::before(&server).unwrap();
    let hasty = builder().response_timeout(Duration::from_millis(500));
    let queue = hasty.open(&proxy.url()).await.unwrap();
    send(&queue, 1).await;
    let delivery = one(&queue).await;
    // From now on the server knows the script, so that the ack is one command.
    queue.extend(&delivery.tag).await.unwrap();
    proxy.set(cut(1, b"EVALSHA"));
    proxy.close();
    let error = queue.ack(&delivery.tag).await.unwrap_err();
    assert!(matches!(kind_of(&error), ErrorKind::Unreachable { .. }), "{error:?}");
    assert_eq!(error.downcast_ref::<Error>().unwrap().certainty(), Certainty::Unknown);
    assert!(in_flight(&server).is_empty(), "it was done");
}
