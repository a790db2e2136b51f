//! An effect outside and rows inside: a charge at a provider, then its row and the receipt in one commit.
//!
//! `cargo run --example payments`

use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use idem_store::sqlite::SqliteStore;
use idem_store::{Claim, ErrorKind, Idem, Key, Lease, ManualClock, Outcome, Request, Timestamp};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const LEASE: Duration = Duration::from_secs(30);

/// A payment provider: it cannot take a charge back, can be asked for it by its key, and refuses tokens that
/// are smaller than one that it has seen for the key.
#[derive(Default)]
struct Provider(Mutex<HashMap<Key, (u64, Option<i64>)>>);

impl Provider {
    fn charge(&self, key: &Key, token: u64, cents: i64) -> Result<i64, Failure> {
        let mut charges = self.0.lock().map_err(|_| "the provider is down")?;
        let (seen, charged) = charges.entry(key.clone()).or_insert((token, None));
        if token < *seen {
            return Err(format!("token {token} is stale, {seen} was here").into());
        }
        *seen = token;
        match charged {
            Some(_) => Err("charged twice".into()),
            None => Ok(*charged.insert(cents)),
        }
    }

    /// What was charged, for the holder of that token; older tokens are refused from now on.
    fn charged(&self, key: &Key, token: u64) -> Result<Option<i64>, Failure> {
        let mut charges = self.0.lock().map_err(|_| "the provider is down")?;
        let (seen, charged) = charges.entry(key.clone()).or_insert((token, None));
        *seen = token.max(*seen);
        Ok(*charged)
    }
}

async fn open(path: &Path, clock: &ManualClock) -> Result<Idem<SqliteStore>, Failure> {
    Ok(Idem::new(SqliteStore::builder().clock(clock.clone()).open(path).await?))
}

fn request() -> Result<Request, Failure> {
    Ok(Request::new(Key::new("north", "charge", "intent-a")?).fingerprint(&1995)?)
}

async fn claim(idem: &Idem<SqliteStore>) -> Result<Lease<SqliteStore, i64>, Failure> {
    match idem.claim(&request()?, LEASE).await? {
        Claim::Acquired(lease) => Ok(lease),
        other => Err(format!("the key is not free: {other:?}").into()),
    }
}

/// Charges unless that has happened, then writes the row and the receipt in one commit.
async fn pay(lease: Lease<SqliteStore, i64>, provider: &Provider) -> Result<i64, Failure> {
    let (key, token) = (lease.key().clone(), lease.token().as_u64());
    let charged = match lease.took_over() {
        Some(_) => provider.charged(&key, token)?,
        None => None,
    };
    let cents = match charged {
        Some(cents) => cents,
        None => provider.charge(&key, token, 1995)?,
    };
    let paid = lease.complete_with(move |tx| {
        tx.execute("INSERT INTO payments (cents) VALUES (?1)", [cents])?;
        Ok(cents)
    });
    Ok(paid.await?)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("shop.db");
    let shop = rusqlite::Connection::open(&path)?;
    shop.execute("CREATE TABLE payments (id INTEGER PRIMARY KEY, cents INTEGER)", [])?;
    let payments =
        || shop.query_row("SELECT count(*) FROM payments", [], |row| row.get::<_, i64>(0));

    let clock = ManualClock::at(Timestamp::from_millis(1_700_000_000_000));
    let (first, second) = (open(&path, &clock).await?, open(&path, &clock).await?);
    let provider = Provider::default();

    // The first node charges, and is held up before it can say so.
    let held_up = claim(&first).await?;
    provider.charge(held_up.key(), held_up.token().as_u64(), 1995)?;
    assert!(claim(&second).await.is_err(), "others are told that it is in progress");
    clock.advance(LEASE);

    // The second takes over, is told, asks the provider, and completes.
    let next = claim(&second).await?;
    assert_eq!(next.took_over(), Some(held_up.token()));
    assert_eq!(pay(next, &provider).await?, 1995);
    assert_eq!(payments()?, 1);
    println!("taken over: charged once, one row, one receipt");

    // The first wakes up: it is refused here, and at the provider.
    assert!(provider.charge(held_up.key(), held_up.token().as_u64(), 1995).is_err());
    let late = held_up.complete_with(|tx| {
        tx.execute("INSERT INTO payments (cents) VALUES (1995)", [])?;
        Ok(1995)
    });
    let Err(refused) = late.await else { return Err("its lease was lost".into()) };
    assert!(matches!(refused.error().kind(), ErrorKind::LeaseLost { .. }));
    assert_eq!(payments()?, 1);
    println!("the one that was held up: refused, and nothing was written");

    let replayed = first.execute(&request()?, |_| Ok(0)).await?;
    assert_eq!(replayed, Outcome::Replayed(1995));
    println!("everybody else: replayed");
    Ok(())
}
