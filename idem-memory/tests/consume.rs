//! The loop between a queue and a handler while its store fails, and what a queue brings when the loop ends.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use idem_conformance::callers::{as_time_passes, give_way, until, within};
use idem_core::{
    BoxError, BoxFuture, BoxStep, Certainty, Committed, Cursor, Error, ErrorKind, Guarantees, Idem,
    Key, ManualClock, Page, Purged, Space, Store, Timestamp, Transaction,
    consumer::{Consumed, Delivery, Handler, Options, Queue, Recorder, consume, drain},
    testing::MemoryQueue,
};
use idem_memory::MemoryStore;
use tokio::{
    join,
    sync::{Notify, Semaphore},
};

const SECOND: Duration = Duration::from_secs(1);

/// When a call of a [`Flaky`] store fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fails {
    Before,
    /// After it has committed what it was asked for.
    After,
}

/// How many calls go well, and how what comes then fails.
type Fault = (usize, fn() -> Error, Fails);

/// A memory store that fails as planned.
struct Flaky {
    store: MemoryStore,
    faults: Mutex<Vec<Fault>>,
    failed: Arc<AtomicUsize>,
}

#[async_trait]
impl Store for Flaky {
    type Transaction = <MemoryStore as Store>::Transaction;

    async fn transact(
        &self,
        key: &Key,
        step: BoxStep<Self::Transaction>,
    ) -> Result<Committed, Error> {
        let fault = {
            let mut faults = self.faults.lock().unwrap();
            match faults.first_mut() {
                Some((0, ..)) => Some(faults.remove(0)),
                Some((good, ..)) => {
                    *good -= 1;
                    None
                }
                None => None,
            }
        };
        let Some((_, error, fails)) = fault else { return self.store.transact(key, step).await };
        if fails == Fails::After {
            self.store.transact(key, step).await.unwrap();
        }
        self.failed.fetch_add(1, Ordering::SeqCst);
        Err(error())
    }

    async fn purge(&self, limit: usize) -> Result<Purged, Error> {
        self.store.purge(limit).await
    }

    async fn value(&self, space: &Space, name: &[u8]) -> Result<Option<Bytes>, Error> {
        self.store.value(space, name).await
    }

    async fn list(&self, after: Option<&Cursor>, limit: usize) -> Result<Page, Error> {
        self.store.list(after, limit).await
    }

    async fn close(&self) -> Result<(), Error> {
        self.store.close().await
    }

    fn guarantees(&self) -> Guarantees {
        self.store.guarantees()
    }

    fn detach(&self, task: BoxFuture<()>) {
        self.store.detach(task);
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        self.store.sleep(duration)
    }
}

fn busy() -> Error {
    Error::nothing_done(ErrorKind::Busy { waited: SECOND })
}

fn unreachable() -> Error {
    Error::new(ErrorKind::Unreachable { waited: SECOND }, Certainty::Unknown)
}

fn engine() -> Error {
    Error::nothing_done(ErrorKind::Store)
}

fn engine_in_doubt() -> Error {
    Error::new(ErrorKind::Store, Certainty::Unknown)
}

fn contended() -> Error {
    Error::nothing_done(ErrorKind::Contended { attempts: 3 })
}

fn damaged() -> Error {
    Error::nothing_done(ErrorKind::Damaged { problem: "on purpose".to_string() })
}

/// A queue and a store that fails as planned, on one clock.
struct Place {
    clock: ManualClock,
    idem: Idem<Flaky>,
    failed: Arc<AtomicUsize>,
    runs: Arc<AtomicUsize>,
    queue: MemoryQueue<()>,
}

impl Place {
    fn new(faults: &[Fault]) -> Self {
        let clock = ManualClock::at(Timestamp::from_millis(0));
        let failed = Arc::new(AtomicUsize::new(0));
        let store = MemoryStore::builder().clock(clock.clone()).build();
        let faults = Mutex::new(faults.to_vec());
        let idem = Idem::new(Flaky { store, faults, failed: Arc::clone(&failed) });
        let queue = MemoryQueue::with_visibility(clock.clone(), 600 * SECOND);
        Self { clock, idem, failed, runs: Arc::default(), queue }
    }

    /// One that counts outside the store, and is marked afterwards.
    fn outside(&self) -> Handler<Flaky, ()> {
        let runs = Arc::clone(&self.runs);
        let handle = move |()| {
            runs.fetch_add(1, Ordering::SeqCst);
            async { Ok::<(), BoxError>(()) }
        };
        Handler::new(&self.idem, "billing", handle).unwrap()
    }

    /// One that counts in the store.
    fn atomic(&self) -> Handler<Flaky, ()> {
        let handle = |tx: &mut <Flaky as Store>::Transaction, (): &()| {
            let count = tx.get(b"count")?.map_or(0, |count| count[0]) + 1;
            tx.put(b"count", &[count])?;
            Ok(())
        };
        Handler::atomic(&self.idem, "billing", handle).unwrap()
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    fn failed(&self) -> usize {
        self.failed.load(Ordering::SeqCst)
    }

    async fn count(&self) -> u8 {
        let count = self.idem.value(&Space::consumer("billing").unwrap(), b"count").await.unwrap();
        count.map_or(0, |count| count[0])
    }

    async fn is_marked(&self, event: &str) -> bool {
        self.idem.store().store.is_processed("billing", event).await.unwrap()
    }

    async fn drained(&self, handler: &Handler<Flaky, ()>, options: &Options) -> Consumed {
        let draining = drain(&self.queue, handler, options);
        as_time_passes("the queue", &self.clock, SECOND / 2, draining).await.unwrap()
    }
}

fn options() -> Options {
    Options::new().attempts(1).back_off(SECOND, 4 * SECOND)
}

#[tokio::test]
async fn while_a_mark_cannot_be_made_it_alone_is_tried_again_and_nothing_is_received() {
    for error in [busy, unreachable, engine, engine_in_doubt] {
        // The look goes well.
        let faults = [(1, error as fn() -> Error, Fails::Before), (0, error, Fails::Before)];
        let place = Place::new(&faults);
        place.queue.send("a", ());
        place.queue.send("b", ());
        let (handler, options) = (place.outside(), options().concurrency(2).batch(1));
        let script = async {
            until("the mark's failure", || place.failed() == 1).await;
            give_way().await;
            assert_eq!((place.queue.ready(), place.queue.in_flight(), place.runs()), (1, 1, 1));
            assert!(!place.is_marked("a").await);
            place.clock.advance(SECOND);
            until("its second failure", || place.failed() == 2).await;
            give_way().await;
            assert_eq!((place.queue.ready(), place.queue.in_flight(), place.runs()), (1, 1, 1));
            place.clock.advance(2 * SECOND);
        };
        let draining = within("the queue", drain(&place.queue, &handler, &options));
        let (consumed, ()) = join!(draining, script);
        let consumed = consumed.unwrap();
        assert_eq!((consumed.ran, consumed.failed, consumed.set_aside), (2, 0, 0));
        assert_eq!((consumed.store_failures, place.runs()), (2, 2));
        assert!(place.queue.is_empty() && place.is_marked("a").await && place.is_marked("b").await);
    }
}

#[tokio::test]
async fn a_mark_in_doubt_is_asked_for_again_and_the_handler_does_not_run_again() {
    let place = Place::new(&[(1, unreachable, Fails::After)]);
    place.queue.send("a", ());
    let consumed = place.drained(&place.outside(), &options()).await;
    assert_eq!((consumed.ran, consumed.duplicates, place.runs()), (1, 0, 1));
    assert!(place.queue.is_empty() && place.is_marked("a").await);
}

#[tokio::test]
async fn a_look_that_fails_is_made_again_before_the_handler_runs() {
    let place = Place::new(&[(0, busy, Fails::Before), (0, engine, Fails::Before)]);
    place.queue.send("a", ());
    let (handler, options) = (place.outside(), options());
    let script = async {
        until("the look's failure", || place.failed() == 1).await;
        give_way().await;
        assert_eq!(place.runs(), 0);
    };
    let (consumed, ()) = join!(place.drained(&handler, &options), script);
    assert_eq!((consumed.ran, consumed.failed, place.runs()), (1, 0, 1));
    assert_eq!(consumed.store_failures, 2);
}

#[tokio::test]
async fn an_atomic_handler_takes_effect_once_whatever_its_store_could_tell() {
    for (error, fails, ran) in [
        (busy as fn() -> Error, Fails::Before, 1),
        (contended, Fails::Before, 1),
        (unreachable, Fails::Before, 1),
        (unreachable, Fails::After, 0),
        (engine_in_doubt, Fails::After, 0),
    ] {
        let place = Place::new(&[(0, error, fails), (0, busy, Fails::Before)]);
        place.queue.send("a", ());
        let consumed = place.drained(&place.atomic(), &options()).await;
        assert_eq!((consumed.ran, consumed.duplicates), (ran, 1 - ran), "{:?}", error());
        assert_eq!((consumed.failed, consumed.set_aside, place.count().await), (0, 0, 1));
        assert!(place.queue.is_empty() && place.is_marked("a").await);
    }
}

#[tokio::test]
async fn what_is_wrong_with_one_delivery_costs_it_an_attempt() {
    // A commit that fails in the engine's own way may do so for what the effect wrote.
    for error in [damaged, engine] {
        let place =
            Place::new(&[(0, error as fn() -> Error, Fails::Before), (0, error, Fails::Before)]);
        place.queue.send("a", ());
        let consumed = place.drained(&place.atomic(), &options().attempts(2)).await;
        assert_eq!((consumed.ran, consumed.failed, consumed.set_aside), (0, 1, 1));
        assert_eq!((place.queue.dead_letters().len(), place.count().await), (1, 0));
        assert!(!place.is_marked("a").await);
    }
}

#[tokio::test]
async fn a_key_in_use_is_in_no_other_deliverys_way() {
    let faults = [(1, contended as fn() -> Error, Fails::Before)];
    let place = Place::new(&faults);
    for event in ["a", "b"] {
        place.queue.send(event, ());
    }
    let (handler, options) = (place.outside(), options().concurrency(2).batch(1));
    let script = async {
        until("the other delivery", || place.queue.ready() == 0 && place.queue.in_flight() == 1)
            .await;
        assert_eq!((place.is_marked("a").await, place.is_marked("b").await), (false, true));
        place.clock.advance(SECOND);
    };
    let (consumed, ()) = join!(drain(&place.queue, &handler, &options), script);
    assert_eq!((consumed.unwrap().ran, place.runs()), (2, 2));
}

#[tokio::test]
async fn a_loop_that_is_ended_while_its_store_fails_asks_once_more_and_gives_back() {
    for (faults, given_back) in [(3, 1), (2, 1), (1, 0)] {
        let faults: Vec<Fault> = (0..faults).map(|_| (0, busy as _, Fails::Before)).collect();
        let place = Place::new(&faults);
        place.queue.send("a", ());
        place.queue.send("b", ());
        let (handler, options, end) = (place.atomic(), options(), Notify::new());
        let script = async {
            until("the failure", || place.failed() == 1).await;
            give_way().await;
            end.notify_one();
        };
        let consuming = consume(&place.queue, &handler, &options, end.notified());
        let (consumed, ()) = join!(within("the end", consuming), script);
        let consumed = consumed.unwrap();
        assert_eq!((consumed.given_back, consumed.ran), (given_back, 1 - given_back));
        assert_eq!((consumed.failed, consumed.set_aside), (0, 0));
        assert_eq!(place.is_marked("a").await, given_back == 0);
        assert_eq!((place.queue.in_flight(), place.queue.ready() as u64), (0, 1 + given_back));
    }
}

/// A queue whose answers are held until they are let go.
struct Slow {
    queue: MemoryQueue<()>,
    asked: AtomicUsize,
    open: Semaphore,
}

#[async_trait]
impl Queue for Slow {
    type Message = ();
    type Tag = u64;

    async fn receive(&self, max: usize) -> Result<Vec<Delivery<(), u64>>, BoxError> {
        let deliveries = self.queue.receive(max).await;
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.open.acquire().await?.forget();
        deliveries
    }

    async fn ack(&self, tag: &u64) -> Result<(), BoxError> {
        self.queue.ack(tag).await
    }

    async fn nack(&self, tag: &u64, reason: &Error) -> Result<(), BoxError> {
        self.queue.nack(tag, reason).await
    }

    async fn set_aside(&self, tag: &u64, reason: &Error) -> Result<(), BoxError> {
        self.queue.set_aside(tag, reason).await
    }

    async fn extend(&self, tag: &u64) -> Result<(), BoxError> {
        self.queue.extend(tag).await
    }

    fn visibility(&self) -> Option<Duration> {
        self.queue.visibility()
    }

    fn horizon(&self) -> Option<Duration> {
        self.queue.horizon()
    }
}

#[tokio::test]
async fn what_the_queue_brings_when_the_loop_is_ended_is_given_back() {
    let place = Place::new(&[]);
    let (asked, open) = (AtomicUsize::new(0), Semaphore::new(0));
    let queue = Slow { queue: MemoryQueue::new(), asked, open };
    for event in 0..3 {
        queue.queue.send(event, ());
    }
    let (handler, end) = (place.outside(), Notify::new());
    let options = options().concurrency(2);
    let script = async {
        until("the question", || queue.asked.load(Ordering::SeqCst) == 1).await;
        end.notify_one();
        give_way().await;
        assert_eq!((queue.queue.ready(), queue.queue.in_flight()), (1, 2), "it is waited for");
        queue.open.add_permits(9);
    };
    let consuming = consume(&queue, &handler, &options, end.notified());
    let (consumed, ()) = join!(within("the end", consuming), script);
    let consumed = consumed.unwrap();
    assert_eq!((consumed.given_back, consumed.ran, place.runs()), (2, 0, 0));
    assert_eq!((queue.queue.ready(), queue.queue.in_flight()), (3, 0));
    assert_eq!(queue.asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_loop_that_always_has_work_lets_others_of_its_thread_go_on() {
    /// Never empty.
    struct Endless;

    #[async_trait]
    impl Queue for Endless {
        type Message = ();
        type Tag = ();

        async fn receive(&self, _: usize) -> Result<Vec<Delivery<(), ()>>, BoxError> {
            Ok(vec![Delivery::new("always", (), ())])
        }

        async fn ack(&self, (): &()) -> Result<(), BoxError> {
            Ok(())
        }

        async fn nack(&self, (): &(), _: &Error) -> Result<(), BoxError> {
            Ok(())
        }

        async fn set_aside(&self, (): &(), _: &Error) -> Result<(), BoxError> {
            Ok(())
        }

        async fn extend(&self, (): &()) -> Result<(), BoxError> {
            Ok(())
        }

        fn visibility(&self) -> Option<Duration> {
            None
        }

        fn horizon(&self) -> Option<Duration> {
            None
        }
    }

    let place = Place::new(&[]);
    let (handler, end) = (place.outside(), Arc::new(Notify::new()));
    let (ended, runs) = (Arc::clone(&end), Arc::clone(&place.runs));
    let ends = tokio::spawn(async move {
        until("the first run", || runs.load(Ordering::SeqCst) == 1).await;
        ended.notify_one();
    });
    let options = options();
    let consuming = consume(&Endless, &handler, &options, end.notified());
    let consumed = within("the end", consuming).await.unwrap();
    assert_eq!((consumed.ran, place.runs()), (1, 1));
    assert!(consumed.duplicates < 100, "{consumed:?}");
    ends.await.unwrap();
}
