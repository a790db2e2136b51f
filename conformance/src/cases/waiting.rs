//! Waiting for whoever holds a key.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Waker},
    time::Duration,
};

use idem_core::{BoxFuture, Claim, Error, Idem, Lease, Outcome, Request, Store, Transaction};
use tokio::{
    sync::{Barrier, mpsc::unbounded_channel},
    task::JoinHandle,
};

use crate::{
    Fixture,
    callers::{at, give_way, joined, until, within},
    leasing::{HELD_FOR, LONG, acquired, end, in_progress, refused},
    setup::{Setup, add, key, request, start_plus},
    steps::LEASE,
    watched::{Steps, Watched},
};

/// One who waits, as a task; its deadline is so far away.
fn waiter<S: Store + 'static>(
    idem: &Idem<S>,
    wait: Duration,
) -> JoinHandle<Result<Outcome<u64>, Error>> {
    let idem = idem.clone();
    tokio::spawn(async move {
        let request = request("a", "p").wait_for(wait);
        let waiting: BoxFuture<_> =
            Box::pin(async move { idem.execute(&request, |tx| add(tx, "count")).await });
        waiting.await
    })
}

/// A held key, and one who waits for it through the same front and has nothing more to ask.
async fn held_and_waited_for<F: Fixture>(
    setup: &Setup<F>,
    wait: Duration,
) -> (
    Lease<Watched<F::Store>, u64>,
    JoinHandle<Result<Outcome<u64>, Error>>,
    (Idem<Watched<F::Store>>, Steps),
) {
    let (idem, steps) = setup.watched().await;
    let lease = acquired(&idem, &request("a", "p")).await;
    let waiter = waiter(&idem, wait);
    // The claim, a look, and another one that cannot miss the holder's end.
    steps.reach(3).await;
    sleeping(setup, 1).await;
    (lease, waiter, (idem, steps))
}

/// Lets so many waiters come to rest: each sleeps by its deadline and by its pause.
async fn sleeping<F: Fixture>(setup: &Setup<F>, waiters: usize) {
    until("the waiters to sleep", || setup.clock.sleepers() == 2 * waiters).await;
}

/// 73. A waiter of the same front gets the result when the holder completes, and asks nothing before.
pub async fn a_waiter_is_woken_by_a_completion_and_asks_nothing_before<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let (mut lease, waiter, (idem, steps)) = held_and_waited_for(&setup, LONG).await;
    // A renewal that moves nothing wakes nobody.
    lease.renew(HELD_FOR).await.unwrap();
    give_way().await;
    for millis in (0..LEASE - 1_000).step_by(1_000) {
        setup.clock.set(start_plus(millis));
        tokio::task::yield_now().await;
    }
    // Also after a renewal: at the old end it looks once, and waits on.
    lease.renew(HELD_FOR).await.unwrap();
    assert_eq!(steps.answered(), 5, "the waiter must not poll");
    setup.clock.set(end());
    steps.reach(6).await;
    sleeping(&setup, 1).await;
    assert_eq!(lease.complete(7).await.unwrap(), 7);
    assert_eq!(joined("the waiter", waiter).await.unwrap(), Outcome::Replayed(7));
    assert_eq!(steps.answered(), 8, "the completion, and one look");
    assert_eq!(setup.count("north", "count").await, 0, "nothing ran");
    drop(idem);
}

/// 73, 71. A waiter runs as soon as the holder releases the key, or drops its lease.
pub async fn a_waiter_runs_when_the_holder_lets_go<F: Fixture>() {
    for releases in [true, false] {
        let setup = Setup::<F>::new().await;
        let (lease, waiter, _) = held_and_waited_for(&setup, LONG).await;
        if releases {
            lease.release().await.unwrap();
        } else {
            drop(lease);
        }
        assert_eq!(joined("the waiter", waiter).await.unwrap(), Outcome::Created(1));
        assert_eq!(refused(&setup.idem, &request("a", "p")).await, Outcome::Replayed(1));
    }
}

/// 73. A waiter gives up at its deadline, not a millisecond before, and is told how long the lease has left.
pub async fn a_waiter_gives_up_at_its_deadline<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let (lease, waiter, (_, steps)) = held_and_waited_for(&setup, Duration::from_millis(10)).await;
    setup.clock.set(start_plus(9));
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    assert!(!waiter.is_finished(), "its time has not come");
    assert_eq!(steps.answered(), 3);
    setup.clock.set(start_plus(10));
    let outcome = joined("the waiter", waiter).await.unwrap();
    assert_eq!(outcome, in_progress(end(), start_plus(10)));
    let none = request("a", "p").wait_for(Duration::ZERO);
    assert_eq!(refused(&setup.idem, &none).await, in_progress(end(), start_plus(10)));
    assert_eq!(lease.complete(7).await.unwrap(), 7, "the holder is undisturbed");
}

/// 73. A waiter takes the key when the lease ends, whichever front it was claimed through.
pub async fn a_waiter_runs_when_the_lease_ends<F: Fixture>() {
    for is_here in [true, false] {
        let setup = Setup::<F>::new().await;
        let (idem, steps) = setup.watched().await;
        let (elsewhere, _) = setup.watched().await;
        let holder = if is_here { &idem } else { &elsewhere };
        let lease = acquired(holder, &request("a", "p")).await;
        let before = steps.answered();
        let waiting = idem.clone();
        let task = tokio::spawn(async move {
            let request = request("a", "q")
                .with_fingerprint(*request("a", "p").fingerprint_value().expect("it has one"));
            let claim: BoxFuture<_> =
                Box::pin(
                    async move { waiting.claim::<u64>(&request.wait_for(LONG), HELD_FOR).await },
                );
            claim.await
        });
        steps.reach(before + 2).await;
        sleeping(&setup, 1).await;
        setup.clock.set(end());
        match joined("the waiter", task).await.unwrap() {
            Claim::Acquired(next) => {
                assert_eq!(next.took_over(), Some(lease.token()));
                next.release().await.unwrap();
            }
            other => panic!("the lease has ended: {other:?}"),
        }
        lease.abandon();
    }
}

/// 73. A waiter of the same front does not sleep beyond the end of a lease that was made shorter.
pub async fn a_waiter_looks_again_when_the_lease_is_made_shorter<F: Fixture>() {
    for by_ceiling in [false, true] {
        let setup = Setup::<F>::new().await;
        let (mut lease, waiter, (_, steps)) = held_and_waited_for(&setup, LONG).await;
        let shorter = Duration::from_millis(10);
        if by_ceiling {
            assert!(lease.keep_alive(HELD_FOR / 3, shorter, async {}).await.is_ok());
        } else {
            lease.renew(shorter).await.unwrap();
        }
        // The renewal, and another look of the waiter's.
        steps.reach(5).await;
        sleeping(&setup, 1).await;
        setup.clock.set(start_plus(10));
        assert_eq!(joined("the waiter", waiter).await.unwrap(), Outcome::Created(1));
        lease.abandon();
    }
}

/// 73. A waiter whose key is held through another front asks now and then, and gets the result.
pub async fn a_waiter_elsewhere_gets_the_result_and_asks_now_and_then<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let lease = acquired(&setup.idem, &request("a", "p")).await;
    let (idem, steps) = setup.watched().await;
    let waiter = waiter(&idem, LONG);
    let sleeps = async |asks| {
        steps.reach(asks).await;
        sleeping(&setup, 1).await;
        assert_eq!(steps.answered(), asks, "it must not ask without a pause");
    };
    // A pause is half a second at most, and grows up to it.
    for asks in 2..12 {
        sleeps(asks).await;
        setup.clock.advance(Duration::from_millis(500));
    }
    sleeps(12).await;
    setup.clock.advance(Duration::from_millis(249));
    sleeps(12).await;
    assert_eq!(lease.complete(7).await.unwrap(), 7);
    setup.clock.advance(Duration::from_millis(251));
    assert_eq!(joined("the waiter", waiter).await.unwrap(), Outcome::Replayed(7));
}

/// 73. A waiter that is cancelled strands nobody: the others get the result.
pub async fn a_cancelled_waiter_strands_nobody<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let (lease, first, (idem, steps)) = held_and_waited_for(&setup, LONG).await;
    let others: Vec<_> = (0..3).map(|_| waiter(&idem, LONG)).collect();
    steps.reach(3 + 2 * others.len()).await;
    sleeping(&setup, 1 + others.len()).await;
    first.abort();
    assert!(within("the cancelled one", first).await.unwrap_err().is_cancelled());
    assert_eq!(lease.complete(7).await.unwrap(), 7);
    for waiter in others {
        assert_eq!(joined("a waiter", waiter).await.unwrap(), Outcome::Replayed(7));
    }
}

/// 36, 73. Of many who wait for a released key one runs, and the others get its result.
pub async fn of_many_waiters_one_runs<F: Fixture>() {
    const WAITERS: usize = 32;
    let setup = Setup::<F>::new().await;
    let (lease, first, (idem, steps)) = held_and_waited_for(&setup, LONG).await;
    let mut waiters: Vec<_> = (1..WAITERS).map(|_| waiter(&idem, LONG)).collect();
    waiters.push(first);
    steps.reach(1 + 2 * WAITERS).await;
    lease.release().await.unwrap();
    let mut created = 0;
    for waiter in waiters {
        match joined("a waiter", waiter).await.unwrap() {
            Outcome::Created(1) => created += 1,
            Outcome::Replayed(1) => {}
            other => panic!("the first result is for all: {other:?}"),
        }
    }
    assert_eq!((created, setup.count("north", "count").await), (1, 1));
}

/// 8, 73. Only a live lease is waited for: a conflict, a receipt and a free key are answered at once.
pub async fn only_a_live_lease_is_waited_for<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let lease = acquired(&setup.idem, &request("a", "p")).await;
    let ask = |request: Request| {
        let idem = setup.idem.clone();
        async move {
            let asked: BoxFuture<_> = Box::pin(async move {
                idem.execute(&request.wait_for(LONG), |tx| {
                    tx.put(b"ran", b"1")?;
                    Ok(1)
                })
                .await
            });
            within("an answer", asked).await.unwrap()
        }
    };
    assert_eq!(ask(request("a", "q")).await, Outcome::Conflict);
    assert_eq!(setup.text("ran").await, None);
    assert_eq!(ask(request("b", "p")).await, Outcome::Created(1));
    assert_eq!(ask(request("b", "p")).await, Outcome::Replayed(1));
    assert_eq!(lease.complete(7).await.unwrap(), 7);
    assert_eq!(ask(request("a", "p")).await, Outcome::Replayed(7));
    assert_eq!(setup.receipt(&key("a")).await.result, "7");
}

/// 69, 73. Holders of one key that wait for each other take turns, one at a time, and nobody is stranded.
pub async fn holders_take_turns_and_nobody_is_stranded<F: Fixture>() {
    const HOLDERS: usize = 8;
    const TURNS: usize = 20;
    let setup = Setup::<F>::new().await;
    let (barrier, is_held) = (Arc::new(Barrier::new(HOLDERS)), Arc::new(AtomicBool::new(false)));
    let (holds, mut holders) = unbounded_channel();
    let turns = |number: usize| {
        let (idem, is_held, holds) = (setup.idem.clone(), Arc::clone(&is_held), holds.clone());
        let turns: BoxFuture<_> = Box::pin(async move {
            // The clock stands still: who is not woken waits for ever.
            let request = request("a", "p").wait_for(LONG);
            for turn in 0..TURNS {
                let lease = acquired(&idem, &request).await;
                assert!(!is_held.swap(true, Ordering::SeqCst), "one holder at a time");
                // A case that has failed listens no more.
                let _ = holds.send(lease.token());
                tokio::task::yield_now().await;
                is_held.store(false, Ordering::SeqCst);
                if (turn + number).is_multiple_of(3) {
                    drop(lease);
                } else {
                    lease.release().await.unwrap();
                }
            }
        });
        at(&barrier, turns)
    };
    let tasks: Vec<_> = (0..HOLDERS).map(turns).collect();
    drop(holds);
    let mut tokens = Vec::new();
    // Each has its own time: they are hundreds of commits, one after the other, on whatever disk there is.
    while let Some(token) = within("the next holder", holders.recv()).await {
        tokens.push(token);
    }
    for task in tasks {
        joined("a holder", task).await;
    }
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), HOLDERS * TURNS, "each turn has a token of its own");
}

fn is_over(sleep: &mut BoxFuture<()>) -> bool {
    sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// 73. A sleep counts from when it was asked for, looked at or not, and ends not a millisecond early.
pub async fn a_sleep_counts_from_when_it_was_asked_for<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let [mut seen, mut unseen] =
        [(); 2].map(|()| setup.idem.store().sleep(Duration::from_millis(10)));
    assert!(!is_over(&mut seen));
    setup.clock.set(start_plus(9));
    assert!(!is_over(&mut seen), "a millisecond is left");
    setup.clock.set(start_plus(10));
    assert!(is_over(&mut seen) && is_over(&mut unseen), "its time has come");
}

/// 73. A sleep, and a wait, may be longer than a clock can count: it ends with what is waited for, and not before.
pub async fn a_wait_beyond_time_is_a_wait<F: Fixture>() {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
    let setup = Setup::<F>::new().await;
    let beyond = [Duration::MAX, Duration::from_millis(u64::MAX), Duration::from_secs(1 << 62)];
    for duration in beyond {
        let mut sleep = setup.idem.store().sleep(duration);
        assert!(!is_over(&mut sleep), "{duration:?}");
        setup.clock.advance(CENTURY);
        assert!(!is_over(&mut sleep), "{duration:?} after a century");
    }
    let lease = acquired(&setup.idem, &request("a", "p")).await;
    let waiters = beyond.map(|duration| waiter(&setup.idem, duration));
    sleeping(&setup, waiters.len()).await;
    assert_eq!(lease.complete(7).await.unwrap(), 7);
    for waiter in waiters {
        assert_eq!(joined("the waiter", waiter).await.unwrap(), Outcome::Replayed(7));
    }
}
