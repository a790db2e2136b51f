//! How long a receipt lives.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use idem_core::{
    Certainty, Clock, EffectError, Error, ErrorKind, Key, Outcome, Request, Space, Store,
    Timestamp, Transaction,
};

use crate::{
    Fixture,
    setup::{
        Runs, START, Setup, add, count_in, kept_for, key, receipts, request, request_for,
        start_plus,
    },
    steps::claim,
};

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// 40. One millisecond before its end, a receipt replays.
pub async fn one_millisecond_before_its_end_a_receipt_replays<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    assert_eq!(setup.add(&request("a", "p"), "count").await, Outcome::Created(1));
    setup.clock.set(start_plus(59_999));
    assert_eq!(setup.add(&request("a", "p"), "count").await, Outcome::Replayed(1));
    assert_eq!(setup.add(&request("a", "q"), "count").await, Outcome::Conflict);
    assert_eq!(setup.count("north", "count").await, 1);
}

/// 41. At its end a receipt has expired: a second effect, and one receipt, which is the new one.
pub async fn at_its_end_a_receipt_has_expired_and_the_key_runs_again<F: Fixture>() {
    runs_again_at::<F>(start_plus(60_000)).await;
}

/// 42. One millisecond after its end a receipt has expired as well.
pub async fn one_millisecond_after_its_end_a_receipt_has_expired<F: Fixture>() {
    runs_again_at::<F>(start_plus(60_001)).await;
}

async fn runs_again_at<F: Fixture>(now: Timestamp) {
    let setup = Setup::<F>::new().await;
    assert_eq!(setup.add(&request("a", "p"), "count").await, Outcome::Created(1));
    setup.clock.set(now);
    assert_eq!(setup.add(&request("a", "p"), "count").await, Outcome::Created(2));
    assert_eq!(setup.add(&request("a", "p"), "count").await, Outcome::Replayed(2));
    assert_eq!(setup.count("north", "count").await, 2);
    assert_eq!(setup.receipts().await, 1, "the new receipt must replace the expired one");
    let receipt = setup.receipt(&key("a")).await;
    assert_eq!(receipt.created_at, now);
    assert_eq!(receipt.expires_at, Some(Timestamp::from_millis(now.as_millis() + 60_000)));
}

/// 43. A web shop's day: seven effects, and six receipts are left.
pub async fn a_days_calls_leave_seven_effects_and_six_receipts<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let forever = |tenant: &str, operation: &str, name: &str, quantity: &str| {
        request_for(Key::new(tenant, operation, name).unwrap(), quantity).retain_forever()
    };
    let intent = forever("north", "order", "intent", "3 pieces");
    assert_eq!(setup.add(&intent, "orders").await, Outcome::Created(1));
    for _ in 0..7 {
        assert_eq!(setup.add(&intent, "orders").await, Outcome::Replayed(1));
    }
    let other = forever("north", "order", "intent", "4 pieces");
    assert_eq!(setup.add(&other, "orders").await, Outcome::Conflict);

    let others = [
        (forever("south", "order", "intent", "3 pieces"), 1),
        (forever("north", "cancel", "intent", "3 pieces"), 2),
        (forever("north", "order", "intent-2", "3 pieces"), 3),
    ];
    for (request, orders) in &others {
        assert_eq!(setup.add(request, "orders").await, Outcome::Created(*orders));
    }

    let retried = forever("north", "order", "retried", "3 pieces");
    let fails = |tx: &mut <F::Store as Store>::Transaction| -> Result<u64, EffectError> {
        add(tx, "orders")?;
        Err("the card was declined".into())
    };
    let error = setup.idem.execute(&retried, fails).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Effect), "{error:?}");
    assert_eq!(setup.count("north", "orders").await, 3, "an error after the write leaves nothing");
    assert_eq!(setup.add(&retried, "orders").await, Outcome::Created(4));

    let fresh = setup.handle().await;
    let replayed = fresh.execute(&intent, |tx| add(tx, "orders")).await.unwrap();
    assert_eq!(replayed, Outcome::Replayed(1), "a fresh handle must replay");

    let short = request("short", "3 pieces").retain(Duration::from_secs(60));
    assert_eq!(setup.add(&short, "orders").await, Outcome::Created(5));
    setup.clock.advance(Duration::from_secs(59));
    assert_eq!(setup.add(&short, "orders").await, Outcome::Replayed(5));
    setup.clock.advance(Duration::from_secs(1));
    assert_eq!(setup.add(&short, "orders").await, Outcome::Created(6));

    let effects = setup.count("north", "orders").await + setup.count("south", "orders").await;
    assert_eq!((effects, setup.receipts().await), (7, 6));
    assert_eq!(receipts(&fresh).await, 6);
}

/// 44. A read, a run, a claim and a purge agree on the instants around the end.
pub async fn every_path_agrees_on_the_end<F: Fixture>() {
    for (now, is_live) in [(59_999, true), (60_000, false), (60_001, false)] {
        let setup = Setup::<F>::new().await;
        for name in ["read", "run", "claim", "forget"] {
            let created = setup.add(&request(name, "p"), name).await;
            assert_eq!(created, Outcome::Created(1));
        }
        setup.clock.set(start_plus(now));
        let reads = setup.idem.receipt(&key("read")).await.unwrap().is_some();
        let lists = setup.receipts().await == 4;
        let runs = setup.add(&request("run", "p"), "run").await == Outcome::Created(2);
        let claims = claim(&setup.idem, &request("claim", "p")).await.ran;
        let forgets = setup.idem.forget(&key("forget")).await.unwrap();
        assert_eq!(
            (reads, lists, !runs, !claims, forgets),
            (is_live, is_live, is_live, is_live, is_live),
            "(read, list, run, claim, forget) must agree on a receipt at {now} of 60000 ms"
        );
        // All but the read one have been replaced or removed by now, where the receipt had expired.
        let removed = setup.idem.purge(100).await.unwrap().removed;
        assert_eq!(removed, usize::from(!is_live), "purge must agree at {now} of 60000 ms");
        for (name, stays) in [("read", is_live), ("run", true), ("claim", true)] {
            let kept = kept_for(setup.idem.store(), &key(name)).await;
            assert_eq!(kept.is_some(), stays, "{name} after a purge at {now} of 60000 ms");
        }
    }
}

/// 45. An expired receipt behaves the same whether it was purged or not, and a new fingerprint is welcome.
pub async fn an_expired_receipt_behaves_as_a_purged_one<F: Fixture>() {
    for purged in [false, true] {
        let setup = Setup::<F>::new().await;
        assert_eq!(setup.add(&request("a", "p"), "count").await, Outcome::Created(1));
        assert_eq!(setup.add(&request("b", "p"), "other").await, Outcome::Created(1));
        setup.clock.set(start_plus(60_000));
        if purged {
            assert_eq!(setup.idem.purge(2).await.unwrap().removed, 2);
        }
        let kept = kept_for(setup.idem.store(), &key("a")).await;
        assert!(purged || kept.is_some_and(|record| record.is_purgeable(start_plus(60_000))));
        assert_eq!(setup.idem.receipt(&key("a")).await.unwrap(), None, "purged: {purged}");
        // The other one, so that the expired receipt is still there to be replaced.
        assert!(!setup.idem.forget(&key("b")).await.unwrap(), "purged: {purged}");
        assert_eq!(setup.receipts().await, 0, "purged: {purged}");
        assert_eq!(setup.add(&request("a", "q"), "count").await, Outcome::Created(2));
        assert_eq!(setup.add(&request("a", "q"), "count").await, Outcome::Replayed(2));
        assert_eq!(setup.add(&request("a", "p"), "count").await, Outcome::Conflict);
        assert_eq!((setup.receipts().await, setup.count("north", "count").await), (1, 2));
    }
}

/// 46. A replay, a conflict, a refused call and a read do not extend the life.
pub async fn what_does_not_run_does_not_extend_the_life<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    assert_eq!(setup.add(&request("a", "p"), "count").await, Outcome::Created(1));
    let first = setup.receipt(&key("a")).await;
    for now in [1, 30_000, 59_999] {
        setup.clock.set(start_plus(now));
        let longer = request("a", "p").retain(Duration::from_secs(3600));
        assert_eq!(setup.add(&longer, "count").await, Outcome::Replayed(1));
        let conflicting = request("a", "q").retain_forever();
        assert_eq!(setup.add(&conflicting, "count").await, Outcome::Conflict);
        assert!(!claim(&setup.idem, &longer).await.ran, "a live receipt cannot be claimed");
        assert!(setup.idem.execute(&longer.retain(Duration::ZERO), |_| Ok(0)).await.is_err());
        assert_eq!(setup.receipt(&key("a")).await, first, "at {now} ms");
    }
    setup.clock.set(start_plus(60_000));
    assert_eq!(setup.idem.receipt(&key("a")).await.unwrap(), None);
    assert_eq!(setup.add(&request("a", "p"), "count").await, Outcome::Created(2));
}

/// 47. The life counts from the run's start, also when the effect is slow; or from the commit, as declared.
pub async fn the_life_counts_from_the_runs_start<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let at_commit = setup.idem.guarantees().speculative;
    let started = run_for(&setup, "slow", millis(40_000)).await.as_millis();
    let created = started + if at_commit { 40_000 } else { 0 };
    let receipt = setup.receipt(&key("slow")).await;
    assert_eq!(receipt.created_at, Timestamp::from_millis(created), "at commit: {at_commit}");
    assert_eq!(receipt.expires_at, Some(Timestamp::from_millis(created + 60_000)));
    setup.clock.set(Timestamp::from_millis(created + 59_999));
    assert_eq!(setup.add(&request("slow", "p"), "slow").await, Outcome::Replayed(0));
    setup.clock.set(Timestamp::from_millis(created + 60_000));
    assert_eq!(setup.add(&request("slow", "p"), "slow").await, Outcome::Created(1));
    // As slow as its retention: expired when it is committed, unless its life begins then.
    run_for(&setup, "slower", millis(60_000)).await;
    let receipt = setup.idem.receipt(&key("slower")).await.unwrap();
    assert_eq!(receipt.is_some(), at_commit);
    let again = setup.add(&request("slower", "p"), "slower").await;
    assert_eq!(again, if at_commit { Outcome::Replayed(0) } else { Outcome::Created(1) });
}

/// Runs an effect that takes `duration` in its first run; returns when its last run started.
async fn run_for<F: Fixture>(setup: &Setup<F>, name: &str, duration: Duration) -> Timestamp {
    let (clock, runs) = (setup.clock.clone(), Runs::default());
    let started = Arc::new(Mutex::new(None));
    let last = Arc::clone(&started);
    let written = name.to_string();
    // It reads nothing: where reading takes a run of its own, the last one would not be the slow one.
    let effect = move |tx: &mut <F::Store as Store>::Transaction| {
        *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(clock.now());
        if runs.bump() == 1 {
            clock.advance(duration);
        }
        tx.put(written.as_bytes(), b"0")?;
        Ok(0)
    };
    let outcome = setup.idem.execute(&request(name, "p"), effect).await.unwrap();
    assert_eq!(outcome, Outcome::Created(0), "{name} must run");
    let started = started.lock().unwrap_or_else(PoisonError::into_inner);
    started.expect("the effect ran")
}

/// 48. A retention is exact in milliseconds, rounded up to whole ones; unless told it is a day.
pub async fn retention_is_exact_in_milliseconds<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let retentions = [
        (Duration::from_nanos(1), 1),
        (Duration::from_micros(999), 1),
        (millis(1), 1),
        (Duration::from_micros(1_001), 2),
        (Duration::from_micros(1_500), 2),
        (millis(877), 877),
        (millis(1_234_567), 1_234_567),
        (Duration::new(60, 1), 60_001),
    ];
    for (number, (retention, lives)) in retentions.into_iter().enumerate() {
        setup.clock.set(START);
        let request = request(&number.to_string(), "p").retain(retention);
        let name = format!("count-{number}");
        let name: &'static str = name.leak();
        assert_eq!(setup.add(&request, name).await, Outcome::Created(1));
        let receipt = setup.receipt(request.key()).await;
        assert_eq!(receipt.expires_at, Some(start_plus(lives)), "after {retention:?}");
        setup.clock.set(start_plus(lives - 1));
        assert_eq!(setup.add(&request, name).await, Outcome::Replayed(1), "{retention:?}");
        setup.clock.set(start_plus(lives));
        assert_eq!(setup.add(&request, name).await, Outcome::Created(2), "{retention:?}");
    }
    setup.clock.set(START);
    let untold = Request::new(key("untold"));
    assert_eq!(setup.add(&untold, "untold").await, Outcome::Created(1));
    assert_eq!(setup.receipt(untold.key()).await.expires_at, Some(start_plus(86_400_000)));
}

/// 49. A retention of zero, or beyond what the clock can hold, is refused before the effect.
pub async fn a_retention_of_zero_or_beyond_time_is_refused_before_the_effect<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    for retention in [Duration::ZERO, Duration::MAX, millis(1 << 63)] {
        refused(&setup, retention).await;
    }
    // A time that all arithmetic but the exact one would wrap around at.
    setup.clock.set(Timestamp::from_millis(i64::MAX - 5));
    refused(&setup, millis(6)).await;
    refused(&setup, millis(i64::MAX as u64)).await;
    let last = request("last", "p").retain(millis(5));
    assert_eq!(setup.add(&last, "count").await, Outcome::Created(1));
    let end = Timestamp::from_millis(i64::MAX);
    assert_eq!(setup.receipt(last.key()).await.expires_at, Some(end));
    // The completed key's receipt survives a refused call.
    refused_for(&setup, last.key(), Duration::ZERO).await;
    setup.clock.set(Timestamp::from_millis(i64::MAX - 1));
    assert_eq!(setup.add(&last, "count").await, Outcome::Replayed(1));
}

async fn refused<F: Fixture>(setup: &Setup<F>, retention: Duration) {
    refused_for(setup, &key("refused"), retention).await;
    assert_eq!(kept_for(setup.idem.store(), &key("refused")).await, None);
    assert_eq!(setup.count("north", "refused").await, 0);
}

async fn refused_for<F: Fixture>(setup: &Setup<F>, key: &Key, asked: Duration) {
    let runs = Runs::default();
    let ran = runs.clone();
    let request = request_for(key.clone(), "p").retain(asked);
    let effect = move |tx: &mut <F::Store as Store>::Transaction| {
        ran.bump();
        add(tx, "refused")
    };
    let error = setup.idem.execute(&request, effect).await.unwrap_err();
    let ErrorKind::InvalidDuration { field: "retention", duration, .. } = error.kind() else {
        panic!("a retention of {asked:?} must be refused as such: {error:?}")
    };
    assert_eq!((*duration, error.certainty()), (asked, Certainty::NothingDone));
    assert_eq!(runs.get(), 0, "the effect must not run under a retention of {asked:?}");
}

/// 50. Forever outlives any clock, and every purge.
pub async fn forever_outlives_any_clock<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let forever = request("a", "p").retain_forever();
    assert_eq!(setup.add(&forever, "count").await, Outcome::Created(1));
    for now in [i64::MAX, i64::MIN, START.as_millis()] {
        setup.clock.set(Timestamp::from_millis(now));
        assert_eq!(setup.add(&forever, "count").await, Outcome::Replayed(1), "at {now}");
        assert_eq!(setup.receipt(&key("a")).await.expires_at, None);
        assert_eq!(setup.idem.purge(10).await.unwrap().removed, 0, "at {now}");
        assert_eq!(setup.receipts().await, 1);
    }
    setup.clock.set(Timestamp::from_millis(i64::MAX));
    let late = request("late", "p").retain_forever();
    assert_eq!(setup.add(&late, "count").await, Outcome::Created(2));
    assert_eq!(setup.receipt(late.key()).await.created_at, Timestamp::from_millis(i64::MAX));
}

/// 51. A clock that steps back loses nothing early, also before the epoch; ahead, all expires exactly.
pub async fn a_clock_that_steps_back_loses_nothing<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    assert_eq!(setup.add(&request("a", "p"), "count").await, Outcome::Created(1));
    let receipt = setup.receipt(&key("a")).await;
    for now in [START.as_millis() - 1, 0, -1, -1_000, i64::MIN] {
        setup.clock.set(Timestamp::from_millis(now));
        assert_eq!(setup.add(&request("a", "p"), "count").await, Outcome::Replayed(1), "{now}");
        assert_eq!(setup.add(&request("a", "q"), "count").await, Outcome::Conflict, "{now}");
        assert_eq!(setup.receipt(&key("a")).await, receipt, "{now}");
        assert_eq!(setup.idem.purge(10).await.unwrap().removed, 0, "{now}");
    }
    setup.clock.set(Timestamp::from_millis(-30_000));
    assert_eq!(setup.add(&request("b", "p"), "count").await, Outcome::Created(2));
    let before_the_epoch = setup.receipt(&key("b")).await;
    assert_eq!(before_the_epoch.created_at, Timestamp::from_millis(-30_000));
    assert_eq!(before_the_epoch.expires_at, Some(Timestamp::from_millis(30_000)));
    setup.clock.set(Timestamp::from_millis(29_999));
    assert_eq!(setup.add(&request("b", "p"), "count").await, Outcome::Replayed(2));
    setup.clock.set(Timestamp::from_millis(30_000));
    assert_eq!(setup.idem.receipt(&key("b")).await.unwrap(), None);
    assert_eq!(setup.idem.purge(10).await.unwrap().removed, 1);
    setup.clock.set(start_plus(59_999));
    assert_eq!(setup.add(&request("a", "p"), "count").await, Outcome::Replayed(1));
    setup.clock.set(start_plus(60_000));
    assert_eq!(setup.add(&request("a", "p"), "count").await, Outcome::Created(3));
}

/// 52. Times of different lengths and signs compare as numbers, in a run and in a purge.
pub async fn times_compare_as_numbers<F: Fixture>() {
    for end in [10_000, 10, 0, -9, -10_000, 1_000_000_000_000, 10_000_000_000_000] {
        let at = |now| Timestamp::from_millis(now);
        let setup = Setup::<F>::at(at(end - 7)).await;
        let retained = |name, lives| request(name, "p").retain(millis(lives));
        // One ends at the edge, its neighbours one millisecond before and after it.
        for (name, lives) in [("before", 6), ("edge", 7), ("after", 8)] {
            let created = setup.add(&retained(name, lives), name).await;
            assert_eq!(created, Outcome::Created(1));
        }
        setup.clock.set(at(end - 1));
        assert_eq!(setup.add(&retained("edge", 7), "edge").await, Outcome::Replayed(1), "{end}");
        assert_eq!(setup.idem.purge(10).await.unwrap().removed, 1, "one ended before {end}");
        assert_eq!(kept_for(setup.idem.store(), &key("before")).await, None);
        setup.clock.set(at(end));
        assert_eq!(setup.receipts().await, 1, "one lives past {end}");
        assert_eq!(setup.add(&retained("after", 8), "after").await, Outcome::Replayed(1), "{end}");
        assert_eq!(setup.add(&retained("edge", 7), "edge").await, Outcome::Created(2), "{end}");
        setup.clock.set(at(end + 1));
        assert_eq!(setup.idem.purge(10).await.unwrap().removed, 1, "one ended after {end}");
        assert_eq!(setup.add(&retained("edge", 7), "edge").await, Outcome::Replayed(2), "{end}");
    }
}

/// 55. A purge leaves effects alone.
pub async fn a_purge_leaves_effects_alone<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let write = |tx: &mut <F::Store as Store>::Transaction| {
        tx.put(b"value", b"kept")?;
        add(tx, "count")
    };
    assert_eq!(setup.idem.execute(&request("a", "p"), write).await.unwrap(), Outcome::Created(1));
    setup.clock.set(start_plus(60_000));
    assert_eq!(setup.idem.purge(10).await.unwrap().removed, 1);
    let space = Space::tenant("north").unwrap();
    let value: Result<_, Error> = setup.idem.value(&space, b"value").await;
    assert_eq!(value.unwrap().as_deref(), Some(&b"kept"[..]));
    assert_eq!(count_in(&setup.handle().await, &space, "count").await, 1);
    assert_eq!(setup.add(&request("a", "p"), "count").await, Outcome::Created(2));
}
