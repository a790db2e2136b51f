//! What the tests start from.

use std::time::{Duration, Instant};

use idem_core::{
    BoxError, EffectError, Error, ErrorKind, Idem, Space, Store, Transaction,
    consumer::{Consumed, Delivery, Handler, NotInFlight, Options, Queue, drain},
};
use idem_redis::{
    RedisStore, RedisTransaction,
    streams::{Message, StreamBuilder, StreamQueue, Tag},
    testing::Server,
};

pub(crate) use idem_conformance::callers::{joined, within};

pub(crate) type Received = Delivery<Message, Tag>;

/// Options for the stream `orders` and its group `billing`; a receive does not wait for long.
pub(crate) fn builder() -> StreamBuilder {
    StreamQueue::builder("orders", "billing").block(Duration::from_millis(5))
}

pub(crate) async fn open(server: &Server) -> StreamQueue {
    builder().open(&server.url()).await.unwrap()
}

/// Adds an entry with a number and returns its id.
pub(crate) async fn send(queue: &StreamQueue, number: u32) -> String {
    queue.send([("number", number.to_string())]).await.unwrap()
}

/// The only delivery that there is.
pub(crate) async fn one(queue: &StreamQueue) -> Received {
    let mut received = queue.receive(10).await.unwrap();
    assert_eq!(received.len(), 1, "{received:?}");
    received.pop().unwrap()
}

pub(crate) async fn nothing_comes(queue: &StreamQueue) {
    assert_eq!(queue.receive(10).await.unwrap(), []);
}

pub(crate) fn ids(received: &[Received]) -> Vec<String> {
    received.iter().map(|delivery| delivery.message.id.clone()).collect()
}

/// Who has what in flight: the entry's id, the consumer, how long it has been, how often it was delivered.
pub(crate) type InFlight = (String, String, u64, u64);

pub(crate) fn in_flight(server: &Server) -> Vec<InFlight> {
    server.query(&["XPENDING", "orders", "billing", "-", "+", "100000"]).unwrap()
}

/// Lets an entry be in flight for longer than any visibility.
pub(crate) fn age(server: &Server, id: &str) {
    let found: Vec<InFlight> =
        server.query(&["XPENDING", "orders", "billing", id, id, "1"]).unwrap();
    let owner = &found[0].1;
    let command = ["XCLAIM", "orders", "billing", owner, "0", id, "IDLE", "1000000000", "JUSTID"];
    assert_eq!(server.query::<Vec<String>>(&command).unwrap(), [id]);
}

pub(crate) fn reason() -> Error {
    Error::nothing_done(ErrorKind::Full)
}

/// That a delivery was refused as one that is not in flight.
pub(crate) fn refused(settled: Result<(), BoxError>, tag: &Tag) {
    let error = settled.unwrap_err();
    let refusal = error.downcast_ref::<NotInFlight>();
    let refusal = refusal.unwrap_or_else(|| panic!("another error: {error:?}"));
    let expected = format!("the delivery {} is not in flight here", refusal.delivery());
    assert_eq!(refusal.to_string(), expected);
    let (attempt, id) = refusal.delivery().split_once(" of the entry ").unwrap();
    let tag = format!("{tag:?}");
    assert!(tag.contains(id) && tag.contains(attempt), "{tag}: {refusal}");
}

/// The library's error in a queue's.
pub(crate) fn kind_of(error: &BoxError) -> &ErrorKind {
    let error = error.downcast_ref::<Error>();
    error.unwrap_or_else(|| panic!("the library's error")).kind()
}

/// Waits until `holds`, with a bound; `what` says what for.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Whether a client waits for an entry.
pub(crate) fn is_waited_for(server: &Server) -> bool {
    let clients: String = server.query(&["INFO", "clients"]).unwrap();
    !clients.contains("blocked_clients:0\r\n")
}

/// Counts each event in the store, in one commit with its mark.
pub(crate) fn ledger(idem: &Idem<RedisStore>) -> Handler<RedisStore, Message> {
    Handler::atomic(idem, "ledger", |tx: &mut RedisTransaction, message: &Message| {
        let event = message.field("event").ok_or("an order has an event")?.clone();
        count(tx, &event)
    })
    .unwrap()
}

fn count(tx: &mut RedisTransaction, event: &[u8]) -> Result<(), EffectError> {
    let before: u64 = match tx.get(event)? {
        Some(count) => std::str::from_utf8(&count)?.parse()?,
        None => 0,
    };
    Ok(tx.put(event, (before + 1).to_string().as_bytes())?)
}

/// How often [`ledger`] has counted an event.
pub(crate) async fn counted(idem: &Idem<RedisStore>, event: &str) -> u64 {
    let space = Space::consumer("ledger").unwrap();
    let count = idem.value(&space, event.as_bytes()).await.unwrap();
    count.map_or(0, |count| std::str::from_utf8(&count).unwrap().parse().unwrap())
}

/// Handles what there is, and returns when there is no more.
pub(crate) async fn consumed<Q, S, M>(queue: &Q, handler: &Handler<S, M>) -> Result<Consumed, Error>
where
    Q: Queue<Message = M>,
    S: Store + 'static,
    M: Send + Sync + 'static,
{
    drain(queue, handler, &Options::new()).await
}
