//! The background purge on a manual clock, and handlers whose own code panics in odd places.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use idem_core::{
    BoxError, Error, ErrorKind, Idem, Key, ManualClock, Outcome, Request, Timestamp,
    consumer::{Handler, Recorder},
};
use idem_memory::MemoryStore;

#[tokio::test]
async fn the_first_interval_counts_from_the_call() {
    let clock = ManualClock::at(Timestamp::from_millis(0));
    let idem = Idem::new(MemoryStore::builder().clock(clock.clone()).build());
    let brief = Request::new(Key::new("north", "order", "a").unwrap());
    let brief = brief.retain(Duration::from_secs(1));
    assert_eq!(idem.execute(&brief, |_| Ok(())).await.unwrap(), Outcome::Created(()));
    let purger = idem.spawn_purge(Duration::from_secs(60), 10).unwrap();
    // Once, and right away: whether the task has been polled yet must not matter.
    clock.advance(Duration::from_secs(60));
    let start = Instant::now();
    while purger.removed() == 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "waited for the purge in vain");
        tokio::task::yield_now().await;
    }
    assert_eq!((purger.removed(), purger.failures()), (1, 0));
}

/// Panics when it is turned into what a handler fails with.
struct Unspeakable;

impl From<Unspeakable> for BoxError {
    fn from(_: Unspeakable) -> Self {
        panic!("it cannot be said")
    }
}

/// A future that is done, and panics when it is dropped.
struct Bomb;

impl Future for Bomb {
    type Output = Result<(), BoxError>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("it goes off")
    }
}

#[tokio::test]
async fn a_handlers_conversions_and_destructors_are_its_own_failure() {
    let idem = Idem::new(MemoryStore::new());
    let unspeakable = Handler::outside(&idem, "billing", |()| async { Err::<(), _>(Unspeakable) });
    let bomb = Handler::outside(&idem, "billing", |()| Bomb);
    for handled in [unspeakable.unwrap().handle("1", ()).await, bomb.unwrap().handle("1", ()).await]
    {
        let error = handled.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Work), "{error:?}");
    }
    assert!(!idem.is_processed("billing", "1").await.unwrap());
}

#[tokio::test]
async fn a_background_purge_tells_of_each_failure_and_outlives_a_panic_of_who_is_told() {
    let clock = ManualClock::at(Timestamp::from_millis(0));
    let idem = Idem::new(MemoryStore::builder().clock(clock.clone()).build());
    let (told, mut tells) = tokio::sync::mpsc::unbounded_channel();
    let on_failure = move |error: &Error| {
        told.send(format!("{:?}", error.kind())).unwrap();
        panic!("on purpose");
    };
    let purging = idem.spawn_purge_with(Duration::from_secs(1), 10, on_failure).unwrap();
    idem.close().await.unwrap();
    clock.advance(Duration::from_secs(1));
    assert_eq!(tells.recv().await.unwrap(), "Closed");
    // The task has ended, and with it who is told.
    assert_eq!(tells.recv().await, None);
    assert_eq!(purging.failures(), 1);
}
