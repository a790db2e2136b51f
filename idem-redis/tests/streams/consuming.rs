//! The loop between a stream and a handler.

use std::sync::Arc;

use idem_core::{Idem, consumer::Recorder};
use idem_redis::{RedisStore, testing::Server};

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
