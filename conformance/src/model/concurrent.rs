//! Runs many histories of random programs, one after the other in each of a few places.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use idem_core::{DynStore, EffectError, Idem, ManualClock, Request};
use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::{Config, TestRunner},
};
use tokio::{runtime::Builder, sync::Barrier};

use super::{
    caller::{Handle, Tx},
    calls::{Answer, Call, K, KEYS, Millis, NAMES},
    choices::{Action, programs, rng},
    clients::{Client, Log},
    history::History,
    names::Names,
    order,
};
use crate::{
    callers::joined,
    placed::{Make, Place},
    setup::start_plus,
    watched::{Steps, Watched},
};

/// How many places there are: histories in different ones run at the same time.
const PLACES: usize = 3;

/// The most clients of a history.
const CLIENTS: usize = 5;

/// How far the clock stands apart from one history to the next: longer than all that ends in one.
const APART: Millis = 1_000;

/// Runs so many histories, the first by that seed, the others by those that follow.
///
/// # Errors
/// A history that the rules do not allow, with its seed.
pub(super) fn run(create: Make<Arc<DynStore>>, histories: usize, seed: u64) -> Result<(), String> {
    let failed = AtomicBool::new(false);
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    // Here and not there: a fixture may go by the thread that asks for it.
    let places: Vec<_> = (0..PLACES).map(|_| runtime.block_on(create())).collect();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..PLACES)
            .zip(places)
            .map(|(first, place)| {
                let numbers = (first..histories).step_by(PLACES);
                let seeds = numbers.map(move |number| seed.wrapping_add(number as u64));
                let failed = &failed;
                scope.spawn(move || {
                    let ended = in_place(&*place, seeds, failed);
                    failed.fetch_or(ended.is_err(), Ordering::SeqCst);
                    ended
                })
            })
            .collect();
        let ended = threads.into_iter().map(|thread| thread.join().expect("no check panics"));
        ended.collect::<Vec<_>>().into_iter().collect()
    })
}

fn in_place(
    place: &dyn Place<Arc<DynStore>>,
    seeds: impl Iterator<Item = u64>,
    failed: &AtomicBool,
) -> Result<(), String> {
    let runtime =
        Builder::new_multi_thread().worker_threads(3).enable_all().build().expect("a runtime");
    let clock = ManualClock::at(start_plus(0));
    let handles = runtime.block_on(async {
        let mut handles = Vec::new();
        for _ in 0..CLIENTS {
            let (store, steps) = Watched::new(place.open(clock.clone()).await);
            handles.push((Idem::new(Arc::new(store) as Arc<_>), steps));
        }
        handles
    });
    let (mut calls, mut gave_up) = (0, 0);
    for (run, seed) in seeds.enumerate() {
        if failed.load(Ordering::SeqCst) {
            break;
        }
        let names = Names::of_run(run);
        let history = runtime.block_on(history(&clock, &handles, &names, program(seed)));
        runtime.block_on(clear(&clock, &handles[0].0, &names, &history));
        (calls, gave_up) = (calls + history.ops.len(), gave_up + history.gave_up);
        order::find(history).map_err(|problem| format!("IDEM_SEED={seed}: {problem}"))?;
    }
    // What gives up is right in any order: a store that answers nothing must not pass.
    if gave_up * 20 > calls {
        return Err(format!("{gave_up} of {calls} calls gave up though nothing was in their way"));
    }
    runtime.block_on(async {
        for (idem, _) in &handles {
            idem.close()
                .await
                .map_err(|error| format!("closing failed: {}", error.with_causes()))?;
        }
        Ok(())
    })
}

/// The program of each client, by a seed.
fn program(seed: u64) -> Vec<Vec<Action>> {
    let config = Config { failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, rng(seed));
    programs().new_tree(&mut runner).expect("nothing is filtered").current()
}

/// Lets the clients follow their programs, and looks at what is left.
async fn history(
    clock: &ManualClock,
    handles: &[(Handle, Steps)],
    names: &Names,
    programs: Vec<Vec<Action>>,
) -> History {
    let log = Log::new(clock, since_start(clock) + APART);
    let (clients, barrier) = (programs.len(), Arc::new(Barrier::new(programs.len())));
    let tasks: Vec<_> = programs
        .into_iter()
        .enumerate()
        .map(|(number, program)| {
            let client = Client::new(number, &log, &handles[number], names);
            tokio::spawn(client.follow(Arc::clone(&barrier), program))
        })
        .collect();
    for task in tasks {
        joined("a client", task).await;
    }
    Client::new(clients, &log, &handles[0], names).look_at_all().await;
    log.history()
}

/// Removes what a history has left, so that it is in nobody's way.
async fn clear(clock: &ManualClock, idem: &Handle, names: &Names, history: &History) {
    // All leases have ended by then.
    clock.advance(Duration::from_millis(APART.unsigned_abs()));
    let clearing: Vec<_> = KEYS
        .into_iter()
        .map(|key| {
            let (idem, name) = (idem.clone(), names.key(key));
            let is_left = history.last(Call::List(key)) != Some(&Answer::Listed(None));
            let has_value = NAMES.iter().any(|name| {
                history.last(Call::Value(key.owner(), *name)) != Some(&Answer::Value(None))
            });
            // What does not work shows in the next history.
            tokio::spawn(async move {
                if is_left {
                    drop(idem.forget(&name).await);
                }
                if has_value && key != K::NorthB {
                    let request = Request::new(name).retain(Duration::from_millis(1));
                    drop(idem.execute(&request, empty).await);
                }
            })
        })
        .collect();
    for task in clearing {
        joined("clearing", task).await;
    }
    clock.advance(Duration::from_millis(1));
    drop(idem.purge(usize::MAX).await);
}

fn empty(tx: &mut Tx) -> Result<(), EffectError> {
    Ok(NAMES.iter().try_for_each(|name| tx.delete(name.as_bytes()))?)
}

fn since_start(clock: &ManualClock) -> Millis {
    use idem_core::Clock as _;
    clock.now().as_millis() - start_plus(0).as_millis()
}
