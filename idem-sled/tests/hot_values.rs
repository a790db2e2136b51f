//! Many callers who want one value: they take turns, and nobody waits for another's effect.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

mod common;

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    task::Poll,
    time::Duration,
};

use common::{opened, request, space};
use idem_core::{EffectError, Error, Idem, Outcome, Transaction};
use idem_sled::{SledStore, SledTransaction};
use tempfile::TempDir;
use tokio::{
    runtime::Handle,
    task::{JoinHandle, block_in_place, yield_now},
    time::timeout,
};

const PATIENCE: Duration = Duration::from_secs(20);

/// Adds one to the count under that name.
fn add(tx: &mut SledTransaction, name: &str) -> Result<u64, EffectError> {
    let count = tx.get(name.as_bytes())?.map_or(0, |value| number(&value)) + 1;
    tx.put(name.as_bytes(), &count.to_be_bytes())?;
    Ok(count)
}

fn number(value: &[u8]) -> u64 {
    u64::from_be_bytes(value.try_into().unwrap())
}

async fn count(idem: &Idem<SledStore>, name: &str) -> u64 {
    number(&idem.value(&space(), name.as_bytes()).await.unwrap().unwrap())
}

/// Adds one to the hot value under a new key, and returns the new count.
async fn added(idem: &Idem<SledStore>, key: String) -> u64 {
    created(idem.execute(&request(key), |tx| add(tx, "n")).await)
}

fn created<T: std::fmt::Debug>(outcome: Result<Outcome<T>, Error>) -> T {
    match outcome {
        Ok(Outcome::Created(result)) => result,
        other => panic!("the key is new: {other:?}"),
    }
}

/// So many tasks that each run that many keys.
fn callers<F>(
    callers: u64,
    rounds: u64,
    call: impl Fn(u64, u64) -> F + Clone + Send + 'static,
) -> Vec<JoinHandle<()>>
where
    F: Future<Output = ()> + Send,
{
    let caller = |caller| {
        let call = call.clone();
        tokio::spawn(async move {
            for round in 0..rounds {
                call(caller, round).await;
            }
        })
    };
    (0..callers).map(caller).collect()
}

async fn all(tasks: Vec<JoinHandle<()>>) {
    for task in tasks {
        timeout(PATIENCE, task).await.expect("nobody may be stranded").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixty_four_callers_of_one_value_run_their_effects_few_times() {
    const CALLERS: u64 = 64;
    const ROUNDS: u64 = 8;
    let folder = TempDir::new().unwrap();
    let idem = opened(folder.path()).await.unwrap();
    let (adding, runs) = (idem.clone(), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&runs);
    let call = move |caller, round| {
        let (idem, runs) = (adding.clone(), Arc::clone(&counted));
        async move {
            let effect = move |tx: &mut SledTransaction| {
                runs.fetch_add(1, Ordering::Relaxed);
                add(tx, "n")
            };
            created(idem.execute(&request(format!("{caller}-{round}")), effect).await);
        }
    };
    all(callers(CALLERS, ROUNDS, call)).await;
    let commits = CALLERS * ROUNDS;
    assert_eq!(count(&idem, "n").await, commits);
    let runs = runs.load(Ordering::Relaxed);
    assert!(runs < 5 * commits, "{runs} runs for {commits} commits");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_slow_effect_that_has_the_turn_lets_others_pass() {
    let folder = TempDir::new().unwrap();
    let idem = opened(folder.path()).await.unwrap();
    let (enters, entered) = mpsc::channel();
    let (leave, leaves) = mpsc::channel();
    let runs = AtomicU64::new(0);
    let effect = move |tx: &mut SledTransaction| {
        let count = add(tx, "n")?;
        if runs.fetch_add(1, Ordering::SeqCst) < 2 {
            enters.send(())?;
            block_in_place(|| leaves.recv_timeout(PATIENCE))?;
        }
        Ok(count)
    };
    let slow = idem.clone();
    let slow = tokio::spawn(async move { slow.execute(&request("slow"), effect).await });
    // It loses, and has its turn when it runs again.
    block_in_place(|| entered.recv_timeout(PATIENCE)).unwrap();
    assert_eq!(added(&idem, "rival".to_string()).await, 1);
    leave.send(()).unwrap();
    block_in_place(|| entered.recv_timeout(PATIENCE)).unwrap();
    let others = idem.clone();
    let call = move |caller, round| {
        let idem = others.clone();
        async move {
            added(&idem, format!("{caller}-{round}")).await;
        }
    };
    all(callers(16, 2, call)).await;
    assert_eq!(count(&idem, "n").await, 33);
    leave.send(()).unwrap();
    let slow = timeout(PATIENCE, slow).await.expect("it must end").unwrap();
    assert_eq!(created(slow), 34);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_effect_that_asks_for_the_value_that_it_has_the_turn_for_goes_on() {
    let folder = TempDir::new().unwrap();
    let idem = opened(folder.path()).await.unwrap();
    let busy = idem.clone();
    let call = move |caller, round| {
        let idem = busy.clone();
        async move {
            added(&idem, format!("{caller}-{round}")).await;
        }
    };
    let others = callers(8, 8, call);
    let (nested, runs) = (idem.clone(), AtomicU64::new(0));
    let effect = move |tx: &mut SledTransaction| {
        let count = add(tx, "n")?;
        let run = runs.fetch_add(1, Ordering::SeqCst);
        if run < 4 {
            let call = added(&nested, format!("nested-{run}"));
            block_in_place(|| Handle::current().block_on(call));
        }
        Ok(count)
    };
    let outer = request("outer");
    created(timeout(PATIENCE, idem.execute(&outer, effect)).await.expect("it must end"));
    all(others).await;
    assert_eq!(count(&idem, "n").await, 8 * 8 + 4 + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_caller_that_goes_away_at_any_await_strands_nobody() {
    const POLLS: u64 = 10;
    let folder = TempDir::new().unwrap();
    let idem = opened(folder.path()).await.unwrap();
    let adding = idem.clone();
    let call = move |caller, round| {
        let idem = adding.clone();
        async move {
            added(&idem, format!("{caller}-{round}")).await;
        }
    };
    let others = callers(16, 8, call);
    let dropping = idem.clone();
    let call = move |caller, polls| {
        let idem = dropping.clone();
        async move {
            let mut call = Box::pin(added(&idem, format!("gone-{caller}-{polls}")));
            for _ in 0..=polls {
                let once = poll_fn(|context| Poll::Ready(call.as_mut().poll(context)));
                if once.await.is_ready() {
                    return;
                }
                yield_now().await;
            }
        }
    };
    all(callers(4, POLLS, call)).await;
    all(others).await;
    // What they left in the queue comes before.
    added(&idem, "last".to_string()).await;
    let mut created = 16 * 8 + 1;
    for (caller, polls) in (0..4).flat_map(|caller| (0..POLLS).map(move |polls| (caller, polls))) {
        let key = request(format!("gone-{caller}-{polls}"));
        created += u64::from(idem.receipt(key.key()).await.unwrap().is_some());
    }
    assert_eq!(count(&idem, "n").await, created);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn callers_of_two_values_in_opposite_order_all_commit() {
    let folder = TempDir::new().unwrap();
    let idem = opened(folder.path()).await.unwrap();
    let both = idem.clone();
    let call = move |caller, round| {
        let idem = both.clone();
        async move {
            let effect = move |tx: &mut SledTransaction| {
                let names = if caller % 2 == 0 { ["a", "b"] } else { ["b", "a"] };
                names.iter().try_for_each(|name| add(tx, name).map(drop))
            };
            created(idem.execute(&request(format!("{caller}-{round}")), effect).await);
        }
    };
    // Some of them want one of the two alone.
    let alone = idem.clone();
    let one = move |caller, round| {
        let idem = alone.clone();
        async move {
            let name = if caller % 2 == 0 { "a" } else { "b" };
            let request = request(format!("one-{caller}-{round}"));
            created(idem.execute(&request, move |tx| add(tx, name)).await);
        }
    };
    let mut tasks = callers(16, 4, call);
    tasks.extend(callers(16, 4, one));
    all(tasks).await;
    for name in ["a", "b"] {
        assert_eq!(count(&idem, name).await, 16 * 4 + 8 * 4, "{name}");
    }
}
