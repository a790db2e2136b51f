//! Each event takes effect once per consumer: the loop while its store fails, or does not answer.

use std::sync::atomic::Ordering;

use idem_core::{
    Certainty, Error, ErrorKind, Idem, Store,
    consumer::{Consumed, Options, consume, drain},
    testing::MemoryQueue,
};
use tokio::{join, sync::Notify};

use super::till::{Gate, Payment, SECOND, Till, counts, is_marked, pays};
use crate::{
    Fixture,
    callers::{as_time_passes, give_way, until, within},
    setup::Setup,
    watched::{Fails, Fault, Steps, Watched},
};

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

fn cannot_open() -> Error {
    let (location, problem) = ("here".to_string(), "on purpose".to_string());
    Error::nothing_done(ErrorKind::CannotOpen { location, problem })
}

/// A queue, and a store that fails as planned, on one clock.
struct Place<F: Fixture> {
    setup: Setup<F>,
    idem: Idem<Watched<F::Store>>,
    steps: Steps,
    queue: MemoryQueue<Payment>,
}

impl<F: Fixture> Place<F> {
    async fn new(faults: &[Fault]) -> Self {
        let setup = Setup::<F>::new().await;
        let (idem, steps) = setup.watched().await;
        steps.plan(faults);
        let queue = MemoryQueue::with_visibility(setup.clock.clone(), 600 * SECOND);
        Self { setup, idem, steps, queue }
    }

    async fn is_marked(&self, event: &str) -> bool {
        is_marked(&self.setup.idem, event).await
    }

    async fn drained<S: Store + 'static>(&self, till: &Till<S>, options: &Options) -> Consumed {
        let draining = drain(&self.queue, &till.handler, options);
        as_time_passes("the queue", &self.setup.clock, SECOND / 2, draining).await.unwrap()
    }
}

fn options() -> Options {
    Options::new().attempts(1).back_off(SECOND, 4 * SECOND)
}

fn ran<S: Store>(till: &Till<S>) -> u64 {
    till.outside.as_ref().map_or(0, |sum| sum.load(Ordering::SeqCst))
}

/// 96. While a mark cannot be made it alone is tried again, and nothing is received.
pub async fn while_a_mark_cannot_be_made_it_alone_is_tried_again<F: Fixture>() {
    for error in [busy, unreachable, engine, engine_in_doubt] {
        // The look goes well.
        let faults = [(1, error as fn() -> Error, Fails::Before), (0, error, Fails::Before)];
        let place = Place::<F>::new(&faults).await;
        place.queue.send("a", pays(1));
        let (till, end) = (Till::outside(&place.idem), Notify::new());
        let options = options().concurrency(2);
        let script = async {
            until("the mark's failure", || place.steps.failed() == 1).await;
            give_way().await;
            place.queue.send("b", pays(1));
            // The time to ask the queue again, and the mark.
            place.setup.clock.advance(SECOND);
            until("its second failure", || place.steps.failed() == 2).await;
            give_way().await;
            assert_eq!((place.queue.ready(), place.queue.in_flight(), ran(&till)), (1, 1, 1));
            assert!(!place.is_marked("a").await);
            let acked = until("both", || place.queue.is_empty());
            as_time_passes("both", &place.setup.clock, SECOND, acked).await;
            end.notify_one();
        };
        let consuming = consume(&place.queue, &till.handler, &options, end.notified());
        let (consumed, ()) = join!(within("the end", consuming), script);
        let consumed = consumed.unwrap();
        assert_eq!((consumed.ran, consumed.failed, consumed.set_aside), (2, 0, 0));
        assert_eq!((consumed.store_failures, ran(&till)), (2, 2));
        assert!(place.queue.is_empty() && place.is_marked("a").await && place.is_marked("b").await);
    }
}

/// 96. A mark in doubt is asked for again, and its handler does not run again.
pub async fn a_mark_in_doubt_is_asked_for_again<F: Fixture>() {
    let place = Place::<F>::new(&[(1, unreachable, Fails::After)]).await;
    place.queue.send("a", pays(1));
    let till = Till::outside(&place.idem);
    let consumed = place.drained(&till, &options()).await;
    assert_eq!((consumed.ran, consumed.duplicates, ran(&till)), (1, 0, 1));
    assert!(place.queue.is_empty() && place.is_marked("a").await);
}

/// 96. A look that fails is made again before the handler runs.
pub async fn a_look_that_fails_is_made_again_before_the_handler_runs<F: Fixture>() {
    let place = Place::<F>::new(&[(0, busy, Fails::Before), (0, engine, Fails::Before)]).await;
    place.queue.send("a", pays(1));
    let till = Till::outside(&place.idem);
    let options = options();
    let script = async {
        until("the look's failure", || place.steps.failed() == 1).await;
        assert_eq!(ran(&till), 0);
    };
    let (consumed, ()) = join!(place.drained(&till, &options), script);
    assert_eq!((consumed.ran, consumed.failed, ran(&till)), (1, 0, 1));
    assert_eq!(consumed.store_failures, 2);
}

/// 96. An atomic handler takes effect once, whatever its store could tell.
pub async fn an_atomic_handler_takes_effect_once_whatever_its_store_could_tell<F: Fixture>() {
    for (error, fails, ran) in [
        (busy as fn() -> Error, Fails::Before, 1),
        (contended, Fails::Before, 1),
        (unreachable, Fails::Before, 1),
        (unreachable, Fails::After, 0),
        (engine_in_doubt, Fails::After, 0),
    ] {
        let place = Place::<F>::new(&[(0, error, fails), (0, busy, Fails::Before)]).await;
        place.queue.send("a", pays(1));
        let till = Till::atomic(&place.idem);
        let consumed = place.drained(&till, &options()).await;
        assert_eq!((consumed.ran, consumed.duplicates), (ran, 1 - ran), "{:?}", error());
        assert_eq!((consumed.failed, consumed.set_aside, till.sum().await), (0, 0, 1));
        assert!(place.queue.is_empty() && place.is_marked("a").await);
    }
}

/// 98. A call that fails for what it carries costs its delivery an attempt: the store can be read.
pub async fn what_is_wrong_with_one_delivery_costs_it_an_attempt<F: Fixture>() {
    for error in [damaged, engine] {
        let faults = [(0, error as fn() -> Error, Fails::Before), (1, error, Fails::Before)];
        let place = Place::<F>::new(&faults).await;
        place.queue.send("a", pays(1));
        let till = Till::atomic(&place.idem);
        let consumed = place.drained(&till, &options().attempts(2)).await;
        assert_eq!((consumed.ran, consumed.failed, consumed.set_aside), (0, 1, 1));
        assert_eq!((consumed.store_failures, place.steps.failed()), (0, 2));
        assert_eq!((place.queue.dead_letters().len(), till.sum().await), (1, 0));
        assert!(!place.is_marked("a").await);
    }
}

/// 98. A store that cannot be read either is the store's trouble: it costs no attempt.
pub async fn a_store_that_cannot_be_read_costs_no_attempt<F: Fixture>() {
    for error in [engine, damaged, cannot_open] {
        for mode in [0, 1] {
            // A call and the question that follows it, twice.
            let fault: Fault = (0, error, Fails::Before);
            let faults =
                if mode == 1 && matches!(error().kind(), ErrorKind::Store) { 2 } else { 4 };
            let place = Place::<F>::new(&vec![fault; faults]).await;
            place.queue.send("a", pays(1));
            let till = &Till::both(&place.idem)[mode];
            let consumed = place.drained(till, &options()).await;
            assert_eq!((consumed.ran, consumed.failed, consumed.set_aside), (1, 0, 0));
            assert_eq!((consumed.store_failures, place.steps.failed()), (2, faults));
            assert_eq!(till.sum().await, 1);
            assert!(place.queue.is_empty() && place.is_marked("a").await);
        }
    }
}

/// 97. A key in use is in no other delivery's way.
pub async fn a_key_in_use_is_in_no_other_deliverys_way<F: Fixture>() {
    let place = Place::<F>::new(&[(1, contended, Fails::Before)]).await;
    for event in ["a", "b"] {
        place.queue.send(event, pays(1));
    }
    let till = Till::outside(&place.idem);
    let options = options().concurrency(2).batch(1);
    let script = async {
        let other = || (place.queue.ready(), place.queue.in_flight()) == (0, 1);
        until("the other delivery", other).await;
        until("a pause", || place.setup.clock.sleepers() > 0).await;
        let one = [place.is_marked("a").await, place.is_marked("b").await];
        assert_eq!(one.iter().filter(|marked| **marked).count(), 1);
        let acked = until("the queue", || place.queue.is_empty());
        as_time_passes("the queue", &place.setup.clock, SECOND, acked).await;
    };
    let (consumed, ()) = join!(drain(&place.queue, &till.handler, &options), script);
    assert_eq!((consumed.unwrap().ran, ran(&till)), (2, 2));
}

/// 96. A loop that is ended while its store fails asks once more and gives back.
pub async fn a_loop_that_is_ended_while_its_store_fails_asks_once_more<F: Fixture>() {
    for (faults, given_back) in [(3, 1), (2, 1), (1, 0)] {
        let faults: Vec<Fault> = (0..faults).map(|_| (0, busy as _, Fails::Before)).collect();
        let place = Place::<F>::new(&faults).await;
        place.queue.send("a", pays(1));
        place.queue.send("b", pays(1));
        let (till, options, end) = (Till::atomic(&place.idem), options(), Notify::new());
        let script = async {
            until("the failure", || place.steps.failed() == 1).await;
            give_way().await;
            end.notify_one();
        };
        let consuming = consume(&place.queue, &till.handler, &options, end.notified());
        let (consumed, ()) = join!(within("the end", consuming), script);
        let consumed = consumed.unwrap();
        assert_eq!((consumed.given_back, consumed.ran), (given_back, 1 - given_back));
        assert_eq!((consumed.failed, consumed.set_aside), (0, 0));
        assert_eq!(place.is_marked("a").await, given_back == 0);
        assert_eq!((place.queue.in_flight(), place.queue.ready() as u64), (0, 1 + given_back));
    }
}

/// 96. A handler outside the store is not begun when the look succeeds only after the loop was ended.
pub async fn a_look_that_succeeds_after_the_end_begins_nothing<F: Fixture>() {
    let place = Place::<F>::new(&[(0, busy, Fails::Before)]).await;
    place.queue.send("a", pays(1));
    let (till, options, end) = (Till::outside(&place.idem), options(), Notify::new());
    let script = async {
        until("the look's failure", || place.steps.failed() == 1).await;
        give_way().await;
        end.notify_one();
    };
    let consuming = consume(&place.queue, &till.handler, &options, end.notified());
    let (consumed, ()) = join!(within("the end", consuming), script);
    let consumed = consumed.unwrap();
    assert_eq!((consumed.given_back, consumed.ran, ran(&till)), (1, 0, 0));
    assert_eq!((place.queue.in_flight(), place.queue.ready()), (0, 1));
    assert!(!place.is_marked("a").await, "it was not begun");
    place.queue.send("a", pays(1));
    let consumed = place.drained(&till, &Options::new()).await;
    assert_eq!((counts(consumed), ran(&till)), ([1, 1, 0], 1));
}

/// 96. The mark of a handler that has run is tried on after the loop was ended, for as long as the end may take.
pub async fn a_mark_is_tried_on_after_the_end<F: Fixture>() {
    for (faults, is_made) in [(5, true), (1_000, false)] {
        let place = Place::<F>::new(&[]).await;
        place.queue.send("a", pays(1));
        let (gate, end) = (Gate::closed(), Notify::new());
        let (handler, options) = (gate.handler(&place.idem), options().end_within(60 * SECOND));
        let script = async {
            until("the handler", || gate.inside() == 1).await;
            place.steps.plan(&vec![(0, busy as fn() -> Error, Fails::Before); faults]);
            end.notify_one();
            give_way().await;
            gate.open(1);
            for failed in 1..=5 {
                until("a failure", || place.steps.failed() == failed).await;
                give_way().await;
                place.setup.clock.advance(4 * SECOND);
            }
            if !is_made {
                until("another failure", || place.steps.failed() == 6).await;
                place.setup.clock.advance(60 * SECOND);
            }
        };
        let consuming = consume(&place.queue, &handler, &options, end.notified());
        let (consumed, ()) = join!(within("the end", consuming), script);
        let consumed = consumed.unwrap();
        assert_eq!((consumed.ran, consumed.unmarked), (u64::from(is_made), u64::from(!is_made)));
        assert_eq!((consumed.given_back, consumed.failed, gate.inside()), (0, 0, 1));
        assert_eq!(place.is_marked("a").await, is_made);
        assert_eq!((place.queue.in_flight(), place.queue.ready()), (0, usize::from(!is_made)));
    }
}

/// 96. A store that does not answer holds up the end for no longer than it may take.
pub async fn a_store_that_does_not_answer_does_not_hold_up_the_end<F: Fixture>() {
    for (mode, answered, runs) in [(0, 0, 0), (1, 0, 0), (1, 1, 1)] {
        let place = Place::<F>::new(&[(answered, busy, Fails::Never)]).await;
        place.queue.send("a", pays(1));
        let (till, end) = (&Till::both(&place.idem)[mode], Notify::new());
        let options = options().end_within(5 * SECOND);
        let script = async {
            until("the call", || place.steps.failed() == 1).await;
            end.notify_one();
            give_way().await;
            assert_eq!(place.queue.in_flight(), 1);
            place.setup.clock.advance(5 * SECOND);
        };
        let consuming = consume(&place.queue, &till.handler, &options, end.notified());
        let (consumed, ()) = join!(within("the end", consuming), script);
        let consumed = consumed.unwrap();
        assert_eq!((consumed.given_back, consumed.unmarked), (1 - runs, runs));
        assert_eq!((consumed.ran, ran(till)), (0, runs));
        assert_eq!((place.queue.in_flight(), place.queue.ready()), (0, 1));
        assert!(!place.is_marked("a").await);
    }
}
