//! What a lease leaves that ended without an answer: an unknown outcome, bound to its parameters, until it is gone.

use std::time::Duration;

use idem_core::{
    Certainty, Claim, ErrorKind, Fingerprint, Idem, Key, Outcome, Purged, Request, Settlement,
    Store, Timestamp, Token,
    consumer::{Handled, Handler, Marked, Recorder},
};

use crate::{
    Fixture,
    leasing::{HELD_FOR, acquired, assert_lost, end, in_progress, refused},
    setup::{Setup, kept_for, key, request, start_plus},
    steps::LEASE,
};

/// How long the record of a request's lease is kept after its end.
const KEPT: i64 = 60_000;

/// Claims a request's key and ends the lease at `at`, by name or by letting its time pass.
async fn ended<F: Fixture>(setup: &Setup<F>, request: &Request, by_name: bool, at: i64) -> Token {
    setup.clock.set(start_plus(if by_name { 0 } else { at - LEASE }));
    let lease = acquired(&setup.idem, request).await;
    let token = lease.token();
    setup.clock.set(start_plus(at));
    if by_name {
        lease.end().await.unwrap();
    } else {
        lease.abandon();
    }
    token
}

/// 76. An ended lease is a conflict for other parameters on every path, for as long as its record is kept.
pub async fn an_ended_lease_keeps_its_parameters_until_it_is_gone<F: Fixture>() {
    for by_name in [true, false] {
        let setup = Setup::<F>::new().await;
        let token = ended(&setup, &request("a", "p"), by_name, 20_000).await;
        for now in [20_000, 20_000 + KEPT - 1] {
            setup.clock.set(start_plus(now));
            for other in [request("a", "q"), Request::new(key("a"))] {
                assert_eq!(refused(&setup.idem, &other).await, Outcome::Conflict, "at {now}");
                assert_eq!(setup.add(&other, "count").await, Outcome::Conflict, "at {now}");
            }
        }
        let next = acquired(&setup.idem, &request("a", "p")).await;
        assert_eq!(next.took_over(), Some(token), "with its own parameters it is taken over");
        assert_eq!(next.complete(7).await.unwrap(), 7);
        assert_eq!(setup.count("north", "count").await, 0, "no conflict may run");

        let setup = Setup::<F>::new().await;
        ended(&setup, &request("a", "p"), by_name, 20_000).await;
        setup.clock.set(start_plus(20_000 + KEPT));
        let next = acquired(&setup.idem, &request("a", "q")).await;
        assert_eq!(next.took_over(), None, "what is gone is not taken over");
        next.release().await.unwrap();
    }
}

/// 77. Claim, run, listing, forgetting and purge agree on the millisecond at which an ended lease is gone.
pub async fn every_path_agrees_when_an_ended_lease_is_gone<F: Fixture>() {
    for by_name in [true, false] {
        for (now, is_there) in [(KEPT - 1, true), (KEPT, false), (KEPT + 1, false)] {
            let setup = Setup::<F>::new().await;
            let names = ["claim", "run", "settle", "forget", "purge"];
            for name in names {
                ended(&setup, &request(name, "p"), by_name, 20_000).await;
            }
            setup.clock.set(start_plus(20_000 + now));
            let listed = setup.idem.list(None, 10).await.unwrap().records.len();
            let claim = acquired(&setup.idem, &request("claim", "p")).await;
            let runs = setup.add(&request("run", "q"), "count").await;
            let settled = setup.idem.settle(&key("settle"), Settlement::NothingHappened).await;
            let forgotten = setup.idem.forget(&key("forget")).await.unwrap();
            let purged = setup.idem.purge(10).await.unwrap();
            assert_eq!(
                (listed, claim.took_over().is_some(), runs == Outcome::Conflict),
                (if is_there { names.len() } else { 0 }, is_there, is_there),
                "(list, claim, run) at {now} of {KEPT} ms, ended by name: {by_name}"
            );
            let stays = kept_for(setup.idem.store(), &key("purge")).await.is_some();
            assert_eq!(
                (settled.unwrap(), forgotten, stays),
                (is_there, is_there, is_there),
                "(settle, forget, purge) at {now} of {KEPT} ms, ended by name: {by_name}"
            );
            // Beside it the one that nobody could settle.
            let due = if is_there { 0 } else { 2 };
            assert_eq!(purged, Purged::new(due, false), "at {now} of {KEPT} ms");
            claim.abandon();
        }
    }
}

/// 77. A lease that was renewed, or cut short, is kept as long from its end as any.
pub async fn a_renewed_lease_is_kept_as_long_from_its_end<F: Fixture>() {
    for renewed_by in [3 * LEASE, 10] {
        let setup = Setup::<F>::new().await;
        let mut lease = acquired(&setup.idem, &request("a", "p")).await;
        let token = lease.token();
        setup.clock.set(start_plus(10_000));
        lease.renew(Duration::from_millis(renewed_by.unsigned_abs())).await.unwrap();
        lease.abandon();
        let gone = 10_000 + renewed_by + KEPT;
        setup.clock.set(start_plus(gone - 1));
        assert_eq!(setup.idem.purge(10).await.unwrap(), Purged::new(0, false), "by {renewed_by}");
        assert_eq!(refused(&setup.idem, &request("a", "q")).await, Outcome::Conflict);
        let unfinished = refusing(&setup.idem, "a").await;
        assert_eq!(unfinished, (token, start_plus(10_000 + renewed_by)));
        setup.clock.set(start_plus(gone));
        assert_eq!(setup.idem.purge(10).await.unwrap().removed, 1, "by {renewed_by}");
        assert_eq!(kept_for(setup.idem.store(), &key("a")).await, None);
    }
}

/// 78. A lease that was ended stays so when the clock is set back to before its claim: it holds nobody up.
pub async fn a_lease_that_was_ended_stays_so_when_the_clock_is_set_back<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    for name in ["claim", "run", "forget"] {
        // An hour fast, and then set right.
        setup.clock.set(start_plus(3_600_000));
        let lease = acquired(&setup.idem, &request(name, "p")).await;
        let token = lease.token();
        lease.end().await.unwrap();
        setup.clock.set(start_plus(0));
        match name {
            "claim" => {
                let next = acquired(&setup.idem, &request(name, "p")).await;
                assert_eq!(next.took_over(), Some(token));
                next.abandon();
            }
            "run" => {
                let ran = setup.add(&request(name, "p"), "count").await;
                assert_eq!(ran, Outcome::Created(1));
            }
            _ => assert!(setup.idem.forget(&key(name)).await.unwrap()),
        }
    }
}

/// 78. An end, or a renewal, by a clock that was set back far is no reason to lose the evidence when the clock is right.
pub async fn a_clock_that_was_set_back_loses_no_evidence<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    for name in ["end", "renew"] {
        setup.clock.set(start_plus(0));
        let mut lease = acquired(&setup.idem, &request(name, "p")).await;
        let token = lease.token();
        setup.clock.set(start_plus(-3_600_000));
        if name == "end" {
            lease.end().await.unwrap();
        } else {
            lease.renew(HELD_FOR).await.unwrap();
            lease.abandon();
        }
        setup.clock.set(start_plus(KEPT - 1));
        assert_eq!(setup.idem.purge(10).await.unwrap(), Purged::new(0, false), "{name}");
        assert_eq!(refused(&setup.idem, &request(name, "q")).await, Outcome::Conflict, "{name}");
        assert_eq!(refusing(&setup.idem, name).await.0, token, "{name}");
        setup.clock.set(start_plus(KEPT));
        let next = acquired(&setup.idem, &request(name, "q")).await;
        assert_eq!(next.took_over(), None, "{name}: it is kept from the claim on, at least");
        next.release().await.unwrap();
    }
}

/// 62. Taking over with a shorter retention does not shorten how long the evidence is kept.
pub async fn a_takeover_keeps_the_evidence_as_long_as_before<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    ended(&setup, &request("a", "p"), true, 0).await;
    let brief = request("a", "p").retain(Duration::from_millis(1));
    let second = acquired(&setup.idem, &brief).await;
    let token = second.token();
    second.release().await.unwrap();
    setup.clock.set(start_plus(KEPT - 1));
    assert_eq!(refusing(&setup.idem, "a").await, (token, start_plus(0)));
    setup.clock.set(start_plus(KEPT));
    let next = acquired(&setup.idem, &request("a", "p")).await;
    assert_eq!(next.took_over(), None);
    // The receipt lives as long as its own request says.
    next.complete(7).await.unwrap();
    assert_eq!(setup.receipt(&key("a")).await.expires_at, Some(start_plus(2 * KEPT)));
}

/// 78. A holder whose lease was ended by another cannot renew it, also by a clock that was set back.
pub async fn no_renewal_revives_a_lease_that_was_ended<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let mut lease = acquired(&setup.idem, &request("a", "p")).await;
    let token = lease.token();
    setup.clock.set(start_plus(LEASE - 1));
    assert_eq!(setup.idem.end_held(&key("a")).await.unwrap(), Some(token));
    for now in [LEASE - 1, 0, -3_600_000] {
        setup.clock.set(start_plus(now));
        let error = lease.renew(HELD_FOR).await.unwrap_err();
        assert_lost(&error, token, &format!("at {now} ms"));
        assert_eq!(refusing(&setup.idem, "a").await, (token, start_plus(LEASE - 1)));
    }
    let (error, lease) = lease.complete(7).await.unwrap_err().into_parts();
    assert_lost(&error, token, "a completion");
    lease.abandon();
}

/// 62. A lease that took over is ended by a release, since what happened before it is still unknown.
pub async fn a_released_lease_that_took_over_is_ended<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    ended(&setup, &request("a", "p"), true, 0).await;
    let second = acquired(&setup.idem, &request("a", "p")).await;
    let token = second.token();
    second.release().await.unwrap();
    assert_eq!(refused(&setup.idem, &request("a", "q")).await, Outcome::Conflict);
    let third = acquired(&setup.idem, &request("a", "p")).await;
    assert_eq!(third.took_over(), Some(token), "the evidence stays");
    third.abandon();
}

/// What a claim is told that refuses to take over.
async fn refusing<S: Store + 'static>(idem: &Idem<S>, name: &str) -> (Token, Timestamp) {
    let request = request(name, "p").refuse_takeover();
    match idem.claim::<u64>(&request, HELD_FOR).await.unwrap() {
        Claim::Unfinished { token, ended_at } => (token, ended_at),
        other => panic!("{name} must be unfinished: {other:?}"),
    }
}

/// 63. A claim that refuses to take over says what there is, and writes nothing; on a free key it is as any.
pub async fn a_claim_that_refuses_to_take_over_writes_nothing<F: Fixture>() {
    for by_name in [true, false] {
        let setup = Setup::<F>::new().await;
        let token = ended(&setup, &request("a", "p"), by_name, 20_000).await;
        let before = kept_for(setup.idem.store(), &key("a")).await;
        for now in [20_000, 20_000 + KEPT - 1] {
            setup.clock.set(start_plus(now));
            assert_eq!(refusing(&setup.idem, "a").await, (token, start_plus(20_000)), "at {now}");
            assert_eq!(kept_for(setup.idem.store(), &key("a")).await, before, "at {now}");
        }
        let other = request("a", "q").refuse_takeover();
        assert_eq!(refused(&setup.idem, &other).await, Outcome::Conflict);
        setup.clock.set(start_plus(20_000 + KEPT));
        let next = acquired(&setup.idem, &request("a", "p").refuse_takeover()).await;
        assert_eq!(next.took_over(), None);
        let held = refused(&setup.idem, &request("a", "p").refuse_takeover()).await;
        assert_eq!(held, in_progress(next.until(), start_plus(20_000 + KEPT)));
        next.abandon();
    }
}

/// 71, 113. A claim that took over and whose answer was lost is ended, and not released: the evidence stays.
pub async fn a_lost_claim_that_took_over_is_ended<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let (idem, steps) = setup.watched().await;
    let first = ended(&setup, &request("a", "p"), true, 0).await;
    let before = steps.answered();
    steps.lose(1);
    let error = idem.claim::<u64>(&request("a", "p"), HELD_FOR).await.unwrap_err();
    assert_eq!(error.certainty(), Certainty::Unknown, "{error:?}");
    steps.reach(before + 2).await;
    let (token, _) = refusing(&setup.idem, "a").await;
    assert!(token > first, "the claim came into force, and is ended");
    assert_eq!(refused(&setup.idem, &request("a", "q")).await, Outcome::Conflict);
}

/// 79. An operator settles an unknown outcome, as done or as never done; nothing else is settled.
pub async fn an_unknown_outcome_is_settled<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let idem = &setup.idem;
    let done = || Settlement::Completed("7".into());
    for name in ["done", "never"] {
        assert!(!idem.settle(&key(name), done()).await.unwrap(), "nothing is unknown of it");
        setup.clock.set(start_plus(0));
        let lease = acquired(idem, &request(name, "p")).await;
        let error = idem.settle(&key(name), Settlement::NothingHappened).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::InProgress { .. }), "{error:?}");
        lease.end().await.unwrap();
    }
    setup.clock.set(start_plus(KEPT - 1));
    let long = Settlement::Completed(vec![b'1'; idem.result_limit() + 1].into());
    let error = idem.settle(&key("done"), long).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ResultTooLarge { .. }), "{error:?}");
    assert!(idem.settle(&key("done"), done()).await.unwrap());
    assert!(idem.settle(&key("never"), Settlement::NothingHappened).await.unwrap());
    assert_eq!(refused(idem, &request("done", "p")).await, Outcome::Replayed(7));
    assert_eq!(refused(idem, &request("done", "q")).await, Outcome::Conflict);
    let receipt = setup.receipt(&key("done")).await;
    assert_eq!(receipt.created_at, start_plus(KEPT - 1));
    assert_eq!(receipt.expires_at, Some(start_plus(2 * KEPT - 1)), "as long as it was kept for");
    assert!(!idem.settle(&key("done"), done()).await.unwrap(), "a receipt is left as it is");
    assert_eq!(setup.receipt(&key("done")).await, receipt);
    let next = acquired(idem, &request("never", "q")).await;
    assert_eq!(next.took_over(), None, "nothing happened");
    next.release().await.unwrap();
}

/// 79. An operator ends a live lease by its key: its holder is told, and the next claim takes over.
pub async fn a_live_lease_is_ended_by_its_key<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let idem = &setup.idem;
    assert_eq!(idem.end_held(&key("a")).await.unwrap(), None, "nobody holds it");
    let lease = acquired(idem, &request("a", "p")).await;
    let token = lease.token();
    setup.clock.set(start_plus(LEASE - 1));
    assert_eq!(idem.end_held(&key("a")).await.unwrap(), Some(token));
    assert_eq!(idem.end_held(&key("a")).await.unwrap(), None, "it has ended");
    let (error, lease) = lease.complete(1).await.unwrap_err().into_parts();
    assert_lost(&error, token, "a completion");
    lease.abandon();
    assert_eq!(refusing(idem, "a").await, (token, start_plus(LEASE - 1)));
    setup.clock.set(end());
    assert_eq!(idem.end_held(&key("a")).await.unwrap(), None);
    assert_eq!(setup.add(&request("done", "p"), "count").await, Outcome::Created(1));
    assert_eq!(idem.end_held(&key("done")).await.unwrap(), None, "a receipt is no lease");
    assert_eq!(setup.add(&request("done", "p"), "count").await, Outcome::Replayed(1));
}

/// 93. Events are asked for by their ids: an ended lease stops neither a mark nor a handler without a fingerprint. A
///     handler with another fingerprint answers conflict, and does not run.
pub async fn an_ended_lease_of_an_event_stops_no_mark<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let idem = &setup.idem;
    let of = |payload: &&'static str| Ok(Fingerprint::of(payload)?);
    let atomic = || Handler::atomic(idem, "billing", |_, _: &&'static str| Ok(())).unwrap();
    let outside = || {
        let work = |_: &'static str| async { Ok::<(), std::fmt::Error>(()) };
        Handler::outside(idem, "billing", work).unwrap()
    };
    for name in ["mark", "atomic", "outside", "same", "other"] {
        let event = Key::event("billing", name).unwrap();
        let lease = Request::new(event).with_fingerprint(Fingerprint::of("p").unwrap());
        acquired(idem, &lease.retain_forever()).await.end().await.unwrap();
    }
    assert!(!idem.is_processed("billing", "mark").await.unwrap());
    assert_eq!(idem.mark_processed("billing", "mark").await.unwrap(), Marked::First);
    assert_eq!(idem.mark_processed("billing", "mark").await.unwrap(), Marked::Again);
    assert_eq!(atomic().handle("atomic", "q").await.unwrap(), Handled::Ran);
    assert_eq!(outside().handle("outside", "q").await.unwrap(), Handled::Ran);
    for handler in [atomic().fingerprint(of), outside().fingerprint(of)] {
        assert_eq!(handler.handle("other", "q").await.unwrap(), Handled::Conflict);
        assert!(!idem.is_processed("billing", "other").await.unwrap(), "it must not run");
    }
    assert_eq!(atomic().fingerprint(of).handle("same", "p").await.unwrap(), Handled::Ran);
    assert_eq!(outside().fingerprint(of).handle("other", "p").await.unwrap(), Handled::Ran);
}
