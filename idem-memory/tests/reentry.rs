//! Effects that ask their own store, and effects that others overtake.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::Duration,
};

use idem_core::{
    Certainty, ErrorKind, Idem, Key, ManualClock, Outcome, RACE_LIMIT, Request, Timestamp,
    Transaction,
};
use idem_memory::{MemoryStore, MemoryTransaction};

fn request(name: &str) -> Request {
    Request::new(Key::new("north", "order", name).unwrap())
}

/// Runs a future to its end on this thread, wherever that is.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn an_effect_that_changes_what_it_reads_by_another_call_is_told_so_and_keeps_nothing() {
    let idem = Idem::new(MemoryStore::new());
    let (nested, runs) = (idem.clone(), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&runs);
    let effect = move |tx: &mut MemoryTransaction| {
        tx.get(b"n")?;
        let run = counted.fetch_add(1, Ordering::SeqCst);
        let change = move |tx: &mut MemoryTransaction| Ok(tx.put(b"n", &run.to_be_bytes())?);
        let changed = block_on(nested.execute(&request(&format!("nested-{run}")), change))?;
        assert_eq!(changed, Outcome::Created(()));
        Ok(tx.put(b"outer", b"kept")?)
    };
    let error = block_on(idem.execute(&request("outer"), effect)).unwrap_err();
    let contended = matches!(error.kind(), ErrorKind::Contended { attempts: RACE_LIMIT });
    assert!(contended, "{error:?}");
    assert_eq!(error.certainty(), Certainty::NothingDone);
    assert_eq!(runs.load(Ordering::SeqCst), RACE_LIMIT);
    let space = request("outer").key().space();
    assert_eq!(block_on(idem.value(&space, b"outer")).unwrap(), None);
    assert_eq!(block_on(idem.receipt(request("outer").key())).unwrap(), None);
}

#[test]
fn an_effect_that_runs_its_own_key_finds_it_done_and_replays() {
    let idem = Idem::new(MemoryStore::new());
    let nested = idem.clone();
    let is_outer = AtomicBool::new(true);
    let effect = move |_: &mut MemoryTransaction| {
        assert!(is_outer.swap(false, Ordering::SeqCst), "once it is done it must not run again");
        assert_eq!(block_on(nested.execute(&request("same"), |_| Ok(7)))?, Outcome::Created(7));
        Ok(8)
    };
    let outcome = block_on(idem.execute(&request("same"), effect)).unwrap();
    assert_eq!(outcome, Outcome::Replayed(7), "one effect, one receipt");
}

#[test]
fn an_effect_that_outlives_its_own_retention_is_committed_once() {
    let clock = ManualClock::at(Timestamp::from_millis(0));
    let idem = Idem::new(MemoryStore::builder().clock(clock.clone()).build());
    let brief = request("brief").retain(Duration::from_millis(1));
    let slow = clock.clone();
    let effect = move |tx: &mut MemoryTransaction| {
        slow.advance(Duration::from_millis(5));
        Ok(tx.put(b"done", b"yes")?)
    };
    assert_eq!(block_on(idem.execute(&brief, effect)).unwrap(), Outcome::Created(()));
    // Its life counts from its start: it is over already, and the next call runs.
    assert_eq!(block_on(idem.receipt(brief.key())).unwrap(), None);
    assert_eq!(block_on(idem.execute(&brief, |_| Ok(()))).unwrap(), Outcome::Created(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixty_four_callers_of_one_value_run_their_effects_few_times() {
    const CALLERS: u64 = 64;
    const ROUNDS: u64 = 64;
    let idem = Idem::new(MemoryStore::new());
    let runs = Arc::new(AtomicU32::new(0));
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (idem, runs) = (idem.clone(), Arc::clone(&runs));
            tokio::spawn(async move {
                for round in 0..ROUNDS {
                    let counted = Arc::clone(&runs);
                    let effect = move |tx: &mut MemoryTransaction| {
                        counted.fetch_add(1, Ordering::Relaxed);
                        let count = tx.get(b"n")?.map_or(0, |value| number(&value)) + 1;
                        tx.put(b"n", &count.to_be_bytes())?;
                        Ok(())
                    };
                    let request = request(&format!("{caller}-{round}"));
                    let outcome = idem.execute(&request, effect).await.unwrap();
                    assert_eq!(outcome, Outcome::Created(()));
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    let commits = CALLERS * ROUNDS;
    let count = idem.value(&request("any").key().space(), b"n").await.unwrap();
    assert_eq!(number(&count.unwrap()), commits);
    let runs = u64::from(runs.load(Ordering::Relaxed));
    assert!(runs < 5 * commits, "{runs} runs for {commits} commits");
}

fn number(value: &[u8]) -> u64 {
    u64::from_be_bytes(value.try_into().unwrap())
}
