//! How a lease is held and let go: dropped, kept alive, run with.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use idem_core::{
    Clock, Error, ErrorKind, Idem, Lease, LeasedOutcome, OnFailure, Outcome, Request, Store, Token,
    Turn,
};
use tokio::{sync::oneshot, task::JoinHandle};

use crate::{
    Fixture,
    callers::{Dropped, cut_short, joined, until, within},
    leasing::{HELD_FOR, acquired, assert_lost, end, in_progress, refused},
    setup::{Setup, kept_for, key, request, start_plus},
    steps::LEASE,
    watched::{Steps, Watched},
};

/// Longer than any case lasts by its clock.
const LONG: Duration = Duration::from_secs(100_000);

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
    next.release().await.unwrap();
    let after = acquired(&setup.idem, &request("a", "p")).await;
    assert_eq!(after.took_over(), None, "nothing is told of a released lease");
    after.release().await.unwrap();
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
            next.expect("it was freed").release().await.unwrap();
            if is_answered {
                break;
            }
        }
    }
}

/// What keeping a lease alive came to, and the lease.
type Kept<S> = (Result<idem_core::KeptAlive<u64>, Error>, Lease<S, u64>);

/// A lease that is kept alive as a task, until `finish` is sent to.
struct KeptAlive<S: Store + 'static> {
    task: JoinHandle<Kept<S>>,
    finish: oneshot::Sender<u64>,
    token: Token,
    steps: Steps,
}

/// Keeps the key `a` alive, with a third of the lease between the renewals.
async fn kept_alive<F: Fixture>(
    setup: &Setup<F>,
    ceiling: Duration,
) -> KeptAlive<Watched<F::Store>> {
    let (idem, steps) = setup.watched().await;
    let mut lease = acquired(&idem, &request("a", "p")).await;
    let token = lease.token();
    let (finish, finished) = oneshot::channel();
    let task = tokio::spawn(async move {
        let work = async { finished.await.unwrap() };
        let kept = lease.keep_alive(HELD_FOR / 3, ceiling, work).await;
        (kept, lease)
    });
    KeptAlive { task, finish, token, steps }
}

impl<S: Store + 'static> KeptAlive<S> {
    /// Waits until the renewal of that number, the one before the work being 0, has been answered.
    async fn renewal(&self, number: usize) {
        // The claim came first.
        self.steps.reach(2 + number).await;
    }

    /// Moves the clock to the next renewal.
    async fn next<F: Fixture>(&self, setup: &Setup<F>) {
        until("the holder to sleep", || setup.clock.sleepers() == 1).await;
        setup.clock.advance(HELD_FOR / 3);
    }

    async fn finished(self) -> (idem_core::KeptAlive<u64>, Lease<S, u64>) {
        assert!(!self.task.is_finished(), "the work goes on");
        self.finish.send(7).unwrap();
        let (kept, lease) = joined("the work", self.task).await;
        (kept.unwrap(), lease)
    }
}

/// 72. A lease that is kept alive holds through work longer than the lease, and completes.
pub async fn a_lease_is_kept_alive_through_long_work<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let kept_alive = kept_alive(&setup, LONG).await;
    for number in 0..15 {
        kept_alive.renewal(number).await;
        let now = setup.clock.now();
        let until = start_plus(LEASE + LEASE / 3 * i64::try_from(number).unwrap());
        assert_eq!(refused(&setup.idem, &request("a", "p")).await, in_progress(until, now));
        kept_alive.next(&setup).await;
    }
    kept_alive.renewal(15).await;
    let (kept, lease) = kept_alive.finished().await;
    assert!(kept.output == 7 && kept.lost.is_none(), "{kept:?}");
    assert_eq!(lease.complete(kept.output).await.unwrap(), 7);
}

/// 72. Keeping alive stops at its ceiling, to the millisecond, and the work goes on.
pub async fn keeping_alive_stops_at_its_ceiling<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let ceiling = LEASE + LEASE / 2 + 1;
    let kept_alive = kept_alive(&setup, Duration::from_millis(ceiling.unsigned_abs())).await;
    for (number, until) in [LEASE, LEASE + LEASE / 3, ceiling].into_iter().enumerate() {
        kept_alive.renewal(number).await;
        let held = refused(&setup.idem, &request("a", "p")).await;
        assert_eq!(held, in_progress(start_plus(until), setup.clock.now()), "renewal {number}");
        if until < ceiling {
            kept_alive.next(&setup).await;
        }
    }
    setup.clock.set(start_plus(ceiling - 1));
    let held = refused(&setup.idem, &request("a", "p")).await;
    assert_eq!(held, in_progress(start_plus(ceiling), start_plus(ceiling - 1)));
    setup.clock.set(start_plus(ceiling));
    let next = acquired(&setup.idem, &request("a", "p")).await;
    let token = kept_alive.token;
    assert_eq!(next.took_over(), Some(token), "after the ceiling the key is free");
    let (kept, lease) = kept_alive.finished().await;
    assert_eq!(kept.output, 7, "the work goes on to its end");
    let (error, _lost) = lease.complete(7).await.unwrap_err().into_parts();
    assert_lost(&error, token, "after the ceiling");
    assert_eq!(next.complete(8).await.unwrap(), 8);
}

/// 72. A ceiling below the lease cuts it short.
pub async fn a_ceiling_below_the_lease_cuts_it_short<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let kept_alive = kept_alive(&setup, Duration::from_millis(10)).await;
    kept_alive.renewal(0).await;
    let held = refused(&setup.idem, &request("a", "p")).await;
    assert_eq!(held, in_progress(start_plus(10), start_plus(0)));
    let (kept, lease) = kept_alive.finished().await;
    assert_eq!(lease.complete(kept.output).await.unwrap(), 7);
}

/// 72. A lease that is lost while it is kept alive is reported, after the work has ended.
pub async fn a_lease_lost_while_kept_alive_is_reported<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let kept_alive = kept_alive(&setup, LONG).await;
    kept_alive.renewal(0).await;
    until("the holder to sleep", || setup.clock.sleepers() == 1).await;
    // As a process that was stopped: the lease has ended before it is renewed.
    setup.clock.set(end());
    let next = acquired(&setup.idem, &request("a", "p")).await;
    let token = kept_alive.token;
    assert_eq!(next.took_over(), Some(token));
    kept_alive.renewal(1).await;
    let (kept, _lost) = kept_alive.finished().await;
    assert_eq!(kept.output, 7);
    assert_lost(&kept.lost.expect("the lease was lost"), token, "while it was kept alive");
    assert_eq!(next.complete(8).await.unwrap(), 8);
}

/// 72. A lease that is lost already, or an interval that cannot keep it, is refused before the work begins.
pub async fn what_cannot_be_kept_alive_is_refused_before_the_work<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let mut lease = acquired(&setup.idem, &request("a", "p")).await;
    let began = Arc::new(AtomicBool::new(false));
    let work = || {
        let began = Arc::clone(&began);
        async move { began.store(true, Ordering::SeqCst) }
    };
    for (every, ceiling, named) in [
        (Duration::ZERO, LONG, "interval"),
        (HELD_FOR, LONG, "interval"),
        (HELD_FOR / 3, Duration::ZERO, "ceiling"),
    ] {
        let error = lease.keep_alive(every, ceiling, work()).await.unwrap_err();
        let ErrorKind::InvalidDuration { field, .. } = *error.kind() else { panic!("{error:?}") };
        assert_eq!(field, named);
    }
    setup.clock.set(end());
    let error = lease.keep_alive(HELD_FOR / 3, LONG, work()).await.unwrap_err();
    assert_lost(&error, lease.token(), "before the work");
    assert!(!began.load(Ordering::SeqCst), "the work must not begin");
    lease.abandon();
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
) -> Result<(LeasedOutcome<u64>, Option<Turn>), Error> {
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

/// 64. Work that was done while its lease ended is reported with its result, and changes nothing.
pub async fn work_that_outlives_its_lease_is_reported<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let (idem, clock) = (setup.handle().await, setup.clock.clone());
    let work = |_: Turn| async move {
        clock.set(end());
        let next = acquired(&idem, &request("a", "p")).await;
        next.complete(8).await.map_err(|_| Declined(1))?;
        Ok(7)
    };
    let (result, error) = match setup
        .idem
        .run_leased(&request("a", "p"), HELD_FOR, |_: &Declined| OnFailure::End, work)
        .await
        .unwrap()
    {
        LeasedOutcome::Unrecorded { result, error } => (result, error),
        other => panic!("the lease was lost: {other:?}"),
    };
    assert_eq!(result, 7, "what was done is not lost");
    assert!(matches!(error.kind(), ErrorKind::LeaseLost { .. }), "{error:?}");
    assert_eq!(refused(&setup.idem, &request("a", "p")).await, Outcome::Replayed(8));
}

/// 23, 71. A panic of what runs with a lease ends the lease.
pub async fn a_panic_with_a_lease_ends_it<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let idem = setup.idem.clone();
    let task = tokio::spawn(async move {
        let work = |_: Turn| async { panic!("on purpose") };
        let on_failure = |_: &Declined| OnFailure::Release;
        idem.run_leased::<u64, _, _, _, _>(&request("a", "p"), HELD_FOR, on_failure, work).await
    });
    assert!(within("the work", task).await.unwrap_err().is_panic());
    let next = acquired_after(&setup.idem, request("a", "p")).await;
    assert!(next.took_over().is_some(), "what it did before the panic may have happened");
    next.release().await.unwrap();
    assert_eq!(kept_for(setup.idem.store(), &key("a")).await, None);
}
