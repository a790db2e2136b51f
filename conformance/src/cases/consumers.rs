//! Each event takes effect once per consumer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use idem_core::{
    BoxError, Certainty, Clock, EffectError, Error, ErrorKind, Idem, Key, Outcome, Request, Space,
    Store, Timestamp, Transaction,
    consumer::{Consumed, Delivery, Handled, Handler, Marked, Queue, Recorder, consume},
    testing::MemoryQueue,
};
use tokio::{sync::Barrier, task::JoinSet};

use crate::{
    Fixture,
    callers::within,
    setup::{Setup, Tx, add, count_in, kept, request_for, start_plus},
    steps::{LEASE, claimed, lease},
};

/// A payment; a broken one fails whoever handles it.
#[derive(Clone, Copy, Debug)]
struct Payment {
    amount: u64,
    is_broken: bool,
}

const fn pays(amount: u64) -> Payment {
    Payment { amount, is_broken: false }
}

const BROKEN: Payment = Payment { amount: 100, is_broken: true };

/// What a broken payment fails with.
#[derive(Debug)]
struct Broken;

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the payment is broken")
    }
}

impl std::error::Error for Broken {}

/// How often a handler ran, found a duplicate, and failed.
fn counts(consumed: Consumed) -> [u64; 3] {
    [consumed.ran, consumed.duplicates, consumed.failed]
}

/// A handler of payments in one of its modes, and where their sum is.
struct Till<S: Store> {
    handler: Handler<S, Payment>,
    idem: Idem<S>,
    outside: Option<Arc<AtomicU64>>,
}

impl<S: Store + 'static> Till<S> {
    /// One whose sum is in the store, written with the mark.
    fn atomic(idem: &Idem<S>) -> Self {
        let handle = |tx: &mut S::Transaction, payment: &Payment| pay(tx, *payment);
        let handler = Handler::atomic(idem, "billing", handle).unwrap();
        Self { handler, idem: idem.clone(), outside: None }
    }

    /// One whose sum is outside the store; the mark follows.
    fn outside(idem: &Idem<S>) -> Self {
        let outside = Arc::new(AtomicU64::new(0));
        let sum = Arc::clone(&outside);
        let handle = move |payment: Payment| {
            let sum = Arc::clone(&sum);
            async move {
                if payment.is_broken {
                    return Err(Broken);
                }
                sum.fetch_add(payment.amount, Ordering::SeqCst);
                Ok(())
            }
        };
        let handler = Handler::new(idem, "billing", handle).unwrap();
        Self { handler, idem: idem.clone(), outside: Some(outside) }
    }

    fn both(idem: &Idem<S>) -> [Self; 2] {
        [Self::atomic(idem), Self::outside(idem)]
    }

    async fn sum(&self) -> u64 {
        match &self.outside {
            Some(sum) => sum.load(Ordering::SeqCst),
            None => count_in(&self.idem, &Space::consumer("billing").unwrap(), "sum").await,
        }
    }
}

/// Adds a payment to the sum, then fails if it is broken.
fn pay<Tx: Transaction + ?Sized>(tx: &mut Tx, payment: Payment) -> Result<(), EffectError> {
    let sum = tx.get(b"sum")?.map_or("0".into(), |sum| String::from_utf8_lossy(&sum).into_owned());
    let sum = sum.parse::<u64>()? + payment.amount;
    tx.put(b"sum", sum.to_string().as_bytes())?;
    if payment.is_broken { Err(Broken.into()) } else { Ok(()) }
}

async fn is_marked<S: Store>(idem: &Idem<S>, event_id: &str) -> bool {
    idem.store().is_processed("billing", event_id).await.unwrap()
}

/// 90. An unmarked event is not processed, a marked one is; marking again is harmless and says so.
pub async fn a_marked_event_is_processed_and_marking_again_says_so<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let store = setup.idem.store();
    assert!(!store.is_processed("billing", "e").await.unwrap());
    assert!(!store.is_processed("billing", "e").await.unwrap(), "asking must not mark");
    assert_eq!(store.mark_processed("billing", "e").await.unwrap(), Marked::First);
    let before = kept(store, 10).await;
    for _ in 0..3 {
        assert!(store.is_processed("billing", "e").await.unwrap());
        setup.clock.advance(Duration::from_secs(1));
        assert_eq!(store.mark_processed("billing", "e").await.unwrap(), Marked::Again);
    }
    assert_eq!(kept(store, 10).await, before, "marking again must change nothing");
    assert!(!store.is_processed("billing", "E").await.unwrap());
    assert!(setup.handle().await.store().is_processed("billing", "e").await.unwrap());
}

/// 91. Consumers do not see each other's marks, also where names and ids join to the same text.
pub async fn consumers_do_not_see_each_others_marks<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let store = setup.idem.store();
    let events = [
        ("billing", "e"),
        ("Billing", "e"),
        ("billing ", "e"),
        ("shipping", "e"),
        ("billing", "e "),
        ("a", "bc"),
        ("ab", "c"),
        ("a:b", "c"),
        ("a", "b:c"),
    ];
    for (number, (consumer, event)) in events.into_iter().enumerate() {
        assert_eq!(store.mark_processed(consumer, event).await.unwrap(), Marked::First);
        for (other, (consumer, event)) in events.into_iter().enumerate() {
            let processed = store.is_processed(consumer, event).await.unwrap();
            assert_eq!(processed, other <= number, "{consumer:?} and {event:?}");
        }
    }
}

/// 92. Of 64 who mark one event at the same time, one is first.
pub async fn of_many_marks_one_is_first<F: Fixture>() {
    const CALLERS: usize = 64;
    let setup = Setup::<F>::new().await;
    let barrier = Arc::new(Barrier::new(CALLERS));
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let (idem, barrier) = (setup.idem.clone(), Arc::clone(&barrier));
        callers.spawn(async move {
            barrier.wait().await;
            let marked = idem.store().mark_processed("billing", "e").await.unwrap();
            assert!(is_marked(&idem, "e").await, "what was marked is processed");
            marked
        });
    }
    let marks = within("marks of one event", callers.join_all()).await;
    let first = marks.iter().filter(|marked| **marked == Marked::First).count();
    assert_eq!((first, marks.len()), (1, CALLERS));
}

/// 93. A handler that failed leaves no mark, and redelivery runs it; one that succeeded runs no more.
pub async fn a_failure_is_not_marked_and_a_success_is<F: Fixture>() {
    for mode in [0, 1] {
        let setup = Setup::<F>::new().await;
        let till = &Till::both(&setup.idem)[mode];
        let error = till.handler.handle("e", BROKEN).await.unwrap_err();
        let is_handlers = matches!(error.kind(), ErrorKind::Work);
        let is_effects = matches!(error.kind(), ErrorKind::Effect);
        let is_outside = till.outside.is_some();
        assert_eq!((is_handlers, is_effects), (is_outside, !is_outside), "{error:?}");
        let source = std::error::Error::source(&error).expect("the handler's own error");
        assert!(source.is::<Broken>(), "the handler's error must keep its type: {source:?}");
        assert_eq!(error.certainty(), Certainty::NothingDone);
        assert!(!is_marked(&setup.idem, "e").await, "a failure must not be marked");
        assert_eq!(till.handler.handle("e", pays(100)).await.unwrap(), Handled::Ran);
        assert!(is_marked(&setup.idem, "e").await, "a success must be marked");
        for payment in [pays(100), BROKEN] {
            let third = till.handler.handle("e", payment).await.unwrap();
            assert_eq!(third, Handled::Duplicate, "a marked event must not run");
        }
        assert_eq!(till.sum().await, 100);
        let again = setup.idem.store().mark_processed("billing", "e").await.unwrap();
        assert_eq!(again, Marked::Again, "a handler's mark is the recorder's");
    }
}

/// 93. An event that was marked without a handler is a duplicate to both modes.
pub async fn a_recorded_event_is_a_duplicate_to_a_handler<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let _ = setup.idem.store().mark_processed("billing", "e").await.unwrap();
    for till in Till::both(&setup.idem) {
        assert_eq!(till.handler.handle("e", pays(100)).await.unwrap(), Handled::Duplicate);
        assert_eq!(till.sum().await, 0);
    }
}

/// 94. An atomic handler that wrote and failed, or panicked, leaves neither write nor mark.
pub async fn an_atomic_handler_that_failed_leaves_no_write<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let till = Till::atomic(&setup.idem);
    assert_eq!(till.handler.handle("first", pays(1)).await.unwrap(), Handled::Ran);
    assert!(till.handler.handle("e", BROKEN).await.is_err());
    let panics = |tx: &mut <F::Store as Store>::Transaction, (): &()| {
        pay(tx, pays(100))?;
        panic!("on purpose")
    };
    let panics = Handler::atomic(&setup.idem, "billing", panics).unwrap();
    let error = panics.handle("e", ()).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Panicked(message) if message == "on purpose"));
    assert_eq!(till.sum().await, 1, "a failed handler's write must not stay");
    assert!(!is_marked(&setup.idem, "e").await);
    assert_eq!(till.handler.handle("e", pays(100)).await.unwrap(), Handled::Ran);
    assert_eq!(till.sum().await, 101);
}

/// 95. A payment of 100, once failing and once more, and one of 50: the balance is 150, and the queue empty.
pub async fn a_queue_with_a_failure_and_a_duplicate_ends_at_its_sum<F: Fixture>() {
    for mode in [0, 1] {
        let setup = Setup::<F>::new().await;
        let till = &Till::both(&setup.idem)[mode];
        let queue = MemoryQueue::new();
        queue.send("e-100", BROKEN);
        queue.send("e-100", pays(100));
        queue.send("e-50", pays(50));
        let consumed = consume(&queue, &till.handler).await.unwrap();
        // The broken delivery comes again when its event is done.
        assert_eq!(counts(consumed), [2, 1, 1]);
        assert_eq!(till.sum().await, 150);
        assert!(queue.is_empty(), "what was handled must be acked: {queue:?}");
    }
}

/// 96. A crash between the commit and the ack: delivered again, acked, and no second effect.
pub async fn a_delivery_that_was_not_acked_takes_no_second_effect<F: Fixture>() {
    for mode in [0, 1] {
        let setup = Setup::<F>::new().await;
        let till = &Till::both(&setup.idem)[mode];
        let queue = LosesAnAck { queue: MemoryQueue::new(), loses: AtomicBool::new(true) };
        queue.queue.send("e-100", pays(100));
        queue.queue.send("e-50", pays(50));
        let error = consume(&queue, &till.handler).await.unwrap_err();
        assert!(error.is::<Broken>(), "the queue's own error: {error:?}");
        assert_eq!((till.sum().await, queue.queue.in_flight()), (100, 1));
        assert!(is_marked(&setup.idem, "e-100").await, "the commit came before the ack");
        queue.queue.take_back();
        let consumed = consume(&queue, &till.handler).await.unwrap();
        assert_eq!(counts(consumed), [1, 1, 0]);
        assert_eq!(till.sum().await, 150);
        assert!(queue.queue.is_empty());
    }
}

/// A queue whose consumer crashes before its first ack.
struct LosesAnAck {
    queue: MemoryQueue<Payment>,
    loses: AtomicBool,
}

#[async_trait]
impl Queue for LosesAnAck {
    type Message = Payment;
    type Tag = u64;

    async fn receive(&self, max: usize) -> Result<Vec<Delivery<Payment, u64>>, BoxError> {
        self.queue.receive(max).await
    }

    async fn ack(&self, tag: &u64) -> Result<(), BoxError> {
        if self.loses.swap(false, Ordering::SeqCst) {
            return Err(Broken.into());
        }
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

/// 97. A duplicate inside one batch, and an event that was recorded earlier, are acked and do not run.
pub async fn duplicates_are_acked_without_running<F: Fixture>() {
    for mode in [0, 1] {
        let setup = Setup::<F>::new().await;
        let till = &Till::both(&setup.idem)[mode];
        let earlier = setup.idem.store().mark_processed("billing", "earlier").await.unwrap();
        assert_eq!(earlier, Marked::First);
        let queue = MemoryQueue::new();
        for (event, amount) in [("earlier", 1), ("twice", 10), ("twice", 10), ("once", 100)] {
            queue.send(event, pays(amount));
        }
        let consumed = consume(&queue, &till.handler).await.unwrap();
        assert_eq!(counts(consumed), [2, 2, 0]);
        assert_eq!(till.sum().await, 110);
        assert!(queue.is_empty(), "duplicates must be acked: {queue:?}");
    }
}

/// 93. A handler does not run while a live claim holds its event, whichever its mode.
pub async fn a_handler_does_not_run_on_a_claimed_event<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    for (number, till) in Till::both(&setup.idem).into_iter().enumerate() {
        let event_id = format!("event-{number}");
        let key = Key::event("billing", &event_id).unwrap();
        let before = till.sum().await;
        claimed(&setup.idem, &Request::new(key)).await;
        let end = setup.clock.now().after(lease(LEASE));
        let error = till.handler.handle(&event_id, pays(1)).await.unwrap_err();
        let ErrorKind::InProgress { until } = *error.kind() else {
            panic!("the event is held: {error:?}")
        };
        assert_eq!(Some(until), end);
        assert_eq!(till.sum().await, before, "the handler must not run");
        setup.clock.set(until);
        assert_eq!(till.handler.handle(&event_id, pays(1)).await.unwrap(), Handled::Ran);
        assert_eq!(till.sum().await, before + 1);
        assert!(is_marked(&setup.idem, &event_id).await);
    }
}

/// 93. A panic of a handler is one failed delivery: the event is not marked and comes again.
pub async fn a_panicking_handler_is_a_failed_delivery<F: Fixture>() {
    for atomic in [true, false] {
        let setup = Setup::<F>::new().await;
        let first = Arc::new(AtomicBool::new(true));
        let panics_once = move || assert!(!first.swap(false, Ordering::SeqCst), "the first time");
        let handler = if atomic {
            Handler::atomic(&setup.idem, "billing", move |tx: &mut Tx<F>, _: &()| {
                add(tx, "count")?;
                panics_once();
                Ok(())
            })
        } else {
            Handler::new(&setup.idem, "billing", move |()| {
                panics_once();
                async { Ok::<(), Broken>(()) }
            })
        };
        let queue = MemoryQueue::new();
        queue.send("event", ());
        let consumed = within("the queue", consume(&queue, &handler.unwrap())).await.unwrap();
        assert_eq!(counts(consumed), [1, 0, 1]);
        assert!(queue.is_empty() && is_marked(&setup.idem, "event").await);
        let space = Space::consumer("billing").unwrap();
        assert_eq!(count_in(&setup.idem, &space, "count").await, u64::from(atomic));
    }
}

/// 93. A handler whose mark cannot be made, since it would expire beyond the end of time, does not run.
pub async fn a_handler_whose_mark_cannot_be_made_does_not_run<F: Fixture>() {
    let setup = Setup::<F>::at(Timestamp::from_millis(i64::MAX - 5)).await;
    for till in Till::both(&setup.idem) {
        let too_long = Till { handler: till.handler.retain(Duration::from_millis(6)), ..till };
        let error = too_long.handler.handle("event", pays(1)).await.unwrap_err();
        let is_retention =
            matches!(error.kind(), ErrorKind::InvalidDuration { field: "retention", .. });
        assert!(is_retention, "{error:?}");
        assert_eq!(too_long.sum().await, 0, "the handler must not run");
        assert!(!is_marked(&setup.idem, "event").await);
    }
}

/// 90. A mark lives forever unless told; a handler's retention ends it exactly, and may not be zero.
pub async fn a_mark_lives_forever_unless_told<F: Fixture>() {
    for mode in [0, 1] {
        let setup = Setup::<F>::new().await;
        let store = setup.idem.store();
        let [forever, brief] = [(); 2].map(|()| {
            let [atomic, outside] = Till::both(&setup.idem);
            if mode == 0 { atomic } else { outside }
        });
        assert_eq!(store.mark_processed("billing", "marked").await.unwrap(), Marked::First);
        assert_eq!(forever.handler.handle("handled", pays(1)).await.unwrap(), Handled::Ran);
        let before = forever.sum().await;
        let zero = Till { handler: brief.handler.retain(Duration::ZERO), ..brief };
        let error = zero.handler.handle("brief", pays(1)).await.unwrap_err();
        let is_retention =
            matches!(error.kind(), ErrorKind::InvalidDuration { field: "retention", .. });
        assert!(is_retention, "{error:?}");
        assert!(!is_marked(&setup.idem, "brief").await);
        let brief = zero.handler.retain(Duration::from_micros(59_999_001));
        assert_eq!(forever.sum().await, before, "a handler must not run under a bad retention");
        assert_eq!(brief.handle("brief", pays(1)).await.unwrap(), Handled::Ran);
        setup.clock.set(start_plus(59_999));
        assert!(is_marked(&setup.idem, "brief").await);
        assert_eq!(brief.handle("brief", pays(1)).await.unwrap(), Handled::Duplicate);
        setup.clock.set(start_plus(60_000));
        assert!(!is_marked(&setup.idem, "brief").await, "a mark ends with its retention");
        assert_eq!(brief.handle("brief", pays(1)).await.unwrap(), Handled::Ran);
        assert!(is_marked(&setup.idem, "brief").await);
        setup.clock.set(Timestamp::from_millis(i64::MAX));
        assert_eq!(setup.idem.purge(10).await.unwrap().removed, 1, "the brief mark alone");
        for event in ["marked", "handled"] {
            assert!(is_marked(&setup.idem, event).await, "{event} must live forever");
            let again = forever.handler.handle(event, pays(1)).await.unwrap();
            assert_eq!(again, Handled::Duplicate, "{event} must live forever");
        }
    }
}

/// 91. A mark is no receipt of a tenant with the consumer's name, and their values are apart.
pub async fn a_consumer_is_no_tenant_of_its_name<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let till = Till::atomic(&setup.idem);
    assert_eq!(till.handler.handle("e", pays(100)).await.unwrap(), Handled::Ran);
    let of_tenant = Key::new("billing", "e", "e").unwrap();
    assert_eq!(setup.idem.receipt(&of_tenant).await.unwrap(), None);
    assert_eq!(setup.count("billing", "sum").await, 0, "a tenant must not see a consumer's value");
    let created = setup.add(&request_for(of_tenant.clone(), "p"), "sum").await;
    assert_eq!(created, Outcome::Created(1));
    assert_eq!((till.sum().await, setup.count("billing", "sum").await), (100, 1));
    assert!(setup.idem.forget(&of_tenant).await.unwrap());
    assert!(is_marked(&setup.idem, "e").await, "forgetting a tenant's key must leave the mark");
    let other = |tx: &mut <F::Store as Store>::Transaction, (): &()| add(tx, "sum").map(|_| ());
    let other = Handler::atomic(&setup.idem, "shipping", other).unwrap();
    assert_eq!(other.handle("e", ()).await.unwrap(), Handled::Ran);
    assert_eq!(count_in(&setup.idem, &Space::consumer("shipping").unwrap(), "sum").await, 1);
    assert_eq!(till.sum().await, 100, "a consumer's values must be its own");
    // The mark itself is the event's receipt, and can be forgotten by its own key.
    assert!(setup.idem.forget(&Key::event("billing", "e").unwrap()).await.unwrap());
    assert!(!is_marked(&setup.idem, "e").await);
}

/// 92. Of many deliveries of one event to atomic handlers at the same time, one takes effect.
pub async fn of_many_deliveries_to_an_atomic_handler_one_takes_effect<F: Fixture>() {
    const CALLERS: usize = 16;
    let setup = Setup::<F>::new().await;
    let till = Arc::new(Till::atomic(&setup.idem));
    let barrier = Arc::new(Barrier::new(CALLERS));
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let (till, barrier) = (Arc::clone(&till), Arc::clone(&barrier));
        callers.spawn(async move {
            barrier.wait().await;
            till.handler.handle("e", pays(100)).await.unwrap()
        });
    }
    let handled = within("deliveries of one event", callers.join_all()).await;
    let ran = handled.iter().filter(|handled| **handled == Handled::Ran).count();
    assert_eq!((ran, till.sum().await), (1, 100));
}
