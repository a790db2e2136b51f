//! Leases over a store that fails for a while, or whose answers are lost.

use std::time::Duration;

use idem_core::{Certainty, ErrorKind, Holding, LeasedOutcome, OnFailure, Outcome};

use crate::{
    Fixture,
    callers::{give_way, joined, until, within},
    leasing::{HELD_FOR, acquired, end, in_progress, refused},
    setup::{Setup, key, request, start_plus},
    steps::LEASE,
};

/// 113. A completion whose answer was lost is found again by the same lease, with its first result.
pub async fn a_completion_whose_answer_was_lost_is_found_again<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let (idem, steps) = setup.watched().await;
    let lease = acquired(&idem, &request("a", "p")).await;
    steps.lose(1);
    let (error, lease) = lease.complete(7).await.unwrap_err().into_parts();
    assert_eq!(error.certainty(), Certainty::Unknown, "{error:?}");
    assert_eq!(lease.complete(8).await.unwrap(), 7, "it was completed before");
    assert_eq!(refused(&setup.idem, &request("a", "p")).await, Outcome::Replayed(7));
}

/// 113. A lease is dropped after a completion whose answer was lost: what was completed stays.
pub async fn what_was_completed_stays_when_its_lease_is_dropped<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let (idem, steps) = setup.watched().await;
    let lease = acquired(&idem, &request("a", "p")).await;
    steps.lose(1);
    let failed = lease.complete(7).await.unwrap_err();
    let receipt = setup.receipt(&key("a")).await;
    drop(failed);
    // The claim, the completion, and the end of the lease.
    steps.reach(3).await;
    assert_eq!(setup.receipt(&key("a")).await, receipt);
}

/// 113. After a completion of unknown certainty nothing else is told as if it were certain, until it is settled.
pub async fn a_doubt_stays_until_it_is_settled<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let (idem, steps) = setup.watched().await;
    let lease = acquired(&idem, &request("a", "p")).await;
    steps.fail(1);
    let (error, lease) = lease.complete(7).await.unwrap_err().into_parts();
    assert_eq!(error.certainty(), Certainty::NothingDone, "nothing is in doubt: {error:?}");
    steps.lose(1);
    let (_, mut lease) = lease.complete(7).await.unwrap_err().into_parts();
    let error = lease.renew(HELD_FOR).await.unwrap_err();
    assert_eq!(error.certainty(), Certainty::Unknown, "it may be done: {error:?}");
    steps.fail(1);
    let (error, same) = lease.complete(7).await.unwrap_err().into_parts();
    assert_eq!(error.certainty(), Certainty::Unknown, "it may be done: {error:?}");
    lease = same;
    let error = lease.renew(HELD_FOR).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::LeaseLost { .. }), "{error:?}");
    assert_eq!(error.certainty(), Certainty::Unknown, "it may be done: {error:?}");
    assert_eq!(lease.complete(8).await.unwrap(), 7);
}

/// 113, 71. A claim whose answer was lost is released, since nobody holds it; one that was refused is nobody's to end.
pub async fn a_claim_whose_answer_was_lost_frees_its_key<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let (idem, steps) = setup.watched().await;
    steps.lose(1);
    let error = idem.claim::<u64>(&request("a", "p"), HELD_FOR).await.unwrap_err();
    assert_eq!(error.certainty(), Certainty::Unknown, "{error:?}");
    steps.reach(2).await;
    let next = acquired(&setup.idem, &request("a", "p")).await;
    assert_eq!(next.took_over(), None, "nothing was done under it");
    steps.lose(1);
    let error = idem.claim::<u64>(&request("a", "p"), HELD_FOR).await.unwrap_err();
    assert_eq!(error.certainty(), Certainty::Unknown, "{error:?}");
    steps.reach(4).await;
    let held = refused(&setup.idem, &request("a", "p")).await;
    assert_eq!(held, in_progress(end(), start_plus(0)), "the lease is another's");
    next.release().await.unwrap();
}

/// 61, 113. What was done is recorded as soon as the store is back, within the time of a lease.
pub async fn what_was_done_is_recorded_when_the_store_is_back<F: Fixture>() {
    for (failing, losing) in [(3, 0), (0, 1), (2, 1)] {
        let setup = Setup::<F>::new().await;
        let (idem, steps) = setup.watched().await;
        let task = tokio::spawn({
            let steps = steps.clone();
            async move {
                let work = |_: Holding| async move {
                    steps.fail(failing);
                    steps.lose(losing);
                    Ok::<u64, std::fmt::Error>(7)
                };
                idem.run_leased(&request("a", "p"), HELD_FOR, |_| OnFailure::Release, work).await
            }
        });
        for failed in 1..=failing + losing {
            // After the claim.
            steps.reach(1 + failed).await;
            until("a pause before the next try", || setup.clock.sleepers() == 2).await;
            // A pause is 10 ms at least, and then twice as long each time.
            setup.clock.advance(Duration::from_millis((10 << (failed - 1)) - 1));
            give_way().await;
            assert_eq!(steps.answered(), 1 + failed, "pauses grow");
            setup.clock.advance(Duration::from_secs(1));
        }
        let outcome = joined("the work", task).await.unwrap();
        assert!(matches!(outcome, LeasedOutcome::Created(7)), "{outcome:?}");
        assert_eq!(refused(&setup.idem, &request("a", "p")).await, Outcome::Replayed(7));
    }
}

/// 61. What was done and cannot be recorded for as long as a lease is reported with its result.
pub async fn what_cannot_be_recorded_is_reported<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let (idem, steps) = setup.watched().await;
    let task = tokio::spawn({
        let steps = steps.clone();
        async move {
            let work = |_: Holding| async move {
                steps.fail(usize::MAX);
                Ok::<u64, std::fmt::Error>(7)
            };
            idem.run_leased(&request("a", "p"), HELD_FOR, |_| OnFailure::Release, work).await
        }
    });
    steps.reach(2).await;
    let given_up = async {
        while !task.is_finished() {
            if setup.clock.sleepers() == 2 {
                setup.clock.advance(Duration::from_secs(1));
            }
            tokio::task::yield_now().await;
        }
    };
    within("the work to be given up", given_up).await;
    match joined("the work", task).await.unwrap() {
        LeasedOutcome::Unrecorded { result: 7, error } => {
            assert!(matches!(error.kind(), ErrorKind::Unreachable { .. }), "{error:?}");
        }
        other => panic!("it cannot be recorded: {other:?}"),
    }
    setup.clock.set(start_plus(2 * LEASE));
    let next = acquired(&setup.idem, &request("a", "p")).await;
    assert!(next.took_over().is_some(), "what was done may have happened");
    next.release().await.unwrap();
}
