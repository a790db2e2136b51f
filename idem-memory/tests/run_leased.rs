//! Work with a lease in one call: kept alive, and with a last step.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

use std::{io, sync::Arc, time::Duration};

use idem_core::{
    Claim, EffectError, ErrorKind, Idem, Key, LeaseTerms, LeasedOutcome, ManualClock, OnFailure,
    Outcome, Request, Space, Timestamp, Transaction,
};
use idem_memory::MemoryStore;

const LEASE: Duration = Duration::from_secs(30);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + seconds * 1000)
}

fn store() -> (Idem<MemoryStore>, ManualClock) {
    let clock = ManualClock::at(at(0));
    (Idem::new(MemoryStore::builder().clock(clock.clone()).build()), clock)
}

fn request() -> Request {
    Request::new(Key::new("north", "charge", "a").unwrap())
}

fn ends(_: &io::Error) -> OnFailure<u64> {
    OnFailure::End
}

async fn value(idem: &Idem<MemoryStore>) -> Option<Vec<u8>> {
    let value = idem.value(&Space::tenant("north").unwrap(), b"charged").await.unwrap();
    value.map(|value| value.to_vec())
}

/// Moves the clock on in steps of a second when somebody sleeps.
async fn pass(clock: &ManualClock, sleepers: usize, seconds: u64) {
    for _ in 0..seconds {
        while clock.sleepers() < sleepers {
            tokio::task::yield_now().await;
        }
        clock.advance(Duration::from_secs(1));
        // Whoever was woken acts before the next second.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn work_longer_than_its_lease_keeps_the_key_while_it_is_kept_alive() {
    let (idem, clock) = store();
    let terms = LeaseTerms::new(LEASE).keep_alive(LEASE / 3, 10 * LEASE);
    let (other, during) = (idem.clone(), clock.clone());
    let work = move |_| async move {
        pass(&during, 1, 100).await;
        let held = other.claim::<u64>(&request(), LEASE).await.unwrap();
        assert!(matches!(held, Claim::InProgress { until, .. } if until > at(100)), "{held:?}");
        Ok(7)
    };
    let outcome = idem.run_leased(&request(), terms, ends, work).await.unwrap();
    assert!(matches!(outcome, LeasedOutcome::Created(7)), "{outcome:?}");
    assert_eq!(idem.execute(&request(), |_| Ok(8)).await.unwrap(), Outcome::Replayed(7));
}

#[tokio::test]
async fn the_first_renewal_comes_after_the_interval() {
    let (idem, clock) = store();
    let terms = LeaseTerms::new(LEASE).keep_alive(LEASE / 3, 10 * LEASE);
    let (other, during) = (idem.clone(), clock.clone());
    let work = move |_| async move {
        for (now, end) in [(9, 30), (10, 40), (19, 40), (20, 50)] {
            let passed = (during_now(&during) - at(0).as_millis()) / 1000;
            pass(&during, 1, u64::try_from(now - passed).unwrap()).await;
            let held = other.claim::<u64>(&request(), LEASE).await.unwrap();
            assert!(
                matches!(held, Claim::InProgress { until, .. } if until == at(end)),
                "{held:?}"
            );
        }
        Ok(7)
    };
    let outcome = idem.run_leased(&request(), terms, ends, work).await.unwrap();
    assert!(matches!(outcome, LeasedOutcome::Created(7)), "{outcome:?}");
}

fn during_now(clock: &ManualClock) -> i64 {
    use idem_core::Clock as _;
    clock.now().as_millis()
}

#[tokio::test]
async fn beyond_the_ceiling_another_takes_over_and_the_result_is_unrecorded() {
    let (idem, clock) = store();
    let terms = LeaseTerms::new(LEASE).keep_alive(LEASE / 3, 2 * LEASE);
    let (other, during) = (idem.clone(), clock.clone());
    let work = move |_| async move {
        pass(&during, 1, 30).await;
        // The last renewal has cut the lease to the ceiling: nobody sleeps any more.
        during.advance(Duration::from_secs(29));
        let held = other.claim::<u64>(&request(), LEASE).await.unwrap();
        assert!(matches!(held, Claim::InProgress { until, .. } if until == at(60)), "{held:?}");
        during.advance(Duration::from_secs(1));
        let next = other.claim::<u64>(&request(), LEASE).await.unwrap().lease().unwrap();
        assert!(next.took_over().is_some());
        next.abandon();
        Ok(7)
    };
    let outcome = idem.run_leased(&request(), terms, ends, work).await.unwrap();
    let LeasedOutcome::Unrecorded { result: 7, error } = outcome else { panic!("{outcome:?}") };
    assert!(matches!(error.kind(), ErrorKind::LeaseLost { .. }), "{error:?}");
}

#[tokio::test]
async fn terms_that_make_no_sense_are_refused_before_the_claim() {
    let (idem, _) = store();
    let second = Duration::from_secs(1);
    for (terms, field) in [
        (LeaseTerms::new(LEASE).keep_alive(LEASE / 2 + second, LEASE), "interval"),
        (LeaseTerms::new(LEASE).keep_alive(Duration::ZERO, LEASE), "interval"),
        (LeaseTerms::new(LEASE).keep_alive(LEASE / 3, Duration::ZERO), "ceiling"),
        (LeaseTerms::new(LEASE).keep_alive(LEASE / 3, LEASE - second), "ceiling"),
        (LeaseTerms::new(Duration::ZERO), "lease"),
    ] {
        let work = |_| async { panic!("it must not run") };
        let error = idem.run_leased(&request(), terms, ends, work).await.unwrap_err();
        let ErrorKind::InvalidDuration { field: named, .. } = error.kind() else {
            panic!("{error:?}")
        };
        assert_eq!(*named, field);
        assert!(idem.list(None, 1).await.unwrap().records.is_empty(), "{field}");
    }
}

#[tokio::test]
async fn a_last_step_is_committed_with_the_result() {
    let (idem, _) = store();
    let run = |result| {
        let record = move |tx: &mut idem_memory::MemoryTransaction, cents: &u64| {
            tx.put(b"charged", cents.to_string().as_bytes())?;
            Ok(())
        };
        let work = move |_| async move { result };
        let idem = &idem;
        async move { idem.run_leased_then(&request(), LEASE, ends, work, record).await }
    };
    assert!(matches!(run(Ok(1995)).await.unwrap(), LeasedOutcome::Created(1995)));
    assert_eq!(value(&idem).await.unwrap(), b"1995");
    assert!(matches!(run(Ok(7)).await.unwrap(), LeasedOutcome::Replayed(1995)));
    assert_eq!(value(&idem).await.unwrap(), b"1995", "a replay records nothing");
}

#[tokio::test]
async fn a_last_step_that_fails_leaves_neither_row_nor_receipt_and_the_next_takes_over() {
    let (idem, _) = store();
    let fails = |tx: &mut idem_memory::MemoryTransaction, _: &u64| -> Result<(), EffectError> {
        tx.put(b"charged", b"1995")?;
        Err("on purpose".into())
    };
    let work = |_| async { Ok(1995) };
    let outcome = idem.run_leased_then(&request(), LEASE, ends, work, fails).await.unwrap();
    let LeasedOutcome::Unrecorded { result: 1995, error } = outcome else { panic!("{outcome:?}") };
    assert!(matches!(error.kind(), ErrorKind::Effect), "{error:?}");
    assert_eq!(value(&idem).await, None);
    let patient = request().wait_for(LEASE);
    let next = idem.claim::<u64>(&patient, LEASE).await.unwrap().lease().unwrap();
    assert!(next.took_over().is_some(), "the charge may have happened");
    next.abandon();
}

#[tokio::test]
async fn outcomes_convert_and_give_back_what_has_no_counterpart() {
    let (idem, clock) = store();
    let claim = |request: Request| {
        let idem = idem.clone();
        async move { idem.claim::<u64>(&request, LEASE).await.unwrap() }
    };
    let held = Outcome::try_from(claim(request()).await).unwrap_err();
    let lease = held.lease().unwrap();
    let retry_after = LEASE;
    assert_eq!(
        Outcome::try_from(claim(request()).await).unwrap(),
        Outcome::InProgress { until: at(30), retry_after }
    );
    lease.abandon();
    clock.advance(LEASE);
    let unfinished = claim(request().refuse_takeover()).await;
    assert!(matches!(Outcome::try_from(unfinished), Err(Claim::Unfinished { .. })));
    let ran = idem.run_leased(&request(), LEASE, ends, |_| async { Ok(7) }).await.unwrap();
    assert_eq!(Outcome::try_from(ran).unwrap(), Outcome::Created(7));
    assert_eq!(Outcome::try_from(claim(request()).await).unwrap(), Outcome::Replayed(7));
    let leased = LeasedOutcome::from(Outcome::Replayed(7));
    assert!(matches!(leased, LeasedOutcome::Replayed(7)));
}

#[tokio::test]
async fn a_waiter_is_woken_when_its_holder_finds_the_lease_lost() {
    let clock = ManualClock::at(at(0));
    let store = Arc::new(MemoryStore::builder().clock(clock.clone()).build());
    let (idem, elsewhere) = (Idem::new(Arc::clone(&store)), Idem::new(store));
    let mut lease = idem.claim::<u64>(&request(), LEASE).await.unwrap().lease().unwrap();
    let waiting = tokio::spawn({
        let idem = idem.clone();
        async move { idem.execute(&request().wait_for(10 * LEASE), |_| Ok(8)).await.unwrap() }
    });
    // The wait as a whole, and until the lease ends.
    while clock.sleepers() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(elsewhere.end_held(request().key()).await.unwrap(), Some(lease.token()));
    assert!(lease.renew(LEASE).await.is_err());
    assert_eq!(waiting.await.unwrap(), Outcome::Created(8));
    lease.abandon();
}
