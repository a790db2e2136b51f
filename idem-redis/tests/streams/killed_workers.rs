//! Workers that are killed: this test runs itself as a child. Whatever the instant, each event is counted once.
//!
//! The environment variable `IDEM_ROUNDS` says how often.

use std::{
    env,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use async_trait::async_trait;
use idem_conformance::{
    chance::{rounds, seed},
    child::{Child, hear, say},
};
use idem_core::{
    BoxError, Error, Idem,
    consumer::{Delivery, Queue},
};
use idem_redis::{
    RedisStore,
    streams::{Message, StreamQueue, Tag},
    testing::Server,
};

use crate::setup::*;

const URL: &str = "IDEM_STREAMS_TEST_URL";
const STANDS_STILL_AT: &str = "IDEM_STREAMS_TEST_STANDS_STILL_AT";
/// Events of a round, each of which is sent twice.
const EVENTS: u64 = 5;

async fn worker(url: &str) -> StreamQueue {
    let queue = builder().event_id_field("event").visibility(Duration::from_millis(100));
    queue.open(url).await.unwrap()
}

async fn store(url: &str) -> Idem<RedisStore> {
    Idem::new(RedisStore::open(url).await.unwrap())
}

/// Says what it does, and stands still between a commit and its ack.
struct Talking {
    queue: StreamQueue,
    acks: AtomicU64,
    stands_still_at: u64,
}

#[async_trait]
impl Queue for Talking {
    type Message = Message;
    type Tag = Tag;

    async fn receive(&self, max: usize) -> Result<Vec<Delivery<Message, Tag>>, BoxError> {
        let received = self.queue.receive(max).await?;
        for delivery in &received {
            say(&format!("received {}", delivery.event_id));
        }
        Ok(received)
    }

    async fn ack(&self, tag: &Tag) -> Result<(), BoxError> {
        say("handled");
        if self.acks.fetch_add(1, Ordering::SeqCst) + 1 == self.stands_still_at {
            say("stands still");
            std::future::pending::<()>().await;
        }
        self.queue.ack(tag).await?;
        say("acked");
        Ok(())
    }

    async fn nack(&self, tag: &Tag, reason: &Error) -> Result<(), BoxError> {
        self.queue.nack(tag, reason).await
    }

    async fn set_aside(&self, tag: &Tag, reason: &Error) -> Result<(), BoxError> {
        self.queue.set_aside(tag, reason).await
    }

    async fn extend(&self, tag: &Tag) -> Result<(), BoxError> {
        self.queue.extend(tag).await
    }

    fn visibility(&self) -> Option<Duration> {
        self.queue.visibility()
    }

    fn horizon(&self) -> Option<Duration> {
        self.queue.horizon()
    }
}

/// The child of the test below; nothing without it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let (Ok(url), Ok(at)) = (env::var(URL), env::var(STANDS_STILL_AT)) else { return };
    // If the test dies first, this ends too.
    std::thread::spawn(hear);
    let (idem, queue) = (store(&url).await, worker(&url).await);
    let talking = Talking { queue, acks: AtomicU64::new(0), stands_still_at: at.parse().unwrap() };
    let handler = ledger(&idem);
    loop {
        consumed(&talking, &handler).await.unwrap();
    }
}

/// A worker that stands still before its ack of that number, from 1; 0 for never.
fn start(server: &Server, stands_still_at: u64) -> Child {
    let variables = [(URL, server.url()), (STANDS_STILL_AT, stands_still_at.to_string())];
    Child::start("killed_workers::child", variables)
}

/// Waits for so many lines of a worker that tell of a message.
fn wait_for(worker: &Child, mut count: u64) {
    while count > 0 {
        let line = worker.line().expect("the worker goes on");
        let tells = ["received ", "handled", "acked"].iter().any(|start| line.starts_with(start));
        count -= u64::from(tells);
    }
}

/// Sends the events of a round, each twice, and returns them.
async fn send_all(queue: &StreamQueue, round: u64) -> Vec<String> {
    let events: Vec<_> = (0..EVENTS).map(|number| format!("{round}-{number}")).collect();
    for event in events.iter().chain(&events) {
        queue.send([("event", event)]).await.unwrap();
    }
    events
}

/// How many entries nobody has read yet.
fn unread(server: &Server) -> i64 {
    let groups: Vec<std::collections::HashMap<String, idem_redis::testing::Value>> =
        server.query(&["XINFO", "GROUPS", "orders"]).unwrap();
    match &groups[0]["lag"] {
        idem_redis::testing::Value::Int(lag) => *lag,
        other => panic!("no number: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_event_is_counted_once_whenever_its_worker_is_killed() {
    let rounds = rounds(12) as u64;
    let mut random = fastrand::Rng::with_seed(seed());
    let server = Server::start().unwrap();
    let (idem, second) = (store(&server.url()).await, worker(&server.url()).await);
    let handler = ledger(&idem);
    for round in 0..rounds {
        let events = send_all(&second, round).await;
        let stands_still = round % 2 == 0;
        if stands_still {
            // Of the second entry of an event, too.
            let at = random.u64(1..=2 * EVENTS);
            let first = start(&server, at);
            first.said("stands still");
            first.kill();
            assert!(!in_flight(&server).is_empty());
            let event = &events[usize::try_from((at - 1) % EVENTS).unwrap()];
            assert_eq!(counted(&idem, event).await, 1, "it was committed");
        } else {
            let first = start(&server, 0);
            wait_for(&first, random.u64(1..=3 * 2 * EVENTS));
            first.kill();
        }
        within("the second worker", async {
            while !in_flight(&server).is_empty() || unread(&server) > 0 {
                let consumed = consumed(&second, &handler).await.unwrap();
                assert_eq!(consumed.failed, 0);
            }
        })
        .await;
        for event in events {
            assert_eq!(counted(&idem, &event).await, 1, "{event}");
        }
    }
    let all: u64 = server.query(&["XLEN", "orders"]).unwrap();
    assert_eq!(all, 2 * EVENTS * rounds);
    assert!(!server.query::<bool>(&["EXISTS", "orders:dead"]).unwrap());
}
