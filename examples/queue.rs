//! A consumer of an at-least-once queue whose first attempt fails before its ack.
//!
//! `cargo run --example queue --features test-support`

use std::sync::atomic::{AtomicBool, Ordering};

use idem_store::consumer::{Handler, consume};
use idem_store::testing::MemoryQueue;
use idem_store::{Idem, Space, Transaction, memory::MemoryStore};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let queue = MemoryQueue::new();
    queue.send(1, 100);
    queue.send(1, 100);
    queue.send(2, 50);

    let idem = Idem::new(MemoryStore::new());
    let first = AtomicBool::new(true);
    let handler = Handler::atomic(&idem, "ledger", move |tx, amount: &i64| {
        let balance = match tx.get(b"balance")? {
            Some(balance) => std::str::from_utf8(&balance)?.parse::<i64>()?,
            None => 0,
        };
        tx.put(b"balance", (balance + amount).to_string().as_bytes())?;
        if first.swap(false, Ordering::SeqCst) {
            return Err("the first attempt fails after its write".into());
        }
        Ok(())
    })?;

    let consumed = consume(&queue, &handler).await?;
    assert_eq!((consumed.ran, consumed.duplicates, consumed.failed), (2, 1, 1));
    println!(
        "{} handled, {} duplicate, {} failed and came again",
        consumed.ran, consumed.duplicates, consumed.failed
    );

    let balance = idem.value(&Space::consumer("ledger")?, b"balance").await?;
    assert_eq!(balance.as_deref(), Some(&b"150"[..]));
    assert!(queue.is_empty());
    println!("the balance is 150, the queue is empty");
    Ok(())
}
