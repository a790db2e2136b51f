//! A lease that is renewed beside the work that it is held for.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use idem_core::{Clock, Error, ErrorKind, Lease, Store, Token};
use tokio::{sync::oneshot, task::JoinHandle};

use crate::{
    Fixture,
    callers::{give_way, joined, until},
    leasing::{HELD_FOR, LONG, acquired, assert_lost, end, in_progress, refused},
    setup::{Setup, request, start_plus},
    steps::LEASE,
    watched::{Steps, Watched},
};

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
    assert!(kept.output == 7 && kept.lost.is_none() && !kept.ceiling_reached, "{kept:?}");
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
    assert!(kept.ceiling_reached && kept.lost.is_none(), "{kept:?}");
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
    setup.clock.set(start_plus(9));
    // The lease is watched before the work is done: work that is done at once has reached no ceiling.
    give_way().await;
    let (kept, lease) = kept_alive.finished().await;
    assert!(kept.ceiling_reached && kept.lost.is_none(), "{kept:?}");
    assert_eq!(lease.complete(kept.output).await.unwrap(), 7);
}

/// 72. A lease that was renewed for longer is not cut by keeping it alive, unless its ceiling is sooner.
pub async fn a_longer_lease_is_not_cut_by_keeping_it_alive<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let mut lease = acquired(&setup.idem, &request("a", "p")).await;
    lease.renew(HELD_FOR * 10).await.unwrap();
    for (ceiling, until) in [(LONG, 10 * LEASE), (HELD_FOR * 2, 2 * LEASE)] {
        let kept = lease.keep_alive(HELD_FOR / 3, ceiling, async { 7 }).await.unwrap();
        assert!(kept.output == 7 && kept.lost.is_none() && !kept.ceiling_reached, "{kept:?}");
        assert_eq!(lease.until(), start_plus(until));
    }
    lease.release().await.unwrap();
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
        (HELD_FOR / 2 + Duration::from_millis(1), LONG, "interval"),
        (HELD_FOR / 3, Duration::ZERO, "ceiling"),
    ] {
        let error = lease.keep_alive(every, ceiling, work()).await.unwrap_err();
        let ErrorKind::InvalidDuration { field, .. } = *error.kind() else { panic!("{error:?}") };
        assert_eq!(field, named);
    }
    assert!(lease.keep_alive(HELD_FOR / 2, LONG, async {}).await.is_ok(), "half will do");
    setup.clock.set(end());
    let error = lease.keep_alive(HELD_FOR / 3, LONG, work()).await.unwrap_err();
    assert_lost(&error, lease.token(), "before the work");
    assert!(!began.load(Ordering::SeqCst), "the work must not begin");
    lease.abandon();
}

/// 72. A renewal that fails for a while is tried again, soon, and the lease is held.
pub async fn a_renewal_that_fails_is_tried_again<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let kept_alive = kept_alive(&setup, LONG).await;
    kept_alive.renewal(0).await;
    kept_alive.steps.fail(3);
    kept_alive.next(&setup).await;
    // Pauses of 20, 40 and 80 ms at most, and half of that at least.
    for (failed, pause) in [(1, 20), (2, 40), (3, 80)] {
        kept_alive.renewal(failed).await;
        until("the holder to sleep", || setup.clock.sleepers() == 1).await;
        setup.clock.advance(Duration::from_millis(pause / 2 - 1));
        give_way().await;
        assert_eq!(kept_alive.steps.answered(), 2 + failed, "pauses grow");
        setup.clock.advance(Duration::from_millis(pause / 2 + 1));
    }
    kept_alive.renewal(4).await;
    let now = LEASE / 3 + 140;
    let held = refused(&setup.idem, &request("a", "p")).await;
    assert_eq!(held, in_progress(start_plus(now + LEASE), start_plus(now)));
    let (kept, lease) = kept_alive.finished().await;
    assert!(kept.lost.is_none(), "{kept:?}");
    assert_eq!(lease.complete(7).await.unwrap(), 7);
}
