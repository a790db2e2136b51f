//! Two consumers of one bus: each event is delivered twice, and takes effect once for each consumer.
//!
//! `cargo run --example events`

use std::path::Path;

use idem_store::consumer::{Handled, Handler, Recorder};
use idem_store::sqlite::{SqliteStore, SqliteTransaction};
use idem_store::{EffectError, Idem, Space, Transaction};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const EVENTS: [(&str, i64); 3] = [("order-1", 30), ("order-2", 12), ("order-3", 7)];

/// Adds an order to the consumer's own sum, in one commit with the mark.
fn sum_up(tx: &mut SqliteTransaction, amount: &i64) -> Result<(), EffectError> {
    let sum = match tx.get(b"sum")? {
        Some(sum) => std::str::from_utf8(&sum)?.parse::<i64>()?,
        None => 0,
    };
    tx.put(b"sum", (sum + amount).to_string().as_bytes())?;
    Ok(())
}

/// Delivers every event twice to a consumer, and counts how often its handler ran.
async fn deliver(idem: &Idem<SqliteStore>, consumer: &str) -> Result<usize, Failure> {
    let handler = Handler::atomic(idem, consumer, sum_up)?;
    let mut ran = 0;
    for (event_id, amount) in EVENTS.into_iter().chain(EVENTS) {
        if handler.handle(event_id, amount).await? == Handled::Ran {
            ran += 1;
        }
    }
    Ok(ran)
}

async fn sum(idem: &Idem<SqliteStore>, consumer: &str) -> Result<String, Failure> {
    let sum = idem.value(&Space::consumer(consumer)?, b"sum").await?.ok_or("there is a sum")?;
    Ok(String::from_utf8(sum.to_vec())?)
}

async fn open(path: &Path) -> Result<Idem<SqliteStore>, Failure> {
    Ok(Idem::new(SqliteStore::open(path).await?))
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("events.db");

    let idem = open(&path).await?;
    for consumer in ["billing", "shipping"] {
        let ran = deliver(&idem, consumer).await?;
        assert_eq!((ran, sum(&idem, consumer).await?.as_str()), (3, "49"));
        println!("{consumer}: 6 deliveries, {ran} handled, the sum is 49");
    }
    idem.close().await?;

    let idem = open(&path).await?;
    assert!(idem.store().is_processed("billing", "order-1").await?);
    assert!(!idem.store().is_processed("auditing", "order-1").await?);
    for consumer in ["billing", "shipping"] {
        let ran = deliver(&idem, consumer).await?;
        assert_eq!((ran, sum(&idem, consumer).await?.as_str()), (0, "49"));
        println!("{consumer}, after reopening: 6 more deliveries, {ran} handled, the sum is 49");
    }
    Ok(())
}
