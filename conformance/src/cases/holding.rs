//! How a lease is held and let go: dropped, abandoned, run with.

use std::thread;

use idem_core::{
    Error, ErrorKind, Holding, Idem, Lease, LeasedOutcome, OnFailure, Outcome, Request, Store,
};
use tokio::runtime::Builder;

use crate::{
    Fixture,
    callers::{Dropped, cut_short, within},
    leasing::{HELD_FOR, LONG, acquired, end, in_progress, refused},
    setup::{Setup, key, request, start_plus},
    steps::LEASE,
};

/// Claims a key by a request that waits for whoever holds it.
async fn acquired_after<S: Store + 'static>(idem: &Idem<S>, request: Request) -> Lease<S, u64> {
    acquired(idem, &request.wait_for(LONG)).await
}

/// 71. Dropping a lease ends it without waiting; the next claim takes over and is told so.
pub async fn a_dropped_lease_ends_and_is_taken_over<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let dropped = acquired(&setup.idem, &request("a", "p")).await;
    let token = dropped.token();
    drop(dropped);
    // The clock stands still: only an end of the lease can let it in.
    let next = acquired_after(&setup.idem, request("a", "p")).await;
    assert_eq!(next.took_over(), Some(token), "what the holder did may have happened");
    assert!(next.token() > token);
    next.abandon();
}

/// Drops a lease somewhere.
type Dropper<F> = fn(Lease<<F as Fixture>::Store, u64>);

/// 71. A lease that is dropped outside of any runtime, or in one that ends at once, ends all the same.
pub async fn a_dropped_lease_ends_without_its_droppers_runtime<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let nowhere = |lease: Lease<F::Store, u64>| drop(lease);
    let in_an_ended_one = |lease: Lease<F::Store, u64>| {
        let runtime = Builder::new_current_thread().build().expect("the system has a runtime left");
        runtime.block_on(async { drop(lease) });
    };
    let droppers: [Dropper<F>; 2] = [nowhere, in_an_ended_one];
    for (name, dropper) in ["no runtime", "an ended one"].into_iter().zip(droppers) {
        let lease = acquired(&setup.idem, &request(name, "p")).await;
        let token = lease.token();
        let dropped = thread::spawn(move || dropper(lease)).join();
        assert!(dropped.is_ok(), "{name}: a drop must not panic");
        // The clock stands still: only an end of the lease can let it in.
        let next = acquired_after(&setup.idem, request(name, "p")).await;
        assert_eq!(next.took_over(), Some(token), "{name}");
        next.release().await.unwrap();
    }
}

/// 71. A stale lease that is dropped does not touch its successor.
pub async fn a_dropped_stale_lease_leaves_its_successor_alone<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let (idem, steps) = setup.watched().await;
    let stale = acquired(&idem, &request("a", "p")).await;
    setup.clock.set(end());
    let successor = acquired(&setup.idem, &request("a", "p")).await;
    // By this clock the first lease would be held.
    setup.clock.set(start_plus(LEASE - 1));
    drop(stale);
    steps.reach(2).await;
    let held = refused(&setup.idem, &request("a", "p")).await;
    let (until, retry_after) = (start_plus(2 * LEASE), HELD_FOR);
    assert_eq!(held, Outcome::InProgress { until, retry_after });
    assert_eq!(successor.complete(7).await.unwrap(), 7);
}

/// 71. An abandoned lease keeps everybody out until its end, and is then taken over.
pub async fn an_abandoned_lease_stays_until_its_end<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let abandoned = acquired(&setup.idem, &request("a", "p")).await;
    let token = abandoned.token();
    abandoned.abandon();
    setup.clock.set(start_plus(LEASE - 1));
    let held = refused(&setup.idem, &request("a", "p")).await;
    assert_eq!(held, in_progress(end(), start_plus(LEASE - 1)));
    setup.clock.set(end());
    let next = acquired(&setup.idem, &request("a", "p")).await;
    assert_eq!(next.took_over(), Some(token));
    next.release().await.unwrap();
}

/// 25, 71. A claim that is cancelled at whatever point leaves its key free, or soon frees it.
pub async fn a_cancelled_claim_leaves_its_key_free<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    for dropped in [Dropped::Waiting, Dropped::Woken] {
        let mut is_answered = false;
        for polls in 0.. {
            assert!(polls < 1000, "a claim that is polled must be answered some time");
            let request = request(&format!("{dropped:?}-{polls}"), "p");
            let claim = cut_short(setup.idem.claim::<u64>(&request, HELD_FOR), polls, dropped);
            if let Some(claim) = within("a claim that is to be cancelled", claim).await {
                is_answered = true;
                claim.unwrap().lease().expect("the key is free").release().await.unwrap();
            }
            let mut next = None;
            let freed = async {
                while next.is_none() {
                    next = setup.idem.claim::<u64>(&request, HELD_FOR).await.unwrap().lease();
                    tokio::task::yield_now().await;
                }
            };
            within("a cancelled claim to be ended", freed).await;
            let next = next.expect("it was freed");
            assert_eq!(next.took_over(), None, "nothing was done under a claim that nobody got");
            next.release().await.unwrap();
            if is_answered {
                break;
            }
        }
    }
}

/// What went wrong outside.
#[derive(Debug, PartialEq)]
struct Declined(u8);

impl std::fmt::Display for Declined {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "declined: {}", self.0)
    }
}

impl std::error::Error for Declined {}

/// Runs with a lease what returns `result`.
async fn run<S: Store + 'static>(
    idem: &Idem<S>,
    request: &Request,
    on_failure: OnFailure<u64>,
    result: Result<u64, Declined>,
) -> Result<(LeasedOutcome<u64>, Option<Holding>), Error> {
    let mut told = None;
    let work = |turn| {
        told = Some(turn);
        async move { result }
    };
    let outcome = idem.run_leased(request, HELD_FOR, |_: &Declined| on_failure, work).await;
    outcome.map(|outcome| (outcome, told))
}

/// 61, 74. What runs with a lease is recorded, replayed, and told who was there before.
pub async fn what_runs_with_a_lease_is_done_once<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let idem = &setup.idem;
    let before = acquired(idem, &request("a", "p")).await;
    let token = before.token();
    let (outcome, told) = run(idem, &request("a", "p"), OnFailure::Release, Ok(1)).await.unwrap();
    let LeasedOutcome::InProgress { until, retry_after } = outcome else { panic!("{outcome:?}") };
    assert_eq!((until, retry_after, told), (end(), HELD_FOR, None));
    before.abandon();
    setup.clock.set(end());
    let (outcome, told) = run(idem, &request("a", "p"), OnFailure::Release, Ok(7)).await.unwrap();
    assert!(matches!(outcome, LeasedOutcome::Created(7)), "{outcome:?}");
    let turn = told.expect("the work ran");
    assert_eq!(turn.took_over, Some(token));
    assert!(turn.token > token);
    let (outcome, told) = run(idem, &request("a", "p"), OnFailure::Release, Ok(8)).await.unwrap();
    assert!(matches!(outcome, LeasedOutcome::Replayed(7)) && told.is_none(), "{outcome:?}");
    let (outcome, told) = run(idem, &request("a", "q"), OnFailure::Release, Ok(8)).await.unwrap();
    assert!(matches!(outcome, LeasedOutcome::Conflict) && told.is_none(), "{outcome:?}");
    let receipt = setup.receipt(&key("a")).await;
    assert_eq!((receipt.created_at, receipt.result), (end(), "7".into()));
}

/// 27, 62, 71. A failure of what runs with a lease does with the key what its policy says.
pub async fn a_failure_with_a_lease_follows_its_policy<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let idem = &setup.idem;
    let policies =
        [("release", OnFailure::Release), ("end", OnFailure::End), ("abandon", OnFailure::Abandon)];
    for (name, policy) in policies {
        let error = run(idem, &request(name, "p"), policy, Err(Declined(3))).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Work), "{error:?}");
        assert_eq!(error.effect_error::<Declined>(), Some(&Declined(3)));
        assert_eq!(setup.idem.receipt(&key(name)).await.unwrap(), None, "{name}");
        let held = in_progress(end(), start_plus(0));
        if name == "abandon" {
            assert_eq!(refused(idem, &request(name, "p")).await, held);
            setup.clock.set(end());
        }
        let next = acquired_after(idem, request(name, "p")).await;
        assert_eq!(next.took_over().is_some(), name != "release", "{name}");
        next.release().await.unwrap();
        setup.clock.set(start_plus(0));
    }
    let remember = OnFailure::Remember(99);
    let failed = run(idem, &request("remember", "p"), remember, Err(Declined(3))).await;
    assert!(matches!(failed, Ok((LeasedOutcome::Created(99), Some(_)))), "{failed:?}");
    let again = run(idem, &request("remember", "p"), OnFailure::Release, Ok(1)).await;
    assert!(matches!(again, Ok((LeasedOutcome::Replayed(99), None))), "{again:?}");
}

/// 64. Work that was done while its lease ended is reported with its result at once, and changes nothing.
pub async fn work_that_outlives_its_lease_is_reported<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let (idem, clock) = (setup.handle().await, setup.clock.clone());
    let work = |_: Holding| async move {
        clock.set(end());
        let next = acquired(&idem, &request("a", "p")).await;
        next.complete(8).await.map_err(|_| Declined(1))?;
        // By this time nothing has ended, and there would be time to try again, in vain.
        clock.set(start_plus(0));
        Ok(7)
    };
    let request = request("a", "p");
    let running = setup.idem.run_leased(&request, HELD_FOR, |_: &Declined| OnFailure::End, work);
    let (result, error) = match within("the report", running).await.unwrap() {
        LeasedOutcome::Unrecorded { result, error } => (result, error),
        other => panic!("the lease was lost: {other:?}"),
    };
    assert_eq!(result, 7, "what was done is not lost");
    assert!(matches!(error.kind(), ErrorKind::LeaseLost { .. }), "{error:?}");
    assert_eq!(refused(&setup.idem, &request).await, Outcome::Replayed(8));
}

/// 23, 71. A panic of what runs with a lease ends the lease.
pub async fn a_panic_with_a_lease_ends_it<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let idem = setup.idem.clone();
    let task = tokio::spawn(async move {
        let work = |_: Holding| async { panic!("on purpose") };
        let on_failure = |_: &Declined| OnFailure::Release;
        idem.run_leased::<u64, _, _, _, _>(&request("a", "p"), HELD_FOR, on_failure, work).await
    });
    assert!(within("the work", task).await.unwrap_err().is_panic());
    let next = acquired_after(&setup.idem, request("a", "p")).await;
    assert!(next.took_over().is_some(), "what it did before the panic may have happened");
    next.abandon();
}
