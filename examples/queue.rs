//! A consumer of an at-least-once queue: an attempt that fails, a duplicate, a message that always fails, and
//! the end on a signal.
//!
//! `cargo run --example queue --features test-support`

use std::sync::atomic::{AtomicBool, Ordering};

use idem_store::consumer::{Handler, Options, consume, drain};
use idem_store::testing::MemoryQueue;
use idem_store::{Idem, Space, Transaction, memory::MemoryStore};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let queue = MemoryQueue::new();
    queue.send("deposit-1", 100);
    queue.send("deposit-1", 100);
    queue.send("deposit-2", 50);
    queue.send("deposit-3", -1);

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
        if *amount < 0 {
            return Err("no deposit is negative".into());
        }
        Ok(())
    })?;

    // Until the queue is empty; a message is set aside when it fails for the third time.
    let options = Options::new().attempts(3);
    let consumed = drain(&queue, &handler, &options).await?;
    assert_eq!((consumed.ran, consumed.duplicates), (2, 1));
    assert_eq!((consumed.failed, consumed.set_aside), (3, 1));
    println!(
        "{} handled, {} duplicate, {} failed and came again, {} set aside",
        consumed.ran, consumed.duplicates, consumed.failed, consumed.set_aside
    );
    for (event_id, amount, reason) in queue.dead_letters() {
        assert_eq!((event_id.as_str(), amount), ("deposit-3", -1));
        println!("{event_id} of {amount}: {reason}");
    }

    // Until it is told to end, in a program by `async { let _ = tokio::signal::ctrl_c().await; }`: what is running then is finished.
    queue.send("deposit-4", 7);
    let until_handled = async {
        while !queue.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    let consumed = consume(&queue, &handler, &options, until_handled).await?;
    assert_eq!(consumed.ran, 1);

    let balance = idem.value(&Space::consumer("ledger")?, b"balance").await?;
    assert_eq!(balance.as_deref(), Some(&b"157"[..]));
    println!("the balance is 157, the queue is empty");
    Ok(())
}
