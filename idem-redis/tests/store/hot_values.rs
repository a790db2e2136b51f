//! Many callers who want one value: they take turns, and nobody waits for another's effect.

use std::{
    fmt::Debug,
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    task::Poll,
    time::Duration,
};

use idem_core::{Error, Outcome};
use idem_redis::{RedisTransaction, testing::Server};
use tokio::{
    task::{JoinHandle, block_in_place, yield_now},
    time::timeout,
};

use crate::setup::*;

const PATIENCE: Duration = Duration::from_secs(20);

fn created<T: Debug>(outcome: Result<Outcome<T>, Error>) -> T {
    match outcome {
        Ok(Outcome::Created(result)) => result,
        other => panic!("the key is new: {other:?}"),
    }
}

/// Adds one to the value of that name under a new key, and returns the new count.
async fn adds(idem: &Front, key: String, name: &'static str) -> u64 {
    created(idem.execute(&request(&key, "p"), move |tx| add(tx, name)).await)
}

fn count(server: &Server, name: &str) -> u64 {
    value_of(server, name).unwrap().parse().unwrap()
}

/// So many tasks that each make that many calls.
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

/// So many tasks that each add to the value of that name under so many keys.
fn adders(idem: &Front, count: u64, rounds: u64, name: &'static str) -> Vec<JoinHandle<()>> {
    let idem = idem.clone();
    callers(count, rounds, move |caller, round| {
        let idem = idem.clone();
        async move {
            adds(&idem, format!("{name}-{caller}-{round}"), name).await;
        }
    })
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
    let server = Server::start().unwrap();
    let idem = open(&server.url()).await;
    let runs = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&runs);
    let call = move |caller, round| {
        let (idem, runs) = (idem.clone(), Arc::clone(&counted));
        async move {
            let effect = move |tx: &mut RedisTransaction| {
                runs.fetch_add(1, Ordering::Relaxed);
                add(tx, "n")
            };
            created(idem.execute(&request(&format!("{caller}-{round}"), "p"), effect).await);
        }
    };
    all(callers(CALLERS, ROUNDS, call)).await;
    let commits = CALLERS * ROUNDS;
    assert_eq!(count(&server, "n"), commits);
    let runs = runs.load(Ordering::Relaxed);
    // One of them finds out what it reads.
    assert!(runs < 5 * commits, "{runs} runs for {commits} commits");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_caller_whose_value_changes_beside_a_cold_one_lines_up_for_the_hot_one() {
    const CALLERS: u64 = 32;
    const ROUNDS: u64 = 8;
    let server = Server::start().unwrap();
    let idem = open(&server.url()).await;
    let runs = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&runs);
    let call = move |caller, round| {
        let (idem, runs) = (idem.clone(), Arc::clone(&counted));
        async move {
            let effect = move |tx: &mut RedisTransaction| {
                runs.fetch_add(1, Ordering::Relaxed);
                // Before and after the hot one, in the order of names too.
                add(tx, &format!("a-{caller}"))?;
                add(tx, "n")?;
                add(tx, &format!("z-{caller}"))
            };
            created(idem.execute(&request(&format!("{caller}-{round}"), "p"), effect).await);
        }
    };
    all(callers(CALLERS, ROUNDS, call)).await;
    let commits = CALLERS * ROUNDS;
    assert_eq!(count(&server, "n"), commits);
    let runs = runs.load(Ordering::Relaxed);
    // Three of them find out what it reads.
    assert!(runs < 7 * commits, "{runs} runs for {commits} commits");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_slow_effect_that_has_the_turn_lets_others_pass() {
    let server = Server::start().unwrap();
    let idem = open(&server.url()).await;
    let (enters, entered) = mpsc::channel();
    let (leave, leaves) = mpsc::channel();
    let runs = AtomicU64::new(0);
    let effect = move |tx: &mut RedisTransaction| {
        let count = add(tx, "n")?;
        if runs.fetch_add(1, Ordering::SeqCst) < 2 {
            enters.send(())?;
            block_in_place(|| leaves.recv_timeout(PATIENCE))?;
        }
        Ok(count)
    };
    let slow = idem.clone();
    let slow = tokio::spawn(async move { slow.execute(&request("slow", "p"), effect).await });
    // It loses, and has its turn when it runs again.
    block_in_place(|| entered.recv_timeout(PATIENCE)).unwrap();
    assert_eq!(adds(&idem, "rival".to_string(), "n").await, 1);
    leave.send(()).unwrap();
    block_in_place(|| entered.recv_timeout(PATIENCE)).unwrap();
    all(adders(&idem, 16, 2, "n")).await;
    assert_eq!(count(&server, "n"), 33);
    leave.send(()).unwrap();
    let slow = timeout(PATIENCE, slow).await.expect("it must end").unwrap();
    assert_eq!(created(slow), 34);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_caller_that_goes_away_at_any_await_strands_nobody() {
    const POLLS: u64 = 12;
    let server = Server::start().unwrap();
    let idem = open(&server.url()).await;
    let others = adders(&idem, 16, 8, "n");
    let dropping = idem.clone();
    let call = move |caller, polls| {
        let idem = dropping.clone();
        async move {
            let mut call = Box::pin(adds(&idem, format!("gone-{caller}-{polls}"), "n"));
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
    // What they sent comes before.
    adds(&idem, "last".to_string(), "n").await;
    let mut created = 16 * 8 + 1;
    for (caller, polls) in (0..4).flat_map(|caller| (0..POLLS).map(move |polls| (caller, polls))) {
        let receipt = idem.receipt(&key(&format!("gone-{caller}-{polls}"))).await.unwrap();
        created += u64::from(receipt.is_some());
    }
    assert_eq!(count(&server, "n"), created);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn callers_of_two_values_in_opposite_order_all_commit() {
    let server = Server::start().unwrap();
    let idem = open(&server.url()).await;
    // Some of them want one of the two alone.
    let mut tasks = adders(&idem, 8, 4, "a");
    tasks.extend(adders(&idem, 8, 4, "b"));
    let call = move |caller, round| {
        let idem = idem.clone();
        async move {
            let effect = move |tx: &mut RedisTransaction| {
                let names = if caller % 2 == 0 { ["a", "b"] } else { ["b", "a"] };
                names.iter().try_for_each(|name| add(tx, name).map(drop))
            };
            created(idem.execute(&request(&format!("{caller}-{round}"), "p"), effect).await);
        }
    };
    tasks.extend(callers(16, 4, call));
    all(tasks).await;
    for name in ["a", "b"] {
        assert_eq!(count(&server, name), 16 * 4 + 8 * 4, "{name}");
    }
}
