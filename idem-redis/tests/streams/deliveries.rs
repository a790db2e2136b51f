//! What is delivered, to whom, and how often.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use idem_core::{ErrorKind, Key, consumer::Queue};
use idem_redis::{streams::StreamQueue, testing::Server};

use crate::setup::*;

#[tokio::test]
async fn an_entry_is_delivered_as_it_was_sent_and_gone_after_its_ack() {
    let server = Server::start().unwrap();
    let queue = open(&server).await;
    nothing_comes(&queue).await;
    let fields: [(&[u8], &[u8]); 3] = [(b"a", b"1"), (b"\xff\0", b""), (b"a", b"2")];
    let id = queue.send(fields).await.unwrap();
    let delivery = one(&queue).await;
    let expected: Vec<_> =
        fields.map(|(name, value)| (Bytes::from(name), Bytes::from(value))).into();
    assert_eq!((&delivery.message.id, &delivery.message.fields), (&id, &expected));
    assert_eq!((&delivery.event_id, delivery.attempt), (&id, 1));
    assert_eq!(delivery.message.field("a"), Some(&Bytes::from("1")), "the first of that name");
    assert_eq!(delivery.message.field(b"\xff\0"), Some(&Bytes::new()));
    assert_eq!(delivery.message.field("b"), None);
    nothing_comes(&queue).await;
    assert_eq!(in_flight(&server)[0].1, queue.consumer());
    queue.ack(&delivery.tag).await.unwrap();
    assert!(in_flight(&server).is_empty());
    nothing_comes(&queue).await;
    let length: u64 = server.query(&["XLEN", "orders"]).unwrap();
    assert_eq!(length, 1, "an ack leaves the entry to other groups");
}

#[tokio::test]
async fn what_was_sent_before_the_group_was_made_is_delivered() {
    let server = Server::start().unwrap();
    server.command(&["XADD", "orders", "7-1", "number", "1"]).unwrap();
    let queue = open(&server).await;
    assert_eq!(one(&queue).await.event_id, "7-1");
    let other = StreamQueue::builder("orders", "shipping").open(&server.url()).await.unwrap();
    assert_eq!(one(&other).await.event_id, "7-1", "each group has its own deliveries");
}

#[tokio::test]
async fn each_entry_goes_to_one_of_a_groups_consumers() {
    let server = Server::start().unwrap();
    let (a, b) = (open(&server).await, open(&server).await);
    assert_ne!(a.consumer(), b.consumer());
    let mut sent = Vec::new();
    for number in 0..6 {
        sent.push(send(&a, number).await);
    }
    let (first, second) = (a.receive(4).await.unwrap(), b.receive(4).await.unwrap());
    assert_eq!(ids(&first), sent[..4]);
    assert_eq!(ids(&second), sent[4..]);
    for (queue, received) in [(&a, first), (&b, second)] {
        for delivery in received {
            queue.ack(&delivery.tag).await.unwrap();
        }
    }
    assert!(in_flight(&server).is_empty());
}

#[tokio::test]
async fn a_batch_is_no_larger_than_asked_for() {
    let server = Server::start().unwrap();
    let queue = open(&server).await;
    for number in 0..1_003 {
        server.command(&["XADD", "orders", &format!("{}-1", number + 1), "n", "1"]).unwrap();
    }
    assert_eq!(queue.receive(0).await.unwrap(), []);
    assert_eq!(queue.receive(2).await.unwrap().len(), 2);
    assert_eq!(queue.receive(usize::MAX).await.unwrap().len(), 1_000, "the most at once");
    assert_eq!(queue.receive(usize::MAX).await.unwrap().len(), 1);
    nothing_comes(&queue).await;
}

#[tokio::test]
async fn a_field_tells_the_event() {
    let server = Server::start().unwrap();
    let queue = builder().event_id_field("event").open(&server.url()).await.unwrap();
    let long = "e".repeat(256);
    let sent: [(&str, &[u8]); 7] = [
        ("event", b"a"),
        ("event", b"a"),
        ("other", b"a"),
        ("event", b""),
        ("event", b"\xff"),
        ("event", b"a\nb"),
        ("event", long.as_bytes()),
    ];
    for field in sent {
        queue.send([field]).await.unwrap();
    }
    let received = queue.receive(10).await.unwrap();
    let events: Vec<_> = received.iter().map(|delivery| &*delivery.event_id).collect();
    assert_eq!(events, ["a", "a", "", "", "", "a\nb", &long]);
    for event in &events[2..] {
        let error = Key::event("ledger", event).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::InvalidKey { field: "event id", .. }));
    }
}

#[tokio::test]
async fn who_waits_holds_up_nobody_and_is_woken() {
    let server = Server::start().unwrap();
    // Nobody would wait that long in this test.
    let queue = builder().block(Duration::from_secs(3_600)).open(&server.url()).await.unwrap();
    let queue = Arc::new(queue);
    send(&queue, 1).await;
    let first = one(&queue).await;
    let waiting = [1, 2].map(|_| {
        let queue = Arc::clone(&queue);
        tokio::spawn(async move { queue.receive(1).await.unwrap() })
    });
    eventually("both to wait", || {
        let clients: String = server.query(&["INFO", "clients"]).unwrap();
        clients.contains("blocked_clients:2\r\n")
    })
    .await;
    within("an ack", queue.ack(&first.tag)).await.unwrap();
    let mut sent = vec![send(&queue, 2).await, send(&queue, 3).await];
    for waiter in waiting {
        let received = joined("who waits", waiter).await;
        sent.retain(|id| *id != received[0].message.id);
    }
    assert!(sent.is_empty(), "each got one");
}

#[tokio::test]
async fn a_receive_waits_as_long_as_told() {
    let server = Server::start().unwrap();
    let block = Duration::from_millis(30);
    let queue = builder().block(block).open(&server.url()).await.unwrap();
    let started = std::time::Instant::now();
    nothing_comes(&queue).await;
    assert!(started.elapsed() >= block);
    assert_eq!(queue.visibility(), Some(Duration::from_secs(30)));
    assert_eq!(queue.horizon(), None);
}

#[tokio::test]
async fn a_receive_may_wait_for_longer_than_an_answer_may_take() {
    let server = Server::start().unwrap();
    let (block, response) = (Duration::from_millis(700), Duration::from_millis(300));
    let queue = builder().block(block).response_timeout(response);
    nothing_comes(&queue.open(&server.url()).await.unwrap()).await;
}
