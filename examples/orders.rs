//! The main job: orders that are placed once, in a SQLite file that is the shop's own.
//!
//! `cargo run --example orders [FILE]`; without a file, a temporary one is used.

use std::{path::Path, sync::Arc, time::Duration};

use idem_store::sqlite::{SqliteStore, SqliteTransaction};
use idem_store::{EffectError, Idem, Key, ManualClock, Outcome, Request, Timestamp};
use tokio::sync::Barrier;

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Placed = Outcome<i64>;

async fn handle(path: &Path, clock: &ManualClock) -> Result<Idem<SqliteStore>, Failure> {
    Ok(Idem::new(SqliteStore::builder().clock(clock.clone()).open(path).await?))
}

fn request(scope: [&str; 3], quantity: i64) -> Result<Request, Failure> {
    let [tenant, operation, intent] = scope;
    let key = Key::new(tenant, operation, intent)?;
    Ok(Request::new(key).fingerprint(&quantity)?.retain_forever())
}

fn insert(tx: &mut SqliteTransaction, quantity: i64) -> Result<i64, EffectError> {
    tx.execute("INSERT INTO orders (quantity) VALUES (?1)", [quantity])?;
    Ok(tx.last_insert_rowid())
}

async fn place(
    idem: &Idem<SqliteStore>,
    request: &Request,
    quantity: i64,
) -> Result<Placed, Failure> {
    Ok(idem.execute(request, move |tx| insert(tx, quantity)).await?)
}

fn count(path: &Path, table: &str) -> Result<i64, Failure> {
    let query = format!("SELECT count(*) FROM {table}");
    Ok(rusqlite::Connection::open(path)?.query_row(&query, [], |row| row.get(0))?)
}

/// Eight handles meet with one key: one of them places the order.
async fn race(path: &Path, clock: &ManualClock) -> Result<(), Failure> {
    let barrier = Arc::new(Barrier::new(8));
    let mut callers = Vec::new();
    for _ in 0..8 {
        let (idem, barrier) = (handle(path, clock).await?, Arc::clone(&barrier));
        let request = request(["north", "web-order", "intent-a"], 3)?;
        callers.push(tokio::spawn(async move {
            barrier.wait().await;
            place(&idem, &request, 3).await
        }));
    }
    let (mut created, mut replayed) = (0, 0);
    for caller in callers {
        match caller.await?? {
            Outcome::Created(1) => created += 1,
            Outcome::Replayed(1) => replayed += 1,
            other => return Err(format!("unexpected {other:?}").into()),
        }
    }
    assert_eq!((created, replayed), (1, 7));
    assert_eq!((count(path, "orders")?, count(path, "idem_records")?), (1, 1));
    println!("eight handles, one key: {created} created, {replayed} replayed, 1 order, 1 receipt");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let path = std::env::args_os().nth(1).map_or(folder.path().join("orders.db"), Into::into);
    let table = "CREATE TABLE orders (id INTEGER PRIMARY KEY, quantity INTEGER NOT NULL)";
    rusqlite::Connection::open(&path)?.execute_batch(table)?;
    let clock = ManualClock::at(Timestamp::from_millis(1_700_000_000_000));
    race(&path, &clock).await?;

    let idem = handle(&path, &clock).await?;
    let a = ["north", "web-order", "intent-a"];
    assert_eq!(place(&idem, &request(a, 4)?, 4).await?, Outcome::Conflict);
    println!("another quantity under the same key: conflict");

    let south = ["south", "web-order", "intent-a"];
    let phone = ["north", "phone-order", "intent-a"];
    let b = ["north", "web-order", "intent-b"];
    for (scope, id) in [(south, 2), (phone, 3), (b, 4)] {
        assert_eq!(place(&idem, &request(scope, 3)?, 3).await?, Outcome::Created(id));
    }
    println!("another tenant, another operation, another key: each its own order");

    let failing = request(["north", "web-order", "intent-c"], 5)?;
    let failed = idem.execute(&failing, |tx| {
        insert(tx, 5)?;
        Err::<i64, _>("the power of the shop fails here".into())
    });
    assert!(failed.await.is_err());
    assert_eq!((count(&path, "orders")?, count(&path, "idem_records")?), (4, 4));
    assert_eq!(place(&idem, &failing, 5).await?, Outcome::Created(5));
    println!("an error after the INSERT left neither order nor receipt; the retry placed one");

    let fresh = handle(&path, &clock).await?;
    assert_eq!(place(&fresh, &failing, 5).await?, Outcome::Replayed(5));
    println!("a fresh handle replays the result whose reply was thrown away");

    let minute = request(["north", "web-order", "intent-d"], 6)?.retain(Duration::from_secs(60));
    assert_eq!(place(&idem, &minute, 6).await?, Outcome::Created(6));
    clock.advance(Duration::from_secs(59));
    assert_eq!(place(&idem, &minute, 6).await?, Outcome::Replayed(6));
    clock.advance(Duration::from_secs(1));
    assert_eq!(place(&idem, &minute, 6).await?, Outcome::Created(7));
    println!("with 60 s of retention: replayed at 59 s, created anew at 60 s");

    let (effects, receipts) = (count(&path, "orders")?, count(&path, "idem_records")?);
    assert_eq!((effects, receipts), (7, 6));
    println!("verified: {effects} effects, {receipts} retained receipts");
    Ok(())
}
