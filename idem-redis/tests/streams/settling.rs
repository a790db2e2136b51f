//! Who may settle a delivery, and how often.

use idem_core::{BoxError, consumer::Queue};
use idem_redis::{
    streams::{StreamQueue, Tag},
    testing::Server,
};

use crate::setup::*;

#[derive(Clone, Copy, Debug)]
enum How {
    Ack,
    Nack,
    SetAside,
    Extend,
}

const ALL: [How; 4] = [How::Ack, How::Nack, How::SetAside, How::Extend];

async fn settle(queue: &StreamQueue, tag: &Tag, how: How) -> Result<(), BoxError> {
    match how {
        How::Ack => queue.ack(tag).await,
        How::Nack => queue.nack(tag, &reason()).await,
        How::SetAside => queue.set_aside(tag, &reason()).await,
        How::Extend => queue.extend(tag).await,
    }
}

/// Neither who has it in flight nor its count has changed, and no dead letter was written.
fn unchanged(server: &Server, before: &InFlight) {
    let after = &in_flight(server)[0];
    assert_eq!((&after.0, &after.1, after.3), (&before.0, &before.1, before.3));
    assert!(!server.query::<bool>(&["EXISTS", "orders:dead"]).unwrap());
}

#[tokio::test]
async fn a_delivery_that_another_took_over_is_settled_by_the_other_alone() {
    for how in ALL {
        let server = Server::start().unwrap();
        let (a, b) = (open(&server).await, open(&server).await);
        let id = send(&a, 1).await;
        let late = one(&a).await;
        age(&server, &id);
        let taken_over = one(&b).await;
        let before = in_flight(&server).remove(0);
        for late_how in ALL {
            refused(settle(&a, &late.tag, late_how).await, &late.tag);
            unchanged(&server, &before);
        }
        settle(&b, &taken_over.tag, how).await.unwrap();
    }
}

/// The consumer is the same: the count tells the deliveries apart.
#[tokio::test]
async fn an_earlier_delivery_to_the_same_consumer_is_settled_no_more() {
    for how in ALL {
        let server = Server::start().unwrap();
        let queue = open(&server).await;
        let id = send(&queue, 1).await;
        let earlier = one(&queue).await;
        age(&server, &id);
        let later = one(&queue).await;
        let before = in_flight(&server).remove(0);
        for late_how in ALL {
            refused(settle(&queue, &earlier.tag, late_how).await, &earlier.tag);
            unchanged(&server, &before);
        }
        settle(&queue, &later.tag, how).await.unwrap();
    }
}

#[tokio::test]
async fn a_delivery_is_settled_once() {
    for first in [How::Ack, How::Nack, How::SetAside] {
        let server = Server::start().unwrap();
        let queue = open(&server).await;
        send(&queue, 1).await;
        let delivery = one(&queue).await;
        settle(&queue, &delivery.tag, first).await.unwrap();
        let (before, letters) = (in_flight(&server), dead_letters(&server));
        for again in ALL {
            refused(settle(&queue, &delivery.tag, again).await, &delivery.tag);
        }
        let owners =
            |entries: Vec<InFlight>| entries.into_iter().map(|(id, owner, ..)| (id, owner));
        assert!(owners(in_flight(&server)).eq(owners(before)), "after {first:?}");
        assert_eq!(dead_letters(&server), letters);
    }
}

fn dead_letters(server: &Server) -> u64 {
    server.query(&["XLEN", "orders:dead"]).unwrap()
}

#[tokio::test]
async fn what_was_given_back_comes_at_once_and_is_counted_once() {
    let server = Server::start().unwrap();
    let (a, b) = (open(&server).await, open(&server).await);
    let id = send(&a, 1).await;
    for attempt in [1, 3] {
        let delivery = one(&a).await;
        assert_eq!(delivery.attempt, attempt);
        a.nack(&delivery.tag, &reason()).await.unwrap();
        let again = one(&b).await;
        assert_eq!((&again.message.id, again.attempt), (&id, attempt + 1));
        b.nack(&again.tag, &reason()).await.unwrap();
    }
    let delivery = one(&b).await;
    b.ack(&delivery.tag).await.unwrap();
    assert!(in_flight(&server).is_empty());
}

#[tokio::test]
async fn what_is_extended_stays_in_flight() {
    let server = Server::start().unwrap();
    let (a, b) = (open(&server).await, open(&server).await);
    let id = send(&a, 1).await;
    let delivery = one(&a).await;
    for _ in 0..3 {
        age(&server, &id);
        a.extend(&delivery.tag).await.unwrap();
        nothing_comes(&b).await;
    }
    assert_eq!(in_flight(&server)[0].3, 1, "it is no delivery");
    a.ack(&delivery.tag).await.unwrap();
}

#[tokio::test]
async fn an_entry_that_was_deleted_can_be_acked_and_not_kept() {
    for (how, is_taken) in [(How::Ack, true), (How::Extend, false), (How::Nack, true)] {
        let server = Server::start().unwrap();
        let queue = open(&server).await;
        let id = send(&queue, 1).await;
        let delivery = one(&queue).await;
        server.command(&["XDEL", "orders", &id]).unwrap();
        let settled = settle(&queue, &delivery.tag, how).await;
        if is_taken {
            settled.unwrap();
        } else {
            refused(settled, &delivery.tag);
        }
        assert!(in_flight(&server).is_empty());
        nothing_comes(&queue).await;
    }
}

#[tokio::test]
async fn without_its_group_nothing_is_in_flight() {
    for how in ALL {
        for command in [&["DEL", "orders"][..], &["XGROUP", "DESTROY", "orders", "billing"]] {
            let server = Server::start().unwrap();
            let queue = open(&server).await;
            send(&queue, 1).await;
            let delivery = one(&queue).await;
            server.command(command).unwrap();
            refused(settle(&queue, &delivery.tag, how).await, &delivery.tag);
        }
    }
}

#[tokio::test]
async fn scripts_that_the_server_forgot_are_sent_again() {
    for how in ALL {
        let server = Server::start().unwrap();
        let queue = open(&server).await;
        send(&queue, 1).await;
        server.command(&["SCRIPT", "FLUSH"]).unwrap();
        let delivery = one(&queue).await;
        server.command(&["SCRIPT", "FLUSH"]).unwrap();
        settle(&queue, &delivery.tag, how).await.unwrap();
    }
}
