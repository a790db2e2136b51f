//! The loop between a queue and a handler: what a queue brings when the loop ends, and who else is on its thread.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Waker},
    time::Duration,
};

use async_trait::async_trait;
use idem_conformance::callers::{give_way, until, within};
use idem_core::{
    BoxError, Error, Idem, ManualClock, Timestamp,
    consumer::{Consumed, Delivery, Handler, Options, Queue, consume},
    testing::MemoryQueue,
};
use idem_memory::MemoryStore;
use tokio::{
    join,
    sync::{Notify, Semaphore},
};

/// A store, and a handler that counts outside it.
struct Place {
    clock: ManualClock,
    idem: Idem<MemoryStore>,
    runs: Arc<AtomicUsize>,
}

impl Place {
    fn new() -> Self {
        let clock = ManualClock::at(Timestamp::from_millis(0));
        let store = MemoryStore::builder().clock(clock.clone()).build();
        Self { clock, idem: Idem::new(store), runs: Arc::default() }
    }

    fn outside(&self) -> Handler<MemoryStore, ()> {
        let runs = Arc::clone(&self.runs);
        let handle = move |()| {
            runs.fetch_add(1, Ordering::SeqCst);
            async { Ok::<(), BoxError>(()) }
        };
        Handler::outside(&self.idem, "billing", handle).unwrap()
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
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
    let place = Place::new();
    let (asked, open) = (AtomicUsize::new(0), Semaphore::new(0));
    let queue = Slow { queue: MemoryQueue::new(), asked, open };
    for event in 0..3 {
        queue.queue.send(event, ());
    }
    let (handler, end) = (place.outside(), Notify::new());
    let options = Options::new().concurrency(2);
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
async fn a_queue_that_does_not_answer_holds_up_the_end_for_twice_as_long_at_most() {
    let place = Place::new();
    let (asked, open) = (AtomicUsize::new(0), Semaphore::new(0));
    let queue = Slow { queue: MemoryQueue::new(), asked, open };
    queue.queue.send("a", ());
    let (handler, end) = (place.outside(), Notify::new());
    let longest = Duration::from_secs(5);
    let options = Options::new().end_within(longest);
    let (mut consuming, mut context) = (
        Box::pin(consume(&queue, &handler, &options, end.notified())),
        Context::from_waker(Waker::noop()),
    );
    assert!(consuming.as_mut().poll(&mut context).is_pending());
    end.notify_one();
    for _ in 0..2 {
        assert!(consuming.as_mut().poll(&mut context).is_pending());
        place.clock.advance(longest - Duration::from_millis(1));
        assert!(consuming.as_mut().poll(&mut context).is_pending());
        place.clock.advance(Duration::from_millis(1));
    }
    let consumed = within("the end", consuming).await.unwrap();
    assert_eq!((consumed, place.runs()), (Consumed::default(), 0));
    assert_eq!(queue.queue.in_flight(), 1, "the queue takes it back by itself");
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

    let place = Place::new();
    let (handler, end) = (place.outside(), Arc::new(Notify::new()));
    let (ended, runs) = (Arc::clone(&end), Arc::clone(&place.runs));
    let ends = tokio::spawn(async move {
        until("the first run", || runs.load(Ordering::SeqCst) == 1).await;
        ended.notify_one();
    });
    let options = Options::new();
    let consuming = consume(&Endless, &handler, &options, end.notified());
    let consumed = within("the end", consuming).await.unwrap();
    assert_eq!((consumed.ran, place.runs()), (1, 1));
    assert!(consumed.duplicates < 100, "{consumed:?}");
    ends.await.unwrap();
}
