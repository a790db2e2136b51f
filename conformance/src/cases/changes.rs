//! What a store makes of each change that a step asks for.

use std::time::Duration;

use idem_core::{
    Certainty, Change, Error, ErrorKind, Key, Outcome, Request, State, Store, Timestamp,
    Transaction,
};

use crate::{
    Fixture,
    leasing::in_progress,
    setup::{START, Setup, kept, kept_for, key, request, start_plus},
    steps::{LEASE, change, claim, claim_of, claim_of_free, claimed, claimed_record, lease, run},
};

/// 60. A claim is stored with exact fields, and shows in the listing.
pub async fn a_claim_is_stored_exactly<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let plain = request("plain", "p").retain(Duration::from_millis(12_345));
    let bare = Request::new(key("bare")).retain_forever();
    let event = Request::new(Key::event("billing", "e").unwrap());
    let mut expected = Vec::new();
    for request in [plain, bare, event] {
        let committed = claim(&setup.idem, &request).await;
        assert_eq!((committed.ran, committed.now), (true, START));
        assert_eq!(committed.before, None);
        let after = committed.after.expect("a claim leaves a record");
        let record = claimed_record(&request, &after, START);
        assert_eq!(after, record, "what was committed is reported");
        expected.push((request.key().clone(), record));
    }
    expected.sort_by(|(one, _), (other, _)| one.cmp(other));
    for idem in [setup.idem.clone(), setup.handle().await] {
        for limit in [1, 10] {
            let mut kept = kept(idem.store(), limit).await;
            kept.sort_by(|(one, _), (other, _)| one.cmp(other));
            assert_eq!(kept, expected);
        }
    }
}

/// 65. Extending moves the end of the lease, from now, and nothing else.
pub async fn extending_moves_only_the_leases_end<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let request = request("a", "p");
    let before = claim_of_free(&setup.idem, &request).await;
    let now = start_plus(10_000);
    setup.clock.set(now);
    let extend = Change::Extend { lease: lease(LEASE + 7) };
    let extended = change(&setup.idem, &key("a"), extend).await.unwrap();
    let mut after = before.clone();
    let end = start_plus(10_000 + LEASE + 7);
    let State::Claimed { until, .. } = &mut after.state else { unreachable!("it is a claim") };
    *until = end;
    assert_eq!((extended.ran, extended.now), (true, now));
    assert_eq!((extended.before, extended.after.as_ref()), (Some(before), Some(&after)));
    assert_eq!(kept_for(setup.idem.store(), &key("a")).await, Some(after));
    let before_end = Timestamp::from_millis(end.as_millis() - 1);
    setup.clock.set(before_end);
    let held = setup.add(&request, "count").await;
    assert_eq!(held, in_progress(end, before_end), "the old end has passed, the new not");
    setup.clock.set(end);
    assert_eq!(setup.add(&request, "count").await, Outcome::Created(1));
    let nothing = change(&setup.idem, &key("b"), Change::Extend { lease: lease(1) }).await.unwrap();
    assert_eq!((nothing.before, nothing.after), (None, None), "there is no lease to extend");
}

/// 71. Ending a lease marks it as ended at that time, and changes nothing else: no clock that steps back brings it to
///     life.
pub async fn ending_a_lease_keeps_its_record<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let request = request("a", "p");
    let before = claim_of_free(&setup.idem, &request).await;
    let now = start_plus(10_000);
    setup.clock.set(now);
    let ended = change(&setup.idem, &key("a"), Change::End).await.unwrap();
    let mut after = before.clone();
    let State::Claimed { until, is_ended, .. } = &mut after.state else {
        unreachable!("it is a claim")
    };
    (*until, *is_ended) = (now, true);
    assert_eq!((ended.ran, ended.now), (true, now));
    assert_eq!((ended.before, ended.after.as_ref()), (Some(before), Some(&after)));
    assert_eq!(kept_for(setup.idem.store(), &key("a")).await, Some(after.clone()));
    setup.clock.set(START);
    let next = claim(&setup.idem, &request).await;
    assert_eq!((next.ran, next.before), (true, Some(after)), "what was ended is not held");
    let nothing = change(&setup.idem, &key("b"), Change::End).await.unwrap();
    assert_eq!((nothing.before, nothing.after), (None, None), "there is no lease to end");
}

/// 62. Keeping leaves the record as it is; removing leaves none; both say what was there.
pub async fn keeping_and_removing_do_what_they_say<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let idem = &setup.idem;
    let receipted = request("receipt", "p");
    assert_eq!(setup.add(&receipted, "count").await, Outcome::Created(1));
    claimed(idem, &request("claim", "p")).await;
    for (name, is_there) in [("nothing", false), ("receipt", true), ("claim", true)] {
        let before = kept_for(idem.store(), &key(name)).await;
        assert_eq!(before.is_some(), is_there);
        setup.clock.advance(Duration::from_millis(1));
        let kept = change(idem, &key(name), Change::Keep).await.unwrap();
        assert_eq!((kept.ran, &kept.before, &kept.after), (true, &before, &before), "{name}");
        assert_eq!(kept_for(idem.store(), &key(name)).await, before, "{name} must be kept");
        let removed = change(idem, &key(name), Change::Remove).await.unwrap();
        assert_eq!((removed.ran, &removed.before, &removed.after), (true, &before, &None));
        assert_eq!(kept_for(idem.store(), &key(name)).await, None, "{name} must be removed");
    }
    assert_eq!(setup.add(&receipted, "count").await, Outcome::Created(2));
    assert_eq!(setup.add(&request("claim", "q"), "count").await, Outcome::Created(3));
}

/// 68. What a step writes is committed with the change that it asks for, whichever that is.
pub async fn a_steps_writes_are_committed_with_its_change<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let changes = [
        ("claim", claim_of(&request("a", "p"))),
        ("extend", Change::Extend { lease: lease(LEASE) }),
        ("end", Change::End),
        ("keep", Change::Keep),
        ("remove", Change::Remove),
    ];
    for (name, change) in changes {
        let step = move |tx: &mut <F::Store as Store>::Transaction| {
            tx.put(name.as_bytes(), b"1")?;
            Ok(change.clone())
        };
        let committed = run(&setup.idem, &key("a"), step).await.unwrap();
        assert!(committed.ran);
        assert_eq!(setup.count("north", name).await, 1, "the write beside {name}");
        let kept = kept_for(setup.idem.store(), &key("a")).await;
        assert_eq!(kept, committed.after, "the change beside a write: {name}");
        assert_eq!(kept.is_some(), name != "remove");
    }
}

/// 68. A step that fails, and a change that cannot be stamped, leave neither write nor change.
pub async fn a_failed_step_leaves_neither_write_nor_change<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let request = request("a", "p");
    let before = Some(claim_of_free(&setup.idem, &request).await);
    let fails = |tx: &mut <F::Store as Store>::Transaction| -> Result<Change, Error> {
        tx.put(b"written", b"1")?;
        Err(Error::nothing_done(ErrorKind::Reentrant))
    };
    let error = run(&setup.idem, &key("a"), fails).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Reentrant), "the step's own error: {error:?}");
    setup.clock.set(Timestamp::from_millis(i64::MAX));
    let changes = [
        ("claim", claim_of(&request.clone().retain_forever())),
        ("extend", Change::Extend { lease: lease(1) }),
    ];
    for (name, change) in changes {
        let overflows = move |tx: &mut <F::Store as Store>::Transaction| {
            tx.put(b"written", b"1")?;
            Ok(change.clone())
        };
        let error = run(&setup.idem, &key("a"), overflows).await.unwrap_err();
        let is_lease = matches!(error.kind(), ErrorKind::InvalidDuration { field: "lease", .. });
        assert!(is_lease, "a lease beyond time must be refused by {name}: {error:?}");
        assert_eq!(error.certainty(), Certainty::NothingDone);
    }
    assert_eq!(setup.count("north", "written").await, 0, "a failed step's write must not stay");
    assert_eq!(kept_for(setup.idem.store(), &key("a")).await, before);
    let removed = change(&setup.idem, &key("a"), Change::Remove).await.unwrap();
    assert_eq!((removed.before, removed.after), (before, None), "the store must go on working");
}
