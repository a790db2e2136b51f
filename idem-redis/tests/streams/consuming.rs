//! The loop between a stream and a handler.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use idem_core::{
    BoxError, Idem,
    consumer::{Handler, Options, Queue, Recorder, consume},
};
use idem_redis::{RedisStore, streams::Message, testing::Server};
use tokio::sync::{Notify, Semaphore};

use crate::setup::*;

#[tokio::test]
async fn each_event_is_counted_once_however_often_it_was_sent() {
    let server = Server::start().unwrap();
    let idem = Idem::new(RedisStore::open(&server.url()).await.unwrap());
    let mut workers = Vec::new();
    for _ in 0..3 {
        let queue = builder().event_id_field("event").open(&server.url()).await.unwrap();
        workers.push(Arc::new(queue));
    }
    for number in 0..40 {
        for _ in 0..2 {
            workers[0].send([("event", format!("e{number}"))]).await.unwrap();
        }
    }
    let mut tasks = Vec::new();
    for queue in workers {
        let handler = ledger(&idem);
        tasks.push(tokio::spawn(async move { consumed(&*queue, &handler).await.unwrap() }));
    }
    let (mut ran, mut duplicates) = (0, 0);
    for task in tasks {
        let consumed = joined("a worker", task).await;
        ran += consumed.ran;
        duplicates += consumed.duplicates;
        assert_eq!(consumed.failed, 0);
    }
    assert_eq!((ran, duplicates), (40, 40));
    for number in 0..40 {
        assert_eq!(counted(&idem, &format!("e{number}")).await, 1);
    }
    assert!(in_flight(&server).is_empty());
}

#[tokio::test]
async fn an_entry_that_no_handler_takes_does_not_stop_the_others() {
    let server = Server::start().unwrap();
    let idem = Idem::new(RedisStore::open(&server.url()).await.unwrap());
    let queue = builder().event_id_field("event").open(&server.url()).await.unwrap();
    let poison = queue.send([("another field", "1")]).await.unwrap();
    for event in ["a", "b"] {
        queue.send([("event", event)]).await.unwrap();
    }
    let consumed = within("the queue", consumed(&queue, &ledger(&idem))).await.unwrap();
    assert_eq!((consumed.ran, consumed.set_aside), (2, 1), "{consumed:?}");
    for event in ["a", "b"] {
        assert_eq!(counted(&idem, event).await, 1);
        assert!(idem.is_processed("ledger", event).await.unwrap());
    }
    assert!(in_flight(&server).is_empty());
    let letters: Vec<(String, Vec<String>)> =
        server.query(&["XRANGE", "orders:dead", "-", "+"]).unwrap();
    assert_eq!(letters.len(), 1);
    let fields: Vec<&str> = letters[0].1.iter().map(String::as_str).collect();
    assert_eq!(fields[2..4], ["idem:id", &poison], "it is there to be seen");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_outlive_the_visibility_and_the_end_finishes_what_runs() {
    let server = Server::start().unwrap();
    let idem = Idem::new(RedisStore::open(&server.url()).await.unwrap());
    let visibility = Duration::from_millis(300);
    let of_events = || builder().event_id_field("event").visibility(visibility);
    let queue = of_events().consumer("worker").open(&server.url()).await.unwrap();
    let other = of_events().consumer("other").open(&server.url()).await.unwrap();
    // Eight deliveries: four run, and four wait for their turns.
    let send_twice = async |events: std::ops::Range<u32>| {
        for event in events.clone().chain(events) {
            other.send([("event", format!("e{event}"))]).await.unwrap();
        }
    };
    send_twice(0..4).await;
    let (runs, open) = (Arc::new(Mutex::new(BTreeMap::new())), Arc::new(Semaphore::new(0)));
    let handle = {
        let (runs, open) = (Arc::clone(&runs), Arc::clone(&open));
        move |message: Message| {
            let (runs, open) = (Arc::clone(&runs), Arc::clone(&open));
            async move {
                let event = message.field("event").ok_or("it has an event")?.clone();
                *runs.lock().unwrap().entry(event).or_insert(0) += 1;
                open.acquire().await?.forget();
                Ok::<(), BoxError>(())
            }
        }
    };
    let handler = Arc::new(Handler::outside(&idem, "billing", handle).unwrap());
    let end = Arc::new(Notify::new());
    let consuming = tokio::spawn({
        let (queue, handler, end) = (queue.clone(), Arc::clone(&handler), Arc::clone(&end));
        async move {
            let options = Options::new().concurrency(8);
            consume(&queue, &handler, &options, end.notified()).await.unwrap()
        }
    });
    eventually("the handlers", || runs.lock().unwrap().len() == 4 && in_flight(&server).len() == 8)
        .await;
    let since = Instant::now();
    while since.elapsed() < 3 * visibility {
        assert_eq!(other.receive(8).await.unwrap(), [], "what is in hand is nobody else's");
    }
    assert!(!queue.close().await.unwrap(), "something is pending with it");
    send_twice(3..6).await;
    end.notify_one();
    // What it has not begun is given back at the latest when what runs has ended.
    open.add_permits(4);
    let first = joined("the end", consuming).await;
    assert_eq!((first.ran, first.given_back, first.duplicates), (4, 4, 0));
    assert_eq!((first.queue_failures, first.lost), (0, 0), "{first:?}");
    assert!(in_flight(&server).iter().all(|entry| entry.1 == "idem:given-back"));
    assert!(queue.close().await.unwrap() && queue.close().await.unwrap());
    open.add_permits(2);
    let rest = within("the rest", consumed(&other, &handler)).await.unwrap();
    // Four that were given back, two of an event that was done, and one of each new event.
    assert_eq!((rest.ran, rest.duplicates, rest.failed), (2, 8, 0));
    let runs = runs.lock().unwrap().clone();
    assert!(runs.len() == 6 && runs.values().all(|runs| *runs == 1), "{runs:?}");
    assert!(in_flight(&server).is_empty());
    assert!(other.close().await.unwrap());
    let info = format!("{:?}", server.command(&["XINFO", "CONSUMERS", "orders", "billing"]));
    assert!(!info.contains("worker") && !info.contains("other"), "{info}");
}
