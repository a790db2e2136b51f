//! Each event takes effect once per consumer: the loop between a queue and a handler.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use idem_core::{
    Fingerprint, Key, Request, Space,
    consumer::{Consumed, Handler, Marked, Options, Recorder, consume, drain},
    testing::MemoryQueue,
};
use tokio::{
    join,
    sync::{Barrier, Notify},
    task::JoinSet,
};

use super::till::{
    BROKEN, Broken, Gate, Payment, SECOND, Till, counts, drained, drained_slowly, few_at_a_time,
    is_marked, pays,
};
use crate::{
    Fixture,
    callers::{as_time_passes, give_way, joined, until, within},
    setup::{Setup, Tx, add, count_in},
    steps::{LEASE, claimed},
};

/// 95. A payment of 100, once failing and once more, and one of 50: the balance is 150, and the queue empty.
pub async fn a_queue_with_a_failure_and_a_duplicate_ends_at_its_sum<F: Fixture>() {
    for (mode, options) in
        [(0, Options::new()), (1, Options::new()), (0, few_at_a_time()), (1, few_at_a_time())]
    {
        let setup = Setup::<F>::new().await;
        let till = &Till::both(&setup.idem)[mode];
        let queue = MemoryQueue::new();
        queue.send("e-100", BROKEN);
        queue.send("e-100", pays(100));
        queue.send("e-50", pays(50));
        let consumed = drained_slowly(&setup.clock, &queue, &till.handler, &options).await;
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
        let queue = MemoryQueue::new();
        queue.send("e-100", pays(100));
        queue.send("e-50", pays(50));
        queue.fail_acks(1);
        let options = Options::new();
        let draining = drain(&queue, &till.handler, &options);
        // After its failure the queue is left alone for a while.
        let consumed = as_time_passes("the queue", &setup.clock, SECOND, draining).await.unwrap();
        assert_eq!(counts(consumed), [2, 0, 0]);
        assert_eq!(consumed.queue_failures, 1);
        assert_eq!((till.sum().await, queue.in_flight(), queue.ready()), (150, 1, 0));
        assert!(is_marked(&setup.idem, "e-100").await, "the commit came before the ack");
        queue.take_back();
        let consumed = drained(&queue, &till.handler, &options).await;
        assert_eq!(counts(consumed), [0, 1, 0]);
        assert_eq!(till.sum().await, 150);
        assert!(queue.is_empty());
    }
}

/// 97. A duplicate inside one batch, and an event that was recorded earlier, are acked and do not run.
pub async fn duplicates_are_acked_without_running<F: Fixture>() {
    for (mode, options) in [(0, Options::new()), (1, Options::new()), (0, few_at_a_time())] {
        let setup = Setup::<F>::new().await;
        let till = &Till::both(&setup.idem)[mode];
        let earlier = setup.idem.store().mark_processed("billing", "earlier").await.unwrap();
        assert_eq!(earlier, Marked::First);
        let queue = MemoryQueue::new();
        for (event, amount) in [("earlier", 1), ("twice", 10), ("twice", 10), ("once", 100)] {
            queue.send(event, pays(amount));
        }
        let consumed = drained(&queue, &till.handler, &options).await;
        assert_eq!(counts(consumed), [2, 2, 0]);
        assert_eq!(till.sum().await, 110);
        assert!(queue.is_empty(), "duplicates must be acked: {queue:?}");
    }
}

/// 98. A poisoned message is set aside after its attempts, with the reason; others go on.
pub async fn a_poisoned_message_is_set_aside_while_others_go_on<F: Fixture>() {
    for mode in [0, 1] {
        let setup = Setup::<F>::new().await;
        let till = &Till::both(&setup.idem)[mode];
        let queue = MemoryQueue::new();
        queue.send("poison", BROKEN);
        queue.send("good-1", pays(10));
        queue.send("good-2", pays(20));
        let options = Options::new().attempts(3);
        let consumed = drained_slowly(&setup.clock, &queue, &till.handler, &options).await;
        assert_eq!(counts(consumed), [2, 0, 2]);
        assert_eq!(consumed.set_aside, 1);
        assert_eq!(till.sum().await, 30);
        assert!(queue.is_empty() && !is_marked(&setup.idem, "poison").await);
        let [(event, _, reason)] = &queue.dead_letters()[..] else { panic!("one is set aside") };
        assert_eq!(event, "poison");
        assert!(reason.ends_with(&Broken.to_string()), "{reason}");
        // The first attempt may be the last.
        queue.send("poison-2", BROKEN);
        let options = options.attempts(1);
        let consumed = drained_slowly(&setup.clock, &queue, &till.handler, &options).await;
        assert_eq!((counts(consumed), consumed.set_aside), ([0, 0, 0], 1));
    }
}

/// 99. A late ack of a delivery that went to another worker is refused and settles nothing.
pub async fn a_late_ack_settles_nothing<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let queue = Arc::new(MemoryQueue::with_visibility(setup.clock.clone(), SECOND));
    queue.send("e", pays(1));
    let (slow, next) = (Gate::closed(), Gate::closed());
    let worker = |gate: &Gate| {
        let (queue, handler, end) =
            (Arc::clone(&queue), gate.handler(&setup.idem), Arc::new(Notify::new()));
        let ended = Arc::clone(&end);
        let loops = async move {
            let options = Options::new();
            consume(&*queue, &handler, &options, ended.notified()).await.unwrap()
        };
        (tokio::spawn(loops), end)
    };
    let (first, end_first) = worker(&slow);
    until("the slow worker", || slow.inside() == 1).await;
    setup.clock.advance(SECOND);
    let (second, end_second) = worker(&next);
    until("the other worker", || next.inside() == 1).await;
    end_first.notify_one();
    slow.open(1);
    let consumed = joined("the slow worker's end", first).await;
    assert_eq!(counts(consumed), [1, 0, 0]);
    assert_eq!(consumed.queue_failures, 0, "a refusal is no failure of the queue: {consumed:?}");
    assert_eq!((queue.ready(), queue.in_flight()), (0, 1), "it is in flight at the other worker");
    end_second.notify_one();
    next.open(1);
    let consumed = joined("the other worker's end", second).await;
    assert_eq!((counts(consumed), consumed.queue_failures), ([1, 0, 0], 0));
    assert!(queue.is_empty() && is_marked(&setup.idem, "e").await);
}

/// 98. A panic of a handler is one failed delivery: the event is not marked and comes again.
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
            Handler::outside(&setup.idem, "billing", move |()| {
                panics_once();
                async { Ok::<(), Broken>(()) }
            })
        };
        let queue = MemoryQueue::new();
        queue.send("event", ());
        let (handler, options) = (handler.unwrap(), Options::new());
        let consumed = drained_slowly(&setup.clock, &queue, &handler, &options).await;
        assert_eq!(counts(consumed), [1, 0, 1]);
        assert!(queue.is_empty() && is_marked(&setup.idem, "event").await);
        let space = Space::consumer("billing").unwrap();
        assert_eq!(count_in(&setup.idem, &space, "count").await, u64::from(atomic));
    }
}

/// 97. Of two deliveries of one event that are in flight at the same time, one runs: the later waits, whatever
///     the mode.
pub async fn deliveries_of_one_event_at_the_same_time_run_once<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let queue = MemoryQueue::new();
    let twice_each = || {
        for event in ["a", "b", "a", "b"] {
            queue.send(event, pays(1));
        }
    };
    let options = Options::new().concurrency(4).batch(4);
    let (gate, queue) = (Gate::closed(), &queue);
    let handler = gate.handler(&setup.idem);
    twice_each();
    let script = async {
        until("both events", || gate.inside() == 2).await;
        give_way().await;
        assert_eq!((gate.inside(), queue.in_flight()), (2, 4), "the later ones must wait");
        gate.open(4);
    };
    let (consumed, ()) = join!(drained(queue, &handler, &options), script);
    assert_eq!((counts(consumed), gate.inside()), ([2, 2, 0], 2));
    let setup = Setup::<F>::new().await;
    let till = Till::atomic(&setup.idem);
    twice_each();
    let consumed = drained(queue, &till.handler, &options).await;
    assert_eq!((counts(consumed), till.sum().await), ([2, 2, 0], 2));
    // The later one runs if the earlier failed.
    let setup = Setup::<F>::new().await;
    for (event, till) in Till::both(&setup.idem).into_iter().enumerate() {
        let before = till.sum().await;
        queue.send(event, BROKEN);
        queue.send(event, pays(7));
        let consumed = drained_slowly(&setup.clock, queue, &till.handler, &options).await;
        assert_eq!(counts(consumed), [1, 1, 1]);
        assert_eq!(till.sum().await, before + 7);
    }
}

/// 97. 64 deliveries are handled at the same time, if that is asked for.
pub async fn many_deliveries_are_handled_at_the_same_time<F: Fixture>() {
    const MANY: usize = 64;
    let setup = Setup::<F>::new().await;
    let queue = MemoryQueue::new();
    let send = || (0..MANY).for_each(|event| queue.send(event, pays(1)));
    let options = Options::new().concurrency(MANY).batch(MANY);
    let barrier = Arc::new(Barrier::new(MANY));
    let all_meet = move |_: Payment| {
        let barrier = Arc::clone(&barrier);
        async move {
            barrier.wait().await;
            Ok::<(), Broken>(())
        }
    };
    let handler = Handler::outside(&setup.idem, "shipping", all_meet).unwrap();
    send();
    let consumed = drained(&queue, &handler, &options).await;
    assert_eq!(counts(consumed), [MANY as u64, 0, 0]);
    let till = Till::atomic(&setup.idem);
    send();
    send();
    let consumed = drained(&queue, &till.handler, &options).await;
    assert_eq!(counts(consumed), [MANY as u64, MANY as u64, 0]);
    assert_eq!(till.sum().await, MANY as u64);
    assert!(queue.is_empty());
}

/// 97. Several loops on one queue handle each of its events once between them.
pub async fn many_loops_on_one_queue_handle_each_event_once<F: Fixture>() {
    const EVENTS: u64 = 40;
    let setup = Setup::<F>::new().await;
    let (queue, till) = (Arc::new(MemoryQueue::new()), Arc::new(Till::atomic(&setup.idem)));
    for event in (0..EVENTS).chain(0..EVENTS) {
        queue.send(event, pays(1));
    }
    let mut loops = JoinSet::new();
    for _ in 0..4 {
        let (queue, till) = (Arc::clone(&queue), Arc::clone(&till));
        // Others are at the same count, and may take their turns before this one.
        let options = few_at_a_time();
        loops.spawn(async move { drain(&*queue, &till.handler, &options).await.unwrap() });
    }
    let all = loops.join_all();
    let all = as_time_passes("the loops", &setup.clock, Duration::from_millis(10), all).await;
    let [ran, duplicates] = [|c: &Consumed| c.ran, |c: &Consumed| c.duplicates]
        .map(|count| all.iter().map(count).sum::<u64>());
    assert_eq!((ran, duplicates, till.sum().await), (EVENTS, EVENTS, EVENTS), "{all:?}");
    assert!(queue.is_empty());
}

/// 96. A loop that is told to end finishes what is running and acks it, gives back what it had not begun, and
///     receives no more.
pub async fn a_loop_that_is_ended_finishes_what_it_began_and_begins_no_more<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let (queue, gate) = (Arc::new(MemoryQueue::new()), Gate::closed());
    for event in ["a", "b", "a", "c"] {
        queue.send(event, pays(1));
    }
    let (end, handler) = (Arc::new(Notify::new()), gate.handler(&setup.idem));
    let (shared, ended) = (Arc::clone(&queue), Arc::clone(&end));
    let consuming = tokio::spawn(async move {
        consume(&*shared, &handler, &few_at_a_time(), ended.notified()).await.unwrap()
    });
    until("both handlers", || gate.inside() == 2 && queue.in_flight() == 3).await;
    end.notify_one();
    give_way().await;
    assert!(!consuming.is_finished(), "what is running must go on");
    gate.open(4);
    let consumed = joined("the loop's end", consuming).await;
    assert_eq!((counts(consumed), consumed.given_back), ([2, 0, 0], 1));
    assert_eq!((queue.in_flight(), queue.ready(), gate.inside()), (0, 2, 2));
    for (event, is_done) in [("a", true), ("b", true), ("c", false)] {
        assert_eq!(is_marked(&setup.idem, event).await, is_done, "{event}");
    }
    // One that is ended before it begins does nothing at all.
    let till = Till::outside(&setup.idem);
    let consumed = consume(&*queue, &till.handler, &few_at_a_time(), async {}).await.unwrap();
    assert_eq!((consumed, queue.ready()), (Consumed::default(), 2));
}

/// 99. While its handler runs, or it waits for another of its event, a delivery is kept in flight beyond its
///     visibility, also if that fails once.
pub async fn a_delivery_is_kept_in_flight_while_it_is_in_hand<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let (queue, gate) =
        (MemoryQueue::with_visibility(setup.clock.clone(), 3 * SECOND), Gate::closed());
    queue.send("e", pays(1));
    queue.send("e", pays(1));
    let (handler, options) = (gate.handler(&setup.idem), few_at_a_time());
    // In one task with the loop: when it gives way, what has slept long enough goes on.
    let script = async {
        until("the handler", || gate.inside() == 1).await;
        for thirds in 1..=10 {
            give_way().await;
            queue.fail(thirds == 5);
            setup.clock.advance(SECOND);
            give_way().await;
            let done = 2 * if thirds < 5 { thirds } else { thirds - 1 };
            assert_eq!(
                (queue.extensions(), queue.failures()),
                (done, if thirds < 5 { 0 } else { 2 })
            );
            assert_eq!((queue.in_flight(), queue.ready()), (2, 0), "after {thirds} s");
        }
        gate.open(2);
    };
    let (consumed, ()) = join!(drained(&queue, &handler, &options), script);
    assert_eq!((counts(consumed), consumed.queue_failures), ([1, 1, 0], 2));
    assert!(queue.is_empty() && gate.inside() == 1);
}

/// 96. A queue that fails for a while is asked again, and what it did not let ack comes again.
pub async fn a_queue_that_fails_for_a_while_is_asked_again<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let (queue, gate) =
        (MemoryQueue::with_visibility(setup.clock.clone(), 60 * SECOND), Gate::closed());
    let (handler, end) = (gate.handler(&setup.idem), Notify::new());
    let options = Options::new().back_off(SECOND, 4 * SECOND);
    queue.fail(true);
    queue.send("e", pays(1));
    let script = async {
        until("the first failure", || queue.failures() == 1).await;
        give_way().await;
        assert_eq!(queue.failures(), 1, "it must be left alone for a while");
        setup.clock.advance(SECOND);
        until("the second failure", || queue.failures() == 2).await;
        setup.clock.advance(Duration::from_millis(999));
        give_way().await;
        assert_eq!(queue.failures(), 2, "the second pause must be longer");
        setup.clock.advance(4 * SECOND);
        until("the third failure", || queue.failures() >= 3).await;
        queue.fail(false);
        let receives = until("the handler", || gate.inside() == 1);
        as_time_passes("the handler", &setup.clock, SECOND, receives).await;
        let failures = queue.failures();
        queue.fail(true);
        gate.open(1);
        until("the ack's failure", || queue.failures() > failures).await;
        assert!(is_marked(&setup.idem, "e").await, "the commit came before the ack");
        queue.fail(false);
        let acked = until("the duplicate", || queue.is_empty());
        as_time_passes("the duplicate", &setup.clock, SECOND, acked).await;
        end.notify_one();
    };
    let consuming = consume(&queue, &handler, &options, end.notified());
    let (consumed, ()) = join!(within("the loop", consuming), script);
    let consumed = consumed.unwrap();
    assert_eq!((counts(consumed), gate.inside()), ([1, 1, 0], 1));
    assert_eq!(consumed.queue_failures, queue.failures() as u64);
}

/// 93. A delivery whose event is held by a live claim waits for the lease's end, and that costs no attempt.
pub async fn a_claimed_event_waits_for_its_leases_end_and_costs_no_attempt<F: Fixture>() {
    for mode in [0, 1] {
        let setup = Setup::<F>::new().await;
        let till = &Till::both(&setup.idem)[mode];
        claimed(&setup.idem, &Request::new(Key::event("billing", "held").unwrap())).await;
        let queue = MemoryQueue::new();
        queue.send("held", pays(1));
        queue.send("free", pays(10));
        let options = Options::new().concurrency(2).attempts(1).back_off(SECOND, SECOND);
        let script = async {
            // The held one is in nobody's way.
            until("the free one", || (queue.ready(), queue.in_flight()) == (0, 1)).await;
            let millis = u64::try_from(LEASE).unwrap();
            setup.clock.advance(Duration::from_millis(millis - 1));
            give_way().await;
            assert!(!is_marked(&setup.idem, "held").await, "it is held to its last millisecond");
            let acked = until("the held one", || queue.is_empty());
            as_time_passes("the held one", &setup.clock, SECOND, acked).await;
        };
        let (consumed, ()) = join!(drained(&queue, &till.handler, &options), script);
        assert_eq!((counts(consumed), consumed.set_aside), ([2, 0, 0], 0));
        assert_eq!((till.sum().await, consumed.store_failures), (11, 0));
    }
}

/// 98. A repeated event with another payload is set aside at once, if the handler has a fingerprint.
pub async fn a_conflict_is_set_aside_at_once<F: Fixture>() {
    for mode in [0, 1] {
        let setup = Setup::<F>::new().await;
        let [atomic, outside] = Till::both(&setup.idem);
        let till = if mode == 0 { atomic } else { outside };
        let by_amount = |payment: &Payment| Ok(Fingerprint::of(&payment.amount)?);
        let till = Till { handler: till.handler.fingerprint(by_amount), ..till };
        let queue = MemoryQueue::new();
        for amount in [100, 100, 50] {
            queue.send("e", pays(amount));
        }
        let consumed = drained(&queue, &till.handler, &few_at_a_time()).await;
        assert_eq!((counts(consumed), consumed.conflicts), ([1, 1, 0], 1));
        assert_eq!((till.sum().await, consumed.set_aside), (100, 0));
        let [(event, payment, reason)] = &queue.dead_letters()[..] else { panic!("it is one") };
        assert_eq!((event.as_str(), payment.amount), ("e", 50));
        assert!(reason.contains("another payload"), "{reason}");
        assert!(queue.is_empty());
    }
}
