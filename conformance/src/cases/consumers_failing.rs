//! Each event takes effect once per consumer: handlers that fail, deliveries that are lost or too many, and what is
//! refused.

use std::{
    error::Error as StdError,
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use async_trait::async_trait;
use idem_core::{
    BoxError, Clock, Error, ErrorKind, Fingerprint, Key, Request,
    consumer::{Consumed, CutShort, Delivery, Handled, Handler, Options, Queue, consume, drain},
    testing::{MemoryQueue, QueueFails},
};
use tokio::{join, sync::Notify};

use super::till::{
    BROKEN, Gate, Payment, SECOND, Till, counts, drained, drained_slowly, few_at_a_time, is_marked,
    pays,
};
use crate::{
    Fixture,
    callers::{give_way, until, within},
    setup::{Setup, Tx, add},
    steps::{LEASE, claimed},
};

/// 93. An event that a lease holds is in progress, whatever payload the lease has. When the lease has ended without an
///     answer, the event is handled with the lease's payload, and with another it is a conflict.
pub async fn an_event_is_in_progress_until_its_lease_ends_whatever_its_payload<F: Fixture>() {
    let payloads = [(None, false), (Some(2), false), (Some(1), true)];
    for (mode, (of_lease, is_same)) in [0, 1].into_iter().flat_map(|m| payloads.map(|p| (m, p))) {
        let setup = Setup::<F>::new().await;
        let [atomic, outside] = Till::both(&setup.idem);
        let till = if mode == 0 { atomic } else { outside };
        let by_amount = |payment: &Payment| Ok(Fingerprint::of(&payment.amount)?);
        let till = Till { handler: till.handler.fingerprint(by_amount), ..till };
        let mut request = Request::new(Key::event("billing", "e").unwrap());
        if let Some(amount) = of_lease {
            request = request.with_fingerprint(Fingerprint::of(&pays(amount).amount).unwrap());
        }
        claimed(&setup.idem, &request).await;
        let error = till.handler.handle("e", pays(1)).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::InProgress { .. }), "{error:?}");
        let queue = MemoryQueue::new();
        queue.send("e", pays(1));
        let options = Options::new().attempts(1);
        let consumed = drained_slowly(&setup.clock, &queue, &till.handler, &options).await;
        let (ran, conflicts) = if is_same { (1, 0) } else { (0, 1_u64) };
        assert_eq!((consumed.ran, consumed.conflicts), (ran, conflicts), "{of_lease:?}");
        assert_eq!(till.sum().await, ran);
        assert!(queue.is_empty());
        assert_eq!(queue.dead_letters().len() as u64, conflicts);
    }
}

/// 93. A delivery whose event a lease holds asks again when the lease ends, however long the pauses are.
pub async fn a_pause_does_not_last_beyond_the_lease<F: Fixture>() {
    for mode in [0, 1] {
        let setup = Setup::<F>::new().await;
        let till = &Till::both(&setup.idem)[mode];
        claimed(&setup.idem, &Request::new(Key::event("billing", "e").unwrap())).await;
        let queue = MemoryQueue::new();
        queue.send("e", pays(1));
        let options = Options::new().back_off(3_600 * SECOND, 3_600 * SECOND);
        let script = async {
            until("the pause", || setup.clock.sleepers() == 1).await;
            setup.clock.advance(Duration::from_millis(LEASE.unsigned_abs()));
        };
        let (consumed, ()) = join!(drained(&queue, &till.handler, &options), script);
        assert_eq!((counts(consumed), till.sum().await), ([1, 0, 0], 1));
    }
}

/// 98. Handlers that fail in a row slow the loop down, more and more; a success ends the pause.
pub async fn handlers_that_fail_in_a_row_slow_the_loop_down<F: Fixture>() {
    for mode in [0, 1] {
        let setup = Setup::<F>::new().await;
        let till = &Till::both(&setup.idem)[mode];
        let queue = MemoryQueue::new();
        for event in 0..4 {
            queue.send(event, BROKEN);
        }
        queue.send("good", pays(1));
        queue.send("last", pays(1));
        let options = Options::new().attempts(1).back_off(4 * SECOND, 8 * SECOND);
        let end = Notify::new();
        let script = async {
            for failed in 1..=4 {
                until("a failure", || queue.dead_letters().len() == failed).await;
                give_way().await;
                assert_eq!(queue.dead_letters().len(), failed, "it must be slow");
                assert_eq!(queue.ready(), 6 - failed);
                // Half of the pause, jitter included, is too short.
                let pause = if failed == 1 { 4 * SECOND } else { 8 * SECOND };
                setup.clock.advance(pause / 2 - Duration::from_millis(1));
                give_way().await;
                assert_eq!(queue.ready(), 6 - failed, "after {failed} failures");
                setup.clock.advance(pause / 2 + Duration::from_millis(1));
            }
            // The two that are good follow each other at once.
            until("the others", || queue.is_empty()).await;
            end.notify_one();
        };
        let consuming = consume(&queue, &till.handler, &options, end.notified());
        let (consumed, ()) = join!(within("the end", consuming), script);
        let consumed = consumed.unwrap();
        assert_eq!((consumed.ran, consumed.set_aside, till.sum().await), (2, 4, 2));
    }
}

/// 98. A message that comes once more than it may be handled is set aside without running; if its event was handled it
///     is a duplicate.
pub async fn a_message_that_comes_too_often_is_set_aside_without_running<F: Fixture>() {
    for mode in [0, 1] {
        let setup = Setup::<F>::new().await;
        let till = &Till::both(&setup.idem)[mode];
        let queue = MemoryQueue::new();
        assert_eq!(till.handler.handle("done", pays(1)).await.unwrap(), Handled::Ran);
        for event in ["kills", "done"] {
            queue.send(event, pays(1));
        }
        // Two workers died of it.
        for _ in 0..2 {
            assert_eq!(queue.receive(2).await.unwrap().len(), 2);
            queue.take_back();
        }
        let consumed = drained(&queue, &till.handler, &Options::new().attempts(2)).await;
        assert_eq!((counts(consumed), consumed.set_aside), ([0, 1, 0], 1));
        assert_eq!(till.sum().await, 1, "it must not run");
        let [(event, _, reason)] = &queue.dead_letters()[..] else { panic!("it is one") };
        assert_eq!(event, "kills");
        assert!(reason.contains("more often than its attempts"), "{reason}");
        assert!(queue.is_empty() && !is_marked(&setup.idem, "kills").await);
    }
}

/// 99. A delivery that the queue took back while it waited for its turn is not run here.
pub async fn a_delivery_that_was_lost_before_it_began_is_dropped<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let (queue, gate) =
        (MemoryQueue::with_visibility(setup.clock.clone(), 3 * SECOND), Gate::closed());
    queue.send("e", pays(1));
    queue.send("e", pays(1));
    let (handler, end) = (gate.handler(&setup.idem), Notify::new());
    let (options, told) = (Options::new().concurrency(2), Mutex::new(0));
    let options = options.on_trouble(move |_| *told.lock().unwrap() += 1);
    let script = async {
        until("the handler", || gate.inside() == 1 && queue.in_flight() == 2).await;
        queue.take_back();
        let others = queue.receive(2).await.unwrap();
        assert_eq!(others.len(), 2);
        setup.clock.advance(SECOND);
        give_way().await;
        end.notify_one();
        give_way().await;
        gate.open(2);
    };
    let consuming = consume(&queue, &handler, &options, end.notified());
    let (consumed, ()) = join!(within("the end", consuming), script);
    let consumed = consumed.unwrap();
    assert_eq!((consumed.ran, consumed.lost, consumed.queue_failures), (1, 1, 0));
    assert_eq!((gate.inside(), queue.in_flight()), (1, 2), "they are another's");
}

/// 98. What fails is told to who asked for it.
pub async fn troubles_are_told<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let till = Till::atomic(&setup.idem);
    let queue = MemoryQueue::new();
    queue.send("e", pays(1));
    queue.fail_acks(1);
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = Arc::clone(&told);
    let tell = move |error: &(dyn StdError + 'static)| {
        let closed = error.downcast_ref().map(|error: &Error| error.to_string());
        telling.lock().unwrap().push((error.is::<QueueFails>(), closed));
    };
    let options = Options::new().on_trouble(tell);
    let consumed = drained_slowly(&setup.clock, &queue, &till.handler, &options).await;
    assert_eq!((consumed.ran, consumed.queue_failures), (1, 1));
    assert_eq!(told.lock().unwrap()[..], [(true, None)]);
    setup.idem.close().await.unwrap();
    queue.send("f", pays(1));
    drain(&queue, &till.handler, &options).await.unwrap_err();
    let told = told.lock().unwrap();
    assert_eq!(told.len(), 2);
    assert!(told[1].1.as_ref().is_some_and(|told| told.contains("closed")), "{told:?}");
}

/// Brings all it has, whatever it was asked for.
struct Lavish(MemoryQueue<Payment>);

#[async_trait]
impl Queue for Lavish {
    type Message = Payment;
    type Tag = u64;

    async fn receive(&self, _: usize) -> Result<Vec<Delivery<Payment, u64>>, BoxError> {
        self.0.receive(usize::MAX).await
    }

    async fn ack(&self, tag: &u64) -> Result<(), BoxError> {
        self.0.ack(tag).await
    }

    async fn nack(&self, tag: &u64, reason: &Error) -> Result<(), BoxError> {
        self.0.nack(tag, reason).await
    }

    async fn set_aside(&self, tag: &u64, reason: &Error) -> Result<(), BoxError> {
        self.0.set_aside(tag, reason).await
    }

    async fn extend(&self, tag: &u64) -> Result<(), BoxError> {
        self.0.extend(tag).await
    }

    fn visibility(&self) -> Option<Duration> {
        self.0.visibility()
    }

    fn horizon(&self) -> Option<Duration> {
        self.0.horizon()
    }
}

/// 97. A queue that brings more than it was asked for makes no more handlers run at a time, and loses nothing.
pub async fn more_deliveries_than_asked_for_wait_for_their_places<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let (queue, gate) = (Arc::new(Lavish(MemoryQueue::new())), Gate::closed());
    for event in 0..6 {
        queue.0.send(event, pays(1));
    }
    let (handler, options) = (gate.handler(&setup.idem), Options::new().concurrency(2));
    let script = async {
        for done in 0..=4 {
            until("two handlers", || gate.inside() == done + 2).await;
            give_way().await;
            assert_eq!(gate.inside(), done + 2);
            gate.open(1);
        }
        gate.open(1);
    };
    // The same queue, behind a pointer.
    let (consumed, ()) = join!(within("the queue", drain(&queue, &handler, &options)), script);
    assert_eq!((counts(consumed.unwrap()), gate.inside()), ([6, 0, 0], 6));
    assert!(queue.0.is_empty());
    for event in 0..6 {
        assert!(is_marked(&setup.idem, &event.to_string()).await, "{event} was handled");
    }
}

/// 96. An end that takes too long is cut: what runs outside is given back and counted as not marked.
pub async fn an_end_that_takes_too_long_is_cut<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let (queue, gate) =
        (MemoryQueue::with_visibility(setup.clock.clone(), 600 * SECOND), Gate::closed());
    for event in ["a", "b", "a"] {
        queue.send(event, pays(1));
    }
    let (handler, end) = (gate.handler(&setup.idem), Notify::new());
    let options = few_at_a_time().end_within(5 * SECOND);
    let script = async {
        until("both handlers", || gate.inside() == 2 && queue.in_flight() == 3).await;
        end.notify_one();
        give_way().await;
        setup.clock.advance(5 * SECOND - Duration::from_millis(1));
        give_way().await;
        assert_eq!(queue.in_flight(), 3, "it may take so long");
        setup.clock.advance(Duration::from_millis(1));
    };
    let consuming = consume(&queue, &handler, &options, end.notified());
    let (consumed, ()) = join!(within("the end", consuming), script);
    let consumed = consumed.unwrap();
    assert_eq!((consumed.unmarked, consumed.given_back, consumed.ran), (2, 1, 0));
    assert_eq!((queue.in_flight(), queue.ready(), gate.inside()), (0, 3, 2));
}

/// 97. A queue whose deliveries would be taken back at once is refused; with a visibility its events are handled once.
pub async fn a_visibility_of_zero_is_refused<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let (queue, till) = (
        MemoryQueue::with_visibility(setup.clock.clone(), Duration::ZERO),
        Till::atomic(&setup.idem),
    );
    queue.send("e", pays(1));
    let error = drain(&queue, &till.handler, &Options::new()).await.unwrap_err();
    let is_visibility =
        matches!(error.kind(), ErrorKind::InvalidDuration { field: "visibility", .. });
    assert!(is_visibility && CutShort::of(&error).is_none(), "{error:?}");
    assert_eq!((queue.ready(), queue.in_flight()), (1, 0));
    let queue = MemoryQueue::with_visibility(setup.clock.clone(), SECOND);
    queue.send("e", pays(1));
    queue.send("e", pays(1));
    assert_eq!(counts(drained(&queue, &till.handler, &Options::new()).await), [1, 1, 0]);
}

/// 90. A handler whose marks may expire while the queue can still deliver their events is refused before
///     anything is received; so are settings that make no sense.
pub async fn marks_that_may_expire_too_early_are_refused<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let of_setting = |error: Error| match error.kind() {
        ErrorKind::InvalidSetting { field, .. } | ErrorKind::InvalidDuration { field, .. } => {
            *field
        }
        other => panic!("a setting is refused: {other:?}"),
    };
    let unknown = MemoryQueue::new();
    let long = MemoryQueue::new().with_horizon(60 * SECOND + Duration::from_millis(1));
    let bounded = MemoryQueue::new().with_horizon(60 * SECOND);
    let minute = |till: Till<F::Store>| till.handler.retain(60 * SECOND);
    for (number, handler) in Till::both(&setup.idem).map(minute).into_iter().enumerate() {
        let plain = Options::new();
        let told = Options::new().horizon(60 * SECOND);
        let told_more = Options::new().horizon(61 * SECOND);
        for (queue, options) in
            [(&unknown, &plain), (&long, &plain), (&bounded, &told_more), (&unknown, &told_more)]
        {
            queue.send(number, pays(1));
            let before = queue.ready();
            let refused = drain(queue, &handler, options).await.unwrap_err();
            assert_eq!(of_setting(refused), "retention");
            let refused = consume(queue, &handler, options, async {}).await.unwrap_err();
            assert_eq!(of_setting(refused), "retention");
            assert_eq!((queue.ready(), queue.in_flight()), (before, 0));
        }
        // Of the one event that was sent all the time the first delivery runs.
        for (queue, options, expected) in
            [(&bounded, &plain, [1, 0, 0]), (&unknown, &told, [0, 2, 0]), (&long, &told, [0, 1, 0])]
        {
            assert_eq!(counts(drained(queue, &handler, options).await), expected);
            assert!(queue.is_empty());
        }
    }
    let till = Till::atomic(&setup.idem);
    unknown.send("last", pays(1));
    let refused = drain(&unknown, &till.handler, &Options::new().concurrency(0)).await.unwrap_err();
    assert_eq!(of_setting(refused), "concurrency");
    let zero = till.handler.retain(Duration::ZERO);
    let refused = drain(&unknown, &zero, &Options::new()).await.unwrap_err();
    assert_eq!(of_setting(refused), "retention");
    assert_eq!((unknown.ready(), unknown.in_flight()), (1, 0));
}

/// 96. A closed store ends the loop with a typed error, and what was in flight is given back.
pub async fn a_closed_store_ends_the_loop_and_gives_back<F: Fixture>() {
    for mode in [0, 1] {
        let setup = Setup::<F>::new().await;
        let till = &Till::both(&setup.idem)[mode];
        let queue = MemoryQueue::new();
        for event in 0..5 {
            queue.send(event, pays(1));
        }
        setup.idem.close().await.unwrap();
        let draining = drain(&queue, &till.handler, &few_at_a_time()).await;
        let error = draining.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Closed), "{error:?}");
        let Some(cut_short) = CutShort::of(&error) else { panic!("it had begun: {error:?}") };
        let Consumed { given_back, store_failures, .. } = cut_short.consumed;
        assert!(
            (1..=3).contains(&given_back) && (1..=3).contains(&store_failures),
            "{cut_short:?}"
        );
        assert_eq!((queue.ready(), queue.in_flight(), queue.dead_letters().len()), (5, 0, 0));
        if let Some(sum) = &till.outside {
            assert_eq!(sum.load(Ordering::SeqCst), 0, "nothing runs");
        }
    }
}

/// 96. Answers that a queue does not take together are one failure of it: the loop soon goes on.
pub async fn a_queue_that_fails_once_stalls_nobody<F: Fixture>() {
    const TOGETHER: usize = 64;
    for mode in [0, 1] {
        let setup = Setup::<F>::new().await;
        let till = &Till::both(&setup.idem)[mode];
        let queue = MemoryQueue::new();
        for event in 0..TOGETHER + 6 {
            queue.send(event, pays(1));
        }
        queue.fail_acks(TOGETHER);
        let hour = 3_600 * SECOND;
        let options = Options::new().concurrency(TOGETHER).batch(TOGETHER).back_off(SECOND, hour);
        let passing = async {
            loop {
                if setup.clock.sleepers() > 0 {
                    setup.clock.advance(SECOND);
                }
                give_way().await;
            }
        };
        let draining = async {
            tokio::select! {
                consumed = drained(&queue, &till.handler, &options) => consumed,
                never = passing => never,
            }
        };
        let before = setup.clock.now();
        let consumed = within("the rest", draining).await;
        assert_eq!((counts(consumed), till.sum().await), ([70, 0, 0], 70));
        assert_eq!((queue.ready(), queue.in_flight()), (0, TOGETHER));
        let spent = setup.clock.now().since(before);
        assert!(spent < 100 * SECOND, "it was left alone for {spent:?}");
    }
}

/// 98. A message whose effect always loses its race is set aside after its attempts, and others go on.
pub async fn an_effect_that_races_against_itself_is_set_aside<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let handle = |tx: &mut Tx<F>, payment: &Payment| {
        if payment.is_broken {
            let lost = Error::nothing_done(ErrorKind::Contended { attempts: 1 });
            return Err(lost.of_transaction().into());
        }
        add(tx, "sum").map(drop)
    };
    let handler = Handler::atomic(&setup.idem, "billing", handle).unwrap();
    let queue = MemoryQueue::new();
    queue.send("poison", BROKEN);
    for event in ["a", "b"] {
        queue.send(event, pays(1));
    }
    let options = Options::new().attempts(2);
    let consumed = drained_slowly(&setup.clock, &queue, &handler, &options).await;
    assert_eq!((consumed.ran, consumed.set_aside), (2, 1), "{consumed:?}");
    assert_eq!(queue.dead_letters().len(), 1);
    assert!(queue.is_empty());
}
