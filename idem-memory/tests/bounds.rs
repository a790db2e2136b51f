//! What a bounded store refuses, and what closing does.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

use std::{sync::Arc, time::Duration};

use idem_core::{
    EffectError, Error, ErrorKind, Idem, Key, ManualClock, Outcome, Request, Timestamp,
    Transaction, consumer::Recorder,
};
use idem_memory::{MemoryStore, MemoryTransaction};
use tokio::sync::Barrier;

fn request(name: &str) -> Request {
    Request::new(Key::new("north", "order", name).unwrap())
}

fn bounded(capacity: usize) -> (Idem<MemoryStore>, ManualClock) {
    let clock = ManualClock::at(Timestamp::from_millis(0));
    let store = MemoryStore::builder().capacity(capacity).clock(clock.clone()).build();
    (Idem::new(store), clock)
}

fn is_full(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Full)
}

/// Takes one entry for its record, and one for each value that is new.
async fn put(
    idem: &Idem<MemoryStore>,
    request: &Request,
    values: u8,
) -> Result<Outcome<()>, Error> {
    let effect = move |tx: &mut MemoryTransaction| -> Result<(), EffectError> {
        for name in 0..values {
            tx.put(&[name], b"value")?;
        }
        Ok(())
    };
    idem.execute(request, effect).await
}

#[tokio::test]
async fn records_and_values_count_and_nothing_of_what_does_not_fit_is_kept() {
    let (idem, _) = bounded(4);
    assert_eq!(put(&idem, &request("a"), 2).await.unwrap(), Outcome::Created(()));
    assert!(is_full(&put(&idem, &request("b"), 3).await.unwrap_err()));
    let space = request("b").key().space();
    assert_eq!(idem.value(&space, &[2]).await.unwrap(), None);
    // Values that are there take no more room.
    assert_eq!(put(&idem, &request("b"), 2).await.unwrap(), Outcome::Created(()));
    assert!(is_full(&put(&idem, &request("c"), 0).await.unwrap_err()));
    assert_eq!(put(&idem, &request("a"), 0).await.unwrap(), Outcome::Replayed(()));
}

#[tokio::test]
async fn what_has_expired_makes_room_and_what_is_live_never_does() {
    let (idem, clock) = bounded(2);
    let brief = request("brief").retain(Duration::from_millis(10));
    assert_eq!(put(&idem, &brief, 0).await.unwrap(), Outcome::Created(()));
    assert_eq!(put(&idem, &request("long"), 0).await.unwrap(), Outcome::Created(()));
    clock.advance(Duration::from_millis(9));
    assert!(is_full(&put(&idem, &request("more"), 0).await.unwrap_err()));
    clock.advance(Duration::from_millis(1));
    assert_eq!(put(&idem, &request("more"), 0).await.unwrap(), Outcome::Created(()));
    assert_eq!(put(&idem, &request("long"), 0).await.unwrap(), Outcome::Replayed(()));
    assert!(is_full(&put(&idem, &brief, 0).await.unwrap_err()));
}

#[tokio::test]
async fn what_is_forgotten_or_deleted_gives_its_room_back() {
    let (idem, _) = bounded(3);
    assert_eq!(put(&idem, &request("a"), 2).await.unwrap(), Outcome::Created(()));
    let delete = |tx: &mut MemoryTransaction| {
        tx.delete(&[0])?;
        tx.delete(&[1])?;
        tx.delete(b"never there")?;
        Ok(())
    };
    assert_eq!(idem.execute(&request("b"), delete).await.unwrap(), Outcome::Created(()));
    assert_eq!(put(&idem, &request("c"), 0).await.unwrap(), Outcome::Created(()));
    assert!(is_full(&put(&idem, &request("d"), 0).await.unwrap_err()));
    assert!(idem.forget(request("a").key()).await.unwrap());
    assert_eq!(put(&idem, &request("d"), 0).await.unwrap(), Outcome::Created(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_callers_never_exceed_the_bound() {
    const CAPACITY: usize = 20;
    let (idem, _) = bounded(CAPACITY);
    let barrier = Arc::new(Barrier::new(64));
    let callers = (0..64).map(|number| {
        let (idem, barrier) = (idem.clone(), Arc::clone(&barrier));
        tokio::spawn(async move {
            barrier.wait().await;
            put(&idem, &request(&number.to_string()), 0).await
        })
    });
    let mut created = 0;
    for caller in callers.collect::<Vec<_>>() {
        match caller.await.unwrap() {
            Ok(outcome) => {
                assert_eq!(outcome, Outcome::Created(()));
                created += 1;
            }
            Err(error) => assert!(is_full(&error), "{error:?}"),
        }
    }
    assert_eq!(created, CAPACITY);
}

#[tokio::test]
async fn after_closing_every_call_says_so_through_every_clone() {
    let (idem, _) = bounded(10);
    assert_eq!(put(&idem, &request("a"), 1).await.unwrap(), Outcome::Created(()));
    let store = idem.store().clone();
    idem.close().await.unwrap();
    idem.close().await.unwrap();
    let idem = Idem::new(store.clone());
    let closed = |error: Error| assert!(matches!(error.kind(), ErrorKind::Closed), "{error:?}");
    closed(put(&idem, &request("a"), 0).await.unwrap_err());
    closed(put(&idem, &request("b"), 0).await.unwrap_err());
    closed(idem.receipt(request("a").key()).await.unwrap_err());
    closed(idem.forget(request("a").key()).await.unwrap_err());
    closed(idem.purge(1).await.unwrap_err());
    closed(idem.list(None, 1).await.unwrap_err());
    closed(idem.value(&request("a").key().space(), b"x").await.unwrap_err());
    closed(store.mark_processed("c", "1").await.unwrap_err());
}
