//! Effects that ask their own store, or the engine, and many of them at once.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

mod common;

use std::{
    sync::{Arc, Barrier},
    time::Duration,
};

use common::{nothing, opened, request, space};
use idem_core::{EffectError, Idem, Outcome, Transaction, consumer::Recorder};
use idem_sled::{SledStore, SledTransaction, sled};
use tempfile::TempDir;
use tokio::{runtime::Handle, task::block_in_place, time::timeout};

const PATIENCE: Duration = Duration::from_secs(20);

fn block_on<T>(future: impl Future<Output = T>) -> T {
    block_in_place(|| Handle::current().block_on(future))
}

/// Everything that an effect had better not do, and may.
fn entangled(
    idem: &Idem<SledStore>,
    number: usize,
    tx: &mut SledTransaction,
) -> Result<usize, EffectError> {
    tx.put(b"mine", b"1")?;
    let other = request(format!("nested-{number}"));
    let effect = move |tx: &mut SledTransaction| Ok(tx.put(b"nested", b"1")?);
    assert_eq!(block_on(idem.execute(&other, effect))?, Outcome::Created(()));
    assert!(!block_on(idem.is_processed("billing", &number.to_string()))?);
    let db = idem.store().db()?;
    db.open_tree("beside")?.insert(number.to_be_bytes(), "1")?;
    db.flush()?;
    let folder = TempDir::new()?;
    let second = sled::open(folder.path())?;
    second.insert("a", "b")?;
    let inserted = second.transaction(|tree| Ok(tree.insert("c", "d")?));
    inserted.map_err(|error: sled::transaction::TransactionError<()>| format!("{error:?}"))?;
    second.flush()?;
    Ok(number)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixteen_entangled_effects_at_once_all_commit() {
    const CALLERS: usize = 16;
    let folder = TempDir::new().unwrap();
    let idem = opened(folder.path()).await.unwrap();
    let callers = (0..CALLERS).map(|number| {
        let idem = idem.clone();
        tokio::spawn(async move {
            let nested = idem.clone();
            let effect = move |tx: &mut SledTransaction| entangled(&nested, number, tx);
            timeout(PATIENCE, idem.execute(&request(number), effect)).await
        })
    });
    for (number, caller) in callers.collect::<Vec<_>>().into_iter().enumerate() {
        let outcome = caller.await.unwrap().expect("it must not hang");
        assert_eq!(outcome.unwrap(), Outcome::Created(number));
    }
    assert_eq!(idem.list(None, 100).await.unwrap().records.len(), 2 * CALLERS);
    assert!(idem.value(&space(), b"nested").await.unwrap().is_some());
    idem.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_an_effect_sleeps_others_run_read_and_replay() {
    let folder = TempDir::new().unwrap();
    let idem = opened(folder.path()).await.unwrap();
    assert_eq!(idem.execute(&request("old"), nothing).await.unwrap(), Outcome::Created(()));
    let (inside, leave) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let meeting = (Arc::clone(&inside), Arc::clone(&leave));
    let slow = {
        let idem = idem.clone();
        tokio::spawn(async move {
            let effect = move |tx: &mut SledTransaction| {
                tx.put(b"slow", b"1")?;
                block_in_place(|| {
                    meeting.0.wait();
                    meeting.1.wait();
                });
                Ok(())
            };
            idem.execute(&request("slow"), effect).await
        })
    };
    block_in_place(|| inside.wait());
    let others = async {
        assert_eq!(idem.execute(&request("old"), nothing).await.unwrap(), Outcome::Replayed(()));
        assert_eq!(idem.execute(&request("new"), nothing).await.unwrap(), Outcome::Created(()));
        assert_eq!(idem.value(&space(), b"slow").await.unwrap(), None);
        assert_eq!(idem.list(None, 10).await.unwrap().records.len(), 2);
        idem.purge(10).await.unwrap();
    };
    timeout(PATIENCE, others).await.expect("a slow effect delays nobody");
    block_in_place(|| leave.wait());
    assert_eq!(slow.await.unwrap().unwrap(), Outcome::Created(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixty_four_callers_count_exactly() {
    const CALLERS: u64 = 64;
    const ROUNDS: u64 = 4;
    let folder = TempDir::new().unwrap();
    let idem = opened(folder.path()).await.unwrap();
    let callers = (0..CALLERS).map(|caller| {
        let idem = idem.clone();
        tokio::spawn(async move {
            let mut counts = Vec::new();
            for round in 0..ROUNDS {
                let add = |tx: &mut SledTransaction| {
                    let mut counts = tx.tree("counts")?;
                    let count = match counts.get("n")? {
                        Some(bytes) => u64::from_be_bytes((&*bytes).try_into()?) + 1,
                        None => 1,
                    };
                    counts.insert("n", count.to_be_bytes())?;
                    Ok(count)
                };
                let outcome = idem.execute(&request(format!("{caller}-{round}")), add).await;
                match outcome.unwrap() {
                    Outcome::Created(count) => counts.push(count),
                    other => panic!("each key is new: {other:?}"),
                }
            }
            counts
        })
    });
    let mut counts = Vec::new();
    for caller in callers.collect::<Vec<_>>() {
        counts.extend(caller.await.unwrap());
    }
    counts.sort_unstable();
    assert_eq!(counts, (1..=CALLERS * ROUNDS).collect::<Vec<_>>());
}
