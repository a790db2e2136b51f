//! One function on every backend that is compiled in, each behind `Arc<DynStore>`.
//!
//! `cargo run --example backends --all-features [URL ..]`; without URLs, one of each backend: new files in a
//! temporary folder, and a `redis-server` of its own. URLs must name places that hold no such orders yet.

use std::sync::Arc;

use idem_store::{DynStore, EffectError, Idem, Key, Outcome, Request, Space, Transaction};
use tokio::sync::Barrier;

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Shop = Idem<Arc<DynStore>>;

/// The effect: one order more, and its quantity. It knows the portable transaction alone.
fn insert(tx: &mut dyn Transaction, quantity: u64) -> Result<u64, EffectError> {
    let count = tx.get(b"orders")?.map_or(Ok(0), |count| parse(&count))? + 1;
    tx.put(b"orders", count.to_string().as_bytes())?;
    tx.put(format!("order-{count}").as_bytes(), quantity.to_string().as_bytes())?;
    Ok(count)
}

fn parse(text: &[u8]) -> Result<u64, EffectError> {
    Ok(std::str::from_utf8(text)?.parse()?)
}

fn request(scope: [&str; 3], quantity: u64) -> Result<Request, Failure> {
    let [tenant, operation, intent] = scope;
    Ok(Request::new(Key::new(tenant, operation, intent)?).fingerprint(&quantity)?)
}

async fn place(shop: &Shop, scope: [&str; 3], quantity: u64) -> Result<Outcome<u64>, Failure> {
    let request = request(scope, quantity)?;
    Ok(shop.execute(&request, move |tx| insert(tx, quantity)).await?)
}

async fn orders(shop: &Shop, tenant: &str) -> Result<u64, Failure> {
    let count = shop.value(&Space::tenant(tenant)?, b"orders").await?;
    count.map_or(Ok(0), |count| parse(&count)).map_err(|_| "the count is no number".into())
}

/// Eight callers meet with one key: one of them places the order.
async fn race(shop: &Shop, scope: [&'static str; 3]) -> Result<(), Failure> {
    let barrier = Arc::new(Barrier::new(8));
    let mut callers = Vec::new();
    for _ in 0..8 {
        let (shop, barrier) = (shop.clone(), Arc::clone(&barrier));
        callers.push(tokio::spawn(async move {
            barrier.wait().await;
            place(&shop, scope, 3).await
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
    Ok(())
}

/// The whole scenario, whatever the store.
async fn run(shop: &Shop) -> Result<(), Failure> {
    let first = ["north", "web-order", "intent-a"];
    race(shop, first).await?;
    assert_eq!(place(shop, first, 4).await?, Outcome::Conflict);
    assert_eq!(place(shop, ["south", "web-order", "intent-a"], 3).await?, Outcome::Created(1));
    assert_eq!(place(shop, ["north", "phone-order", "intent-a"], 3).await?, Outcome::Created(2));

    let failing = ["north", "web-order", "intent-b"];
    let request = request(failing, 5)?;
    let failed = shop.execute(&request, |tx| {
        insert(tx, 5)?;
        Err::<u64, _>("the power of the shop fails here".into())
    });
    assert!(failed.await.is_err());
    assert_eq!(orders(shop, "north").await?, 2);
    assert_eq!(place(shop, failing, 5).await?, Outcome::Created(3));
    assert_eq!(place(shop, failing, 5).await?, Outcome::Replayed(3));

    let receipts = shop.list(None, 100).await?.records.len();
    let effects = orders(shop, "north").await? + orders(shop, "south").await?;
    assert_eq!((effects, receipts), (4, 4));
    println!("  verified: {effects} effects, {receipts} receipts");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut urls: Vec<String> = std::env::args().skip(1).collect();
    let folder = tempfile::tempdir()?;
    #[cfg(feature = "redis")]
    let server;
    if urls.is_empty() {
        if cfg!(feature = "memory") {
            urls.push("memory:".to_string());
        }
        if cfg!(feature = "sqlite") {
            urls.push(format!("sqlite:{}", folder.path().join("orders.db").display()));
        }
        if cfg!(feature = "sled") {
            urls.push(format!("sled:{}", folder.path().join("orders").display()));
        }
        #[cfg(feature = "redis")]
        {
            server = idem_redis::testing::Server::start()?;
            urls.push(server.url());
        }
    }
    for url in urls {
        let shop = Idem::new(idem_store::open(&url).await?);
        let scheme = url.split(':').next().unwrap_or_default();
        println!("{scheme}: a commit survives {:?}", shop.guarantees().durability);
        run(&shop).await?;
        shop.close().await?;
    }
    Ok(())
}
