//! A key that is held for an effect outside the store.

use std::{error::Error as _, time::Duration};

use bytes::Bytes;
use idem_core::{
    Certainty, Claim, Error, ErrorKind, Lease, LeaseError, Outcome, Purged, Receipt, Request,
    Store, Timestamp,
};

use crate::{
    Fixture,
    callers::{joined, together},
    leasing::{HELD_FOR, acquired, assert_lost, end, in_progress, refused},
    setup::{Setup, Tx, add, kept_for, key, request, start_plus},
    steps::LEASE,
};

/// 60, 74. A live lease keeps everybody else out until its end, and tells until when.
pub async fn a_lease_keeps_others_out_until_its_end<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let lease = acquired(&setup.idem, &request("a", "p")).await;
    assert_eq!((lease.key(), lease.until(), lease.took_over()), (&key("a"), end(), None));
    for now in [0, 1, LEASE - 1] {
        setup.clock.set(start_plus(now));
        let held = in_progress(end(), start_plus(now));
        assert_eq!(refused(&setup.idem, &request("a", "p")).await, held, "at {now} ms");
        assert_eq!(setup.add(&request("a", "p"), "count").await, held, "at {now} ms");
        for other in [request("a", "q"), Request::new(key("a"))] {
            assert_eq!(refused(&setup.idem, &other).await, Outcome::Conflict, "at {now} ms");
            assert_eq!(setup.add(&other, "count").await, Outcome::Conflict, "at {now} ms");
        }
    }
    assert_eq!(setup.count("north", "count").await, 0, "nothing may run on a held key");
    acquired(&setup.idem, &request("b", "p")).await.abandon();
    lease.abandon();
}

/// 61, 67, 74. A completed lease replays to everybody; its receipt's life counts from the completion.
pub async fn a_completed_lease_replays<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let lease = acquired(&setup.idem, &request("a", "p")).await;
    setup.clock.set(start_plus(10_000));
    assert_eq!(lease.complete(7).await.unwrap(), 7);
    let receipt = setup.receipt(&key("a")).await;
    let Receipt { created_at, expires_at, result, fingerprint, .. } = receipt;
    assert_eq!((created_at, expires_at), (start_plus(10_000), Some(start_plus(70_000))));
    assert_eq!((result, fingerprint), ("7".into(), request("a", "p").fingerprint_value().copied()));
    setup.clock.set(start_plus(69_999));
    for idem in [setup.idem.clone(), setup.handle().await] {
        assert_eq!(refused(&idem, &request("a", "p")).await, Outcome::Replayed(7));
        assert_eq!(refused(&idem, &request("a", "q")).await, Outcome::Conflict);
    }
    assert_eq!(setup.add(&request("a", "p"), "count").await, Outcome::Replayed(7));
    setup.clock.set(start_plus(70_000));
    let next = acquired(&setup.idem, &request("a", "q")).await;
    assert_eq!(next.took_over(), None, "a completed lease is not taken over");
    next.release().await.unwrap();
}

/// 10, 61. A result of bytes is kept and replayed as it is.
pub async fn a_lease_completes_with_bytes<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let idem = &setup.idem;
    let claim = idem.claim_bytes(&request("a", "p"), HELD_FOR).await.unwrap();
    let result = Bytes::from_static(b"\0no\xffJSON");
    let lease = claim.lease().expect("the key is free");
    assert_eq!(lease.complete_bytes(result.clone()).await.unwrap(), result);
    let again = idem.claim_bytes(&request("a", "p"), HELD_FOR).await.unwrap();
    assert!(matches!(&again, Claim::Replayed(replayed) if *replayed == result), "{again:?}");
    let error = idem.claim::<u64>(&request("a", "p"), HELD_FOR).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ResultUndecodable { .. }), "{error:?}");
    assert_eq!(error.certainty(), Certainty::Done);
}

/// 63, 71. A lease that was ended, and waited for, is taken over at once, with the same parameters.
pub async fn an_ended_lease_is_taken_over_at_once<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let mut token = None;
    for _ in 0..3 {
        let lease = acquired(&setup.idem, &request("a", "p")).await;
        assert_eq!(lease.took_over(), token);
        token = Some(lease.token());
        lease.end().await.unwrap();
    }
    assert_eq!(setup.add(&request("a", "p"), "count").await, Outcome::Created(1));
}

/// 61, 63, 66. A held key is held, and a completed one completed, after closing and opening again. Needs
/// `reopen`.
pub async fn leases_and_their_results_survive_reopening<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let done = acquired(&setup.idem, &request("done", "p")).await;
    done.complete(7).await.unwrap();
    let held = acquired(&setup.idem, &request("held", "p")).await;
    let token = held.token();
    held.abandon();
    let setup = setup.reopened().await;
    assert_eq!(refused(&setup.idem, &request("done", "p")).await, Outcome::Replayed(7));
    let held = refused(&setup.idem, &request("held", "p")).await;
    assert_eq!(held, in_progress(end(), start_plus(0)));
    setup.clock.set(end());
    let next = acquired(&setup.idem, &request("held", "p")).await;
    assert_eq!(next.took_over(), Some(token), "the lease of before is taken over");
    assert!(next.token() > token);
    next.release().await.unwrap();
}

/// 62. A released key is free at once, also for other parameters, and nothing is taken over.
pub async fn a_released_lease_frees_its_key_at_once<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let first = acquired(&setup.idem, &request("a", "p")).await;
    let token = first.token();
    first.release().await.unwrap();
    assert_eq!(kept_for(setup.idem.store(), &key("a")).await, None, "nothing is left of it");
    let second = acquired(&setup.idem, &request("a", "q")).await;
    assert_eq!(second.took_over(), None, "nothing happened outside");
    assert!(second.token() > token);
    second.release().await.unwrap();
    assert_eq!(setup.add(&request("a", "r"), "count").await, Outcome::Created(1));
}

/// 63. At its end, and not a millisecond before, a lease is taken over; the taker is told the token.
pub async fn at_its_end_a_lease_is_taken_over_and_the_taker_is_told<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let first = acquired(&setup.idem, &request("a", "p")).await;
    setup.clock.set(start_plus(LEASE - 1));
    let held = refused(&setup.idem, &request("a", "p")).await;
    assert_eq!(held, in_progress(end(), start_plus(LEASE - 1)));
    setup.clock.set(end());
    let second = acquired(&setup.idem, &request("a", "p")).await;
    assert_eq!(second.took_over(), Some(first.token()));
    assert!(second.token() > first.token());
    assert_eq!(second.until(), start_plus(2 * LEASE));
    setup.clock.set(start_plus(2 * LEASE));
    let third = acquired(&setup.idem, &request("a", "p")).await;
    assert_eq!(third.took_over(), Some(second.token()), "the last one, not the first");
    for lease in [first, second, third] {
        lease.abandon();
    }
}

/// What a holder can ask for.
const ACTS: [&str; 5] = ["complete", "complete with", "renew", "release", "end"];

/// Lets the holder act, and returns its lease if that was refused.
async fn act<S: Store + 'static>(
    act: &str,
    mut lease: Lease<S, u64>,
) -> Result<(), (Error, Lease<S, u64>)> {
    let acted = match act {
        "complete" => lease.complete(1).await.map(drop),
        "complete with" => lease.complete_with(|tx| add(tx, "local")).await.map(drop),
        "release" => lease.release().await,
        "end" => lease.end().await,
        "renew" => {
            return match lease.renew(HELD_FOR).await {
                Ok(()) => {
                    lease.abandon();
                    Ok(())
                }
                Err(error) => Err((error, lease)),
            };
        }
        other => unreachable!("{other}"),
    };
    acted.map_err(LeaseError::into_parts)
}

/// Asserts that the holder is stale, and that what it asks for changes nothing.
async fn assert_stale<F: Fixture>(
    setup: &Setup<F>,
    name: &str,
    lease: Lease<F::Store, u64>,
    when: &str,
) -> Lease<F::Store, u64> {
    let before = kept_for(setup.idem.store(), &key(name)).await;
    let token = lease.token();
    let Err((error, lease)) = act(name, lease).await else {
        panic!("{name} {when} must be refused")
    };
    assert_lost(&error, token, &format!("{name} {when}"));
    assert_eq!(kept_for(setup.idem.store(), &key(name)).await, before, "{name} {when}");
    assert_eq!(setup.count("north", "local").await, 0, "{name} {when}: nothing local is left");
    lease
}

/// 64, 65. A stale holder is refused and changes nothing: at its end, while its successor runs, after that
/// completed, and after the receipt expired and was purged.
pub async fn a_stale_holder_is_refused_whatever_became_of_its_key<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    for name in ACTS {
        setup.clock.set(start_plus(0));
        let stale = acquired(&setup.idem, &request(name, "p")).await;
        setup.clock.set(end());
        let stale = assert_stale(&setup, name, stale, "at the end, with nobody there").await;
        let successor = acquired(&setup.idem, &request(name, "p")).await;
        let stale = assert_stale(&setup, name, stale, "while another holds the key").await;
        setup.clock.set(start_plus(LEASE - 1));
        let stale = assert_stale(&setup, name, stale, "by a clock that stepped back").await;
        assert_eq!(successor.complete(2).await.unwrap(), 2, "{name}: it is undisturbed");
        let stale = assert_stale(&setup, name, stale, "after another completed").await;
        assert_eq!(refused(&setup.idem, &request(name, "p")).await, Outcome::Replayed(2));
        setup.clock.set(start_plus(LEASE - 1 + 60_000));
        let stale = assert_stale(&setup, name, stale, "after that expired").await;
        assert_eq!(setup.idem.purge(100).await.unwrap(), Purged::new(1, false), "{name}");
        let stale = assert_stale(&setup, name, stale, "after that was purged").await;
        setup.clock.set(start_plus(0));
        assert_stale(&setup, name, stale, "with nothing there, by its own time").await.abandon();
    }
}

/// 71. A lease that was dropped is ended before its store is closed. Needs `reopen`.
pub async fn a_dropped_lease_is_ended_before_its_store_closes<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let dropped = acquired(&setup.idem, &request("a", "p")).await;
    let token = dropped.token();
    drop(dropped);
    let setup = setup.reopened().await;
    let next = acquired(&setup.idem, &request("a", "p")).await;
    assert_eq!(next.took_over(), Some(token));
    next.release().await.unwrap();
}

/// 64, 70. A holder acts until the last millisecond of its lease.
pub async fn a_holder_acts_until_the_last_millisecond<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    for name in ACTS {
        setup.clock.set(start_plus(0));
        let lease = acquired(&setup.idem, &request(name, "p")).await;
        setup.clock.set(start_plus(LEASE - 1));
        let acted = act(name, lease).await;
        assert!(acted.is_ok(), "{name}: it is held: {acted:?}");
    }
    assert_eq!(setup.count("north", "local").await, 1);
}

/// 65. Renewing extends from now; what has ended is not renewed, also if nobody took over.
pub async fn renewing_extends_from_now<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let mut lease = acquired(&setup.idem, &request("a", "p")).await;
    let token = lease.token();
    setup.clock.set(start_plus(LEASE - 1));
    lease.renew(HELD_FOR).await.unwrap();
    let until = start_plus(2 * LEASE - 1);
    assert_eq!((lease.until(), lease.token()), (until, token), "it is the same lease");
    setup.clock.set(start_plus(2 * LEASE - 2));
    let held = refused(&setup.idem, &request("a", "p")).await;
    assert_eq!(held, in_progress(until, start_plus(2 * LEASE - 2)));
    lease.renew(Duration::from_micros(999)).await.unwrap();
    assert_eq!(lease.until(), until, "a millisecond from then");
    setup.clock.set(until);
    let error = lease.renew(HELD_FOR).await.unwrap_err();
    assert_lost(&error, token, "at the end");
    let next = acquired(&setup.idem, &request("a", "p")).await;
    assert_eq!(next.took_over(), Some(token));
    next.release().await.unwrap();
    for (lease, problem) in [(Duration::ZERO, "at least"), (Duration::MAX, "overflows")] {
        let mut held = acquired(&setup.idem, &request("b", "p")).await;
        let until = held.until();
        let error = held.renew(lease).await.unwrap_err();
        let is_lease = matches!(error.kind(), ErrorKind::InvalidDuration { field: "lease", .. });
        assert!(is_lease && error.to_string().contains(problem), "{error}");
        assert_eq!(held.until(), until);
        held.release().await.unwrap();
    }
}

/// 66. A key's tokens grow strictly, whatever ended the lease before.
pub async fn tokens_grow_whatever_ended_the_lease<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let request = request("a", "p");
    let mut tokens = Vec::new();
    for ended_by in ["release", "end", "completion and expiry", "forgetting", "purge", "nothing"] {
        let lease = acquired(&setup.idem, &request).await;
        tokens.push(lease.token());
        match ended_by {
            "release" => lease.release().await.unwrap(),
            "completion and expiry" => {
                lease.complete(1).await.unwrap();
                setup.clock.advance(Duration::from_secs(60));
            }
            "forgetting" => {
                lease.complete(1).await.unwrap();
                assert!(setup.idem.forget(&key("a")).await.unwrap());
            }
            "purge" => {
                lease.complete(1).await.unwrap();
                setup.clock.advance(Duration::from_secs(60));
                assert_eq!(setup.idem.purge(10).await.unwrap().removed, 1);
            }
            _ => {
                lease.abandon();
                setup.clock.advance(HELD_FOR);
            }
        }
    }
    assert!(tokens.is_sorted_by(|one, next| one < next), "tokens must grow: {tokens:?}");
}

/// 67. A crashed holder blocks its key for the lease and not for the retention.
pub async fn a_lease_is_not_the_retention<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let day = Duration::from_secs(86_400);
    let request = request("a", "p").retain(day);
    let crashed = acquired(&setup.idem, &request).await;
    let token = crashed.token();
    crashed.abandon();
    setup.clock.set(end());
    let next = acquired(&setup.idem, &request).await;
    assert_eq!(next.took_over(), Some(token));
    next.complete(7).await.unwrap();
    let receipt = setup.receipt(&key("a")).await;
    assert_eq!(receipt.expires_at, Some(start_plus(LEASE + 86_400_000)));
    setup.clock.set(start_plus(LEASE + 86_400_000 - 1));
    assert_eq!(refused(&setup.idem, &request).await, Outcome::Replayed(7));
}

/// 68. The receipt and what belongs into the store are one commit; an error leaves neither, and the lease held.
pub async fn complete_with_commits_its_writes_with_the_receipt<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let lease = acquired(&setup.idem, &request("a", "p")).await;
    let fails = |tx: &mut Tx<F>| {
        add(tx, "count")?;
        Err("on purpose".into())
    };
    let failed = lease.complete_with(fails).await.unwrap_err();
    let cause = failed.source().map(ToString::to_string);
    assert_eq!(cause.as_deref(), Some("on purpose"), "{failed:?}");
    let (error, lease) = failed.into_parts();
    assert!(matches!(error.kind(), ErrorKind::Effect), "{error:?}");
    let panics = |tx: &mut Tx<F>| {
        add(tx, "count")?;
        panic!("on purpose")
    };
    let (error, lease) = lease.complete_with(panics).await.unwrap_err().into_parts();
    assert!(matches!(error.kind(), ErrorKind::Panicked(_)), "{error:?}");
    assert_eq!(setup.count("north", "count").await, 0, "nothing of it may stay");
    let held = refused(&setup.idem, &request("a", "p")).await;
    assert_eq!(held, in_progress(end(), start_plus(0)), "the lease is still held");
    assert_eq!(lease.complete_with(|tx| add(tx, "count")).await.unwrap(), 1);
    assert_eq!(setup.count("north", "count").await, 1);
    assert_eq!(refused(&setup.idem, &request("a", "p")).await, Outcome::Replayed(1));
}

/// 11, 12. A result that cannot be stored is refused, and the lease still held.
pub async fn a_result_that_cannot_be_stored_leaves_the_lease_held<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let idem = setup.idem.clone().with_result_limit(3);
    let request = request("a", "p");
    let Claim::Acquired(lease) = idem.claim::<f64>(&request, HELD_FOR).await.unwrap() else {
        panic!("the key is free")
    };
    let (error, mut lease) = lease.complete(f64::NAN).await.unwrap_err().into_parts();
    assert!(matches!(error.kind(), ErrorKind::ResultUnreadable), "{error:?}");
    for result in [1000.5, 1e300] {
        let (error, same) = lease.complete(result).await.unwrap_err().into_parts();
        assert!(matches!(error.kind(), ErrorKind::ResultTooLarge { limit: 3, .. }), "{error:?}");
        lease = same;
    }
    let (error, lease) = lease.complete_with(|_| Ok(1000.5)).await.unwrap_err().into_parts();
    assert!(matches!(error.kind(), ErrorKind::ResultTooLarge { limit: 3, .. }), "{error:?}");
    let held = refused(&setup.idem, &request).await;
    assert_eq!(held, in_progress(end(), start_plus(0)));
    assert_eq!(lease.complete(1.5).await.unwrap(), 1.5);
}

/// 49. A lease or a retention that is zero or beyond time is refused, and nothing is held.
pub async fn a_lease_of_zero_or_beyond_time_is_refused<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let (zero, most) = (Duration::ZERO, Duration::MAX);
    let long = Duration::from_millis(i64::MAX.unsigned_abs());
    let asked = [
        (request("a", "p"), zero, "lease"),
        (request("a", "p"), most, "lease"),
        (request("a", "p"), long, "lease"),
        (request("a", "p").retain(zero), HELD_FOR, "retention"),
        (request("a", "p").retain(most), HELD_FOR, "retention"),
        (request("a", "p").retain(long), HELD_FOR, "retention"),
    ];
    for (request, lease, named) in asked {
        let error = setup.idem.claim::<u64>(&request, lease).await.unwrap_err();
        let ErrorKind::InvalidDuration { field, .. } = *error.kind() else {
            panic!("{named} of {lease:?} is no good: {error:?}")
        };
        assert_eq!(field, named);
        assert_eq!(kept_for(setup.idem.store(), &key("a")).await, None);
    }
    let lease = setup.idem.claim::<u64>(&request("a", "p"), Duration::from_nanos(1)).await.unwrap();
    assert_eq!(lease.lease().unwrap().until(), start_plus(1), "rounded up");
}

/// 69. Of many who claim one ended lease at the same time, one gets it and is told; the others wait for it.
pub async fn of_many_who_take_over_one_lease_one_wins<F: Fixture>() {
    const CALLERS: usize = 32;
    let setup = Setup::<F>::new().await;
    let first = acquired(&setup.idem, &request("a", "p")).await;
    setup.clock.set(end());
    let callers = (0..CALLERS).map(|_| {
        let idem = setup.idem.clone();
        async move { idem.claim::<u64>(&request("a", "p"), HELD_FOR).await.unwrap() }
    });
    let mut winners = Vec::new();
    for claim in together(callers).await {
        match claim {
            Claim::Acquired(lease) => winners.push(lease),
            Claim::InProgress { until, .. } => assert_eq!(until, start_plus(2 * LEASE)),
            other => panic!("the key is held or taken: {other:?}"),
        }
    }
    assert_eq!(winners.len(), 1, "one claim must win");
    let winner = winners.remove(0);
    assert_eq!(winner.took_over(), Some(first.token()));
    assert_eq!(winner.complete(7).await.unwrap(), 7);
}

/// 75. A purge removes no live lease, also one that was renewed beyond its retention.
pub async fn a_purge_removes_no_live_lease<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let short = request("a", "p").retain(Duration::from_millis(1));
    let mut lease = acquired(&setup.idem, &short).await;
    setup.clock.set(start_plus(LEASE - 1));
    lease.renew(HELD_FOR).await.unwrap();
    setup.clock.set(start_plus(2 * LEASE - 2));
    assert_eq!(setup.idem.purge(10).await.unwrap(), Purged::new(0, false));
    assert_eq!(lease.complete(7).await.unwrap(), 7, "it is held as before");
    assert_eq!(setup.receipt(&key("a")).await.expires_at, Some(start_plus(2 * LEASE - 1)));
}

/// 61. A lease moves to another task, which completes it.
pub async fn a_lease_moves_to_another_task<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let lease = acquired(&setup.idem, &request("a", "p")).await;
    let task = tokio::spawn(async move { lease.complete(7).await.map_err(|failed| failed.into()) });
    let completed: Result<u64, idem_core::Error> = joined("the task", task).await;
    assert_eq!(completed.unwrap(), 7);
    assert_eq!(refused(&setup.idem, &request("a", "p")).await, Outcome::Replayed(7));
}

/// 51. By a clock that stepped back a lease is told to end no later than it was given.
pub async fn a_clock_that_steps_back_makes_no_lease_longer<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let lease = acquired(&setup.idem, &request("a", "p")).await;
    setup.clock.set(Timestamp::from_millis(0));
    let Outcome::InProgress { until, retry_after } = refused(&setup.idem, &request("a", "p")).await
    else {
        panic!("the lease is held")
    };
    assert_eq!((until, retry_after), (end(), HELD_FOR));
    assert_eq!(lease.complete(7).await.unwrap(), 7);
}
