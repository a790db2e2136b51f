//! Each event takes effect once per consumer: marks and handlers.

use std::{sync::Arc, time::Duration};

use idem_core::{
    Certainty, Clock, ErrorKind, Fingerprint, Key, Outcome, Request, Space, Store, Timestamp,
    consumer::{Handled, Handler, Marked, Recorder},
};
use tokio::{sync::Barrier, task::JoinSet};

use crate::{
    Fixture,
    callers::within,
    setup::{Setup, add, count_in, kept, request_for, start_plus},
    steps::{LEASE, claimed, lease},
};

use super::till::{BROKEN, Broken, Payment, Till, is_marked, pay, pays};

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
        let ErrorKind::InProgress { until, .. } = *error.kind() else {
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

/// 93. What comes again under a marked event's id is a duplicate whatever its payload, unless the handler has
///     a fingerprint: then it is a conflict, and does not run.
pub async fn a_repeated_event_with_another_payload_is_a_conflict_if_asked<F: Fixture>() {
    for mode in [0, 1] {
        let setup = Setup::<F>::new().await;
        let [plain, strict] = [(); 2].map(|()| {
            let [atomic, outside] = Till::both(&setup.idem);
            if mode == 0 { atomic } else { outside }
        });
        let by_amount = |till: Till<F::Store>| {
            let of = |payment: &Payment| Ok(Fingerprint::of(&payment.amount)?);
            Till { handler: till.handler.fingerprint(of), ..till }
        };
        let strict = by_amount(strict);
        assert_eq!(plain.handler.handle("plain", pays(1)).await.unwrap(), Handled::Ran);
        assert_eq!(plain.handler.handle("plain", pays(2)).await.unwrap(), Handled::Duplicate);
        let before = (plain.sum().await, strict.sum().await);
        assert_eq!(strict.handler.handle("plain", pays(1)).await.unwrap(), Handled::Conflict);
        let marked = setup.idem.store().mark_processed("billing", "marked").await.unwrap();
        assert_eq!(marked, Marked::First);
        assert_eq!(strict.handler.handle("marked", pays(1)).await.unwrap(), Handled::Conflict);
        assert_eq!((plain.sum().await, strict.sum().await), before, "a conflict must not run");
        assert_eq!(strict.handler.handle("strict", pays(10)).await.unwrap(), Handled::Ran);
        for _ in 0..2 {
            let again = strict.handler.handle("strict", pays(10)).await.unwrap();
            assert_eq!(again, Handled::Duplicate);
            let other = strict.handler.handle("strict", pays(11)).await.unwrap();
            assert_eq!(other, Handled::Conflict);
        }
        // To whom the id alone decides, it is marked.
        assert_eq!(plain.handler.handle("strict", pays(11)).await.unwrap(), Handled::Duplicate);
        let again = setup.idem.store().mark_processed("billing", "strict").await.unwrap();
        assert_eq!(again, Marked::Again);
        assert_eq!(strict.sum().await, before.1 + 10);
        assert!(strict.handler.handle("broken", BROKEN).await.is_err());
        assert_eq!(strict.handler.handle("broken", pays(5)).await.unwrap(), Handled::Ran);
    }
}

/// 93. A payload without a fingerprint, or a fingerprint that panics, fails its delivery before the handler
///     runs.
pub async fn a_payload_without_a_fingerprint_does_not_run<F: Fixture>() {
    for mode in [0, 1] {
        let setup = Setup::<F>::new().await;
        let [none, panics, plain] = [(); 3].map(|()| {
            let [atomic, outside] = Till::both(&setup.idem);
            if mode == 0 { atomic } else { outside }
        });
        let none = none.handler.fingerprint(|_| Ok(Fingerprint::of(&f64::NAN)?));
        let error = none.handle("e", pays(1)).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::InvalidFingerprint(_)), "{error:?}");
        let panics =
            Till { handler: panics.handler.fingerprint(|_| panic!("on purpose")), ..panics };
        let error = panics.handler.handle("e", pays(1)).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Work), "{error:?}");
        assert_eq!(panics.sum().await, 0);
        assert!(!is_marked(&setup.idem, "e").await);
        let by_amount = |payment: &Payment| Ok(Fingerprint::of(&payment.amount)?);
        let plain = Till { handler: plain.handler.fingerprint(by_amount), ..plain };
        assert_eq!(plain.handler.handle("e", pays(1)).await.unwrap(), Handled::Ran);
        assert_eq!(plain.sum().await, 1, "the event runs when it is delivered well");
    }
}
