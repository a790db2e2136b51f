//! Two workers share a Redis stream; one crashes between its commit and its ack.
//!
//! `cargo run --example streams --features redis-streams`; it starts a `redis-server` of its own.

use std::time::Duration;

use idem_redis::testing::{Server, Value};
use idem_store::consumer::{Handled, Handler, Options, Queue, drain};
use idem_store::redis::{
    RedisStore,
    streams::{Message, StreamQueue},
};
use idem_store::{Idem, Space, Transaction};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The amounts of three orders.
const ORDERS: [(&str, &str); 3] = [("order-1", "100"), ("order-2", "20"), ("order-3", "3")];

async fn worker(url: &str) -> Result<StreamQueue, Failure> {
    let queue = StreamQueue::builder("orders", "billing").event_id_field("event");
    // Short, so that the example is: it must be longer than the slowest handler.
    let queue = queue.visibility(Duration::from_millis(300)).block(Duration::from_millis(50));
    Ok(queue.open(url).await?)
}

/// Adds each order to the balance, in one commit with its mark.
fn ledger(idem: &Idem<RedisStore>) -> Result<Handler<RedisStore, Message>, Failure> {
    let handler = Handler::atomic(idem, "ledger", |tx, order: &Message| {
        let amount = order.field("amount").ok_or("an order has an amount")?;
        let amount: u64 = std::str::from_utf8(amount)?.parse()?;
        let balance: u64 = match tx.get(b"balance")? {
            Some(balance) => std::str::from_utf8(&balance)?.parse()?,
            None => 0,
        };
        Ok(tx.put(b"balance", (balance + amount).to_string().as_bytes())?)
    })?;
    Ok(handler)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let server = Server::start()?;
    let idem = Idem::new(RedisStore::open(&server.url()).await?);
    let handler = ledger(&idem)?;

    // A producer whose answers were lost sends every order a second time.
    let producer = worker(&server.url()).await?;
    for (event, amount) in ORDERS.into_iter().chain(ORDERS) {
        producer.send([("event", event), ("amount", amount)]).await?;
    }

    // The first worker commits the first order, and is gone before its ack. The second order it had received too.
    let first = worker(&server.url()).await?;
    let mut received = first.receive(2).await?.into_iter();
    let delivery = received.next().ok_or("there are orders")?;
    assert_eq!(handler.handle(&delivery.event_id, delivery.message).await?, Handled::Ran);
    drop(first);
    println!("the first worker committed {} and crashed before its ack", delivery.event_id);

    // The second has the other entries at once, and those of the first when their visibility has passed.
    let second = worker(&server.url()).await?;
    let (mut ran, mut duplicates) = (0, 0);
    while ran + duplicates < 6 {
        let consumed = drain(&second, &handler, &Options::new()).await?;
        ran += consumed.ran;
        duplicates += consumed.duplicates;
        assert_eq!(consumed.failed, 0);
    }
    assert_eq!((ran, duplicates), (2, 4));
    println!("the second worker handled {ran} orders and acked {duplicates} duplicates");

    let balance = idem.value(&Space::consumer("ledger")?, b"balance").await?;
    assert_eq!(balance.as_deref(), Some(&b"123"[..]));
    let pending = server.command(&["XPENDING", "orders", "billing", "-", "+", "1"])?;
    assert_eq!(pending, Value::Array(Vec::new()));
    println!("the balance is 123, nothing is pending");
    Ok(())
}
