//! What was left in flight comes again.

use std::time::{Duration, Instant};

use idem_core::consumer::Queue;
use idem_redis::testing::Server;

use crate::setup::*;

#[tokio::test]
async fn what_is_in_flight_for_too_long_comes_again_and_is_counted() {
    let server = Server::start().unwrap();
    let (a, b) = (open(&server).await, open(&server).await);
    let id = send(&a, 1).await;
    let first = one(&a).await;
    nothing_comes(&b).await;
    age(&server, &id);
    let second = one(&b).await;
    assert_eq!((second.attempt, &second.message), (2, &first.message));
    nothing_comes(&a).await;
    age(&server, &id);
    assert_eq!(one(&a).await.attempt, 3);
    age(&server, &id);
    assert_eq!(one(&a).await.attempt, 4, "also from itself");
}

#[tokio::test]
async fn a_visibility_is_waited_for() {
    let server = Server::start().unwrap();
    let visibility = Duration::from_millis(60);
    let short = builder().visibility(visibility).open(&server.url()).await.unwrap();
    let long = open(&server).await;
    assert_eq!(short.visibility(), Some(visibility));
    send(&short, 1).await;
    let sent = Instant::now();
    one(&long).await;
    let mut again = Vec::new();
    within("the visibility to pass", async {
        while again.is_empty() {
            again = short.receive(1).await.unwrap();
        }
    })
    .await;
    assert!(sent.elapsed() >= visibility);
    assert_eq!(again[0].attempt, 2);
    nothing_comes(&long).await;
}

#[tokio::test]
async fn what_was_left_over_comes_before_what_is_new() {
    let server = Server::start().unwrap();
    let queue = open(&server).await;
    let mut sent = Vec::new();
    for number in 0..5 {
        sent.push(send(&queue, number).await);
    }
    queue.receive(3).await.unwrap();
    age(&server, &sent[1]);
    age(&server, &sent[2]);
    let received = queue.receive(3).await.unwrap();
    assert_eq!(ids(&received), [&*sent[1], &sent[2], &sent[3]]);
    let attempts: Vec<_> = received.iter().map(|delivery| delivery.attempt).collect();
    assert_eq!(attempts, [2, 2, 1]);
}

/// As many as are taken at once are given back each time.
#[tokio::test]
async fn what_fails_for_ever_does_not_stop_what_is_new() {
    let server = Server::start().unwrap();
    let queue = open(&server).await;
    let poison = send(&queue, 0).await;
    let mut sent = Vec::new();
    for number in 1..4 {
        sent.push(send(&queue, number).await);
    }
    let mut received = Vec::new();
    for _ in 0..8 {
        for delivery in queue.receive(1).await.unwrap() {
            if delivery.message.id == poison {
                queue.nack(&delivery.tag, &reason()).await.unwrap();
            } else {
                queue.ack(&delivery.tag).await.unwrap();
                received.push(delivery.message.id);
            }
        }
    }
    assert_eq!(received, sent);
    assert_eq!(one(&queue).await.message.id, poison);
}

#[tokio::test]
async fn an_entry_that_was_deleted_is_passed_over() {
    let server = Server::start().unwrap();
    let queue = open(&server).await;
    let (deleted, kept) = (send(&queue, 1).await, send(&queue, 2).await);
    assert_eq!(queue.receive(10).await.unwrap().len(), 2);
    server.command(&["XDEL", "orders", &deleted]).unwrap();
    let hasty = builder().visibility(Duration::from_millis(1)).open(&server.url()).await.unwrap();
    eventually("both to be old", || in_flight(&server).iter().all(|entry| entry.2 >= 1)).await;
    assert_eq!(one(&hasty).await.message.id, kept);
    assert_eq!(in_flight(&server).len(), 1);
}

/// More are in flight than are gone through at once.
#[tokio::test]
async fn an_old_entry_is_found_among_many() {
    let server = Server::start().unwrap();
    let (a, b) = (open(&server).await, open(&server).await);
    for number in 1..=3_000 {
        server.command(&["XADD", "orders", &format!("{number}-1"), "n", "1"]).unwrap();
    }
    for _ in 0..3 {
        assert_eq!(a.receive(1_000).await.unwrap().len(), 1_000);
    }
    let mut found = Vec::new();
    for old in ["3000-1", "1-1", "1500-1"] {
        age(&server, old);
        let mut receives = 0;
        while found.last().is_none_or(|last| last != old) {
            found.extend(ids(&b.receive(1).await.unwrap()));
            receives += 1;
        }
        assert!(receives <= 4, "{old} was found after {receives}");
    }
    assert_eq!(found, ["3000-1", "1-1", "1500-1"]);
}

/// The search goes on where it was, and begins anew when it comes to the end.
#[tokio::test]
async fn an_old_entry_is_found_before_the_last_one_that_was() {
    let server = Server::start().unwrap();
    let (a, b) = (open(&server).await, open(&server).await);
    let mut sent = Vec::new();
    for number in 0..3 {
        sent.push(send(&a, number).await);
    }
    a.receive(3).await.unwrap();
    for old in [1, 0] {
        age(&server, &sent[old]);
        assert_eq!(ids(&b.receive(1).await.unwrap()), [&*sent[old]]);
    }
}

/// More than one look is needed for them.
#[tokio::test]
async fn no_more_old_entries_are_taken_over_than_asked_for() {
    let server = Server::start().unwrap();
    let (a, b) = (open(&server).await, open(&server).await);
    let mut sent = Vec::new();
    for number in 0..60 {
        sent.push(send(&a, number).await);
    }
    a.receive(60).await.unwrap();
    for old in [0, 57, 58, 59] {
        age(&server, &sent[old]);
    }
    assert_eq!(ids(&b.receive(2).await.unwrap()), [&*sent[0], &sent[57]]);
    assert_eq!(ids(&b.receive(3).await.unwrap()), [&*sent[58], &sent[59]]);
}
