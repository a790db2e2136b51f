//! The store and core's loop of compare-and-set under a scheduler that tries interleavings at random: each lock and
//! each turn that is given up is a place where another thread may go on. A call that waits for ever is a failure.
//! `IDEM_ROUNDS` says how many; a failure prints the schedule that [`shuttle::replay`] takes.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]
// The store's own sources, with the scheduler's locks in the place of its own.
#![allow(dead_code, missing_docs, unreachable_pub)]

#[path = "../src/room.rs"]
mod room;
#[path = "../src/shards.rs"]
mod shards;
#[path = "../src/store.rs"]
mod store;
#[path = "../src/transaction.rs"]
mod transaction;

mod sync {
    pub(crate) use shuttle::sync::atomic::{AtomicBool, Ordering};
    pub(crate) use shuttle_parking_lot::{Mutex, RwLock, RwLockWriteGuard};
}

use std::{collections::BTreeSet, time::Duration};

use idem_conformance::chance::rounds;

use idem_core::{
    Claim, EffectError, Error, ErrorKind, Idem, Key, ManualClock, Outcome, Request, Timestamp,
    Token, Transaction,
};
use shuttle::{future::block_on, thread};
use store::MemoryStore;
use transaction::MemoryTransaction;

/// Tries interleavings of what the threads of `test` do.
fn explore(test: impl Fn() + Send + Sync + 'static) {
    shuttle::check_random(test, rounds(600));
}

fn request(name: &str) -> Request {
    Request::new(Key::new("north", "order", name).unwrap()).retain(Duration::from_millis(10))
}

fn store() -> (Idem<MemoryStore>, ManualClock) {
    let clock = ManualClock::at(Timestamp::from_millis(0));
    (Idem::new(MemoryStore::builder().clock(clock.clone()).build()), clock)
}

/// Adds one to the count under `name`, and returns the new one.
fn add(tx: &mut MemoryTransaction, name: &str) -> Result<u64, EffectError> {
    let count = match tx.get(name.as_bytes())? {
        Some(count) => std::str::from_utf8(&count)?.parse::<u64>()? + 1,
        None => 1,
    };
    tx.put(name.as_bytes(), count.to_string().as_bytes())?;
    Ok(count)
}

fn run(idem: &Idem<MemoryStore>, name: &str) -> Result<Outcome<u64>, Error> {
    block_on(idem.execute(&request(name), |tx| add(tx, "sum")))
}

fn sum(idem: &Idem<MemoryStore>) -> u64 {
    let value = block_on(idem.value(&request("any").key().space(), b"sum")).unwrap();
    value.map_or(0, |value| std::str::from_utf8(&value).unwrap().parse().unwrap())
}

/// Runs each on a thread of its own, and returns what they returned.
fn together<T: Send + 'static>(threads: Vec<Box<dyn FnOnce() -> T + Send>>) -> Vec<T> {
    let threads: Vec<_> = threads.into_iter().map(thread::spawn).collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// A thread that runs the key of that name.
fn runs(
    idem: &Idem<MemoryStore>,
    name: &'static str,
) -> Box<dyn FnOnce() -> Result<Outcome<u64>, Error> + Send> {
    let idem = idem.clone();
    Box::new(move || run(&idem, name))
}

#[test]
fn callers_of_one_key_create_once_and_of_many_count_all() {
    explore(|| {
        let (idem, _) = store();
        let names = ["a", "a", "b", "c"];
        let outcomes = together(names.map(|name| runs(&idem, name)).into());
        let outcomes: Vec<_> = outcomes.into_iter().map(Result::unwrap).collect();
        let mut counts: Vec<_> = outcomes
            .iter()
            .filter_map(|outcome| match outcome {
                Outcome::Created(count) => Some(*count),
                _ => None,
            })
            .collect();
        counts.sort_unstable();
        assert_eq!(counts, [1, 2, 3], "{outcomes:?}");
        assert_eq!(outcomes[0].result(), outcomes[1].result());
        assert_eq!(sum(&idem), 3);
    });
}

#[test]
fn a_purge_leaves_what_took_an_expired_ones_place() {
    explore(|| {
        let (idem, clock) = store();
        assert_eq!(run(&idem, "a").unwrap(), Outcome::Created(1));
        clock.advance(Duration::from_millis(10));
        let purging = idem.clone();
        let purge = thread::spawn(move || block_on(purging.purge(10)).unwrap().removed);
        assert_eq!(run(&idem, "a").unwrap(), Outcome::Created(2));
        assert!(purge.join().unwrap() <= 1);
        assert_eq!(run(&idem, "a").unwrap(), Outcome::Replayed(2));
        assert_eq!(block_on(idem.purge(10)).unwrap().removed, 0);
    });
}

#[test]
fn effects_that_read_what_the_other_writes_never_see_half() {
    explore(|| {
        let (idem, _) = store();
        let moves = |name: &'static str, from: &'static str, to: &'static str| {
            let idem = idem.clone();
            let effect = move |tx: &mut MemoryTransaction| {
                let count = tx.get(from.as_bytes())?.map_or(0, |value| value.len());
                tx.put(to.as_bytes(), &vec![1; count + 1])?;
                Ok(count)
            };
            let run = move || block_on(idem.execute(&request(name), effect)).unwrap();
            Box::new(run) as Box<dyn FnOnce() -> Outcome<usize> + Send>
        };
        let mut read: Vec<_> = together(vec![moves("1", "x", "y"), moves("2", "y", "x")])
            .into_iter()
            .filter_map(Outcome::result)
            .collect();
        read.sort_unstable();
        // Whoever came second saw what the first one wrote.
        assert_eq!(read, [0, 1]);
    });
}

#[test]
fn a_call_that_meets_the_closing_is_answered() {
    explore(|| {
        let (idem, _) = store();
        let caller = thread::spawn(runs(&idem, "a"));
        let closing = idem.clone();
        let close = thread::spawn(move || block_on(closing.close()).unwrap());
        close.join().unwrap();
        match caller.join().unwrap() {
            Ok(outcome) => assert_eq!(outcome, Outcome::Created(1)),
            Err(error) => assert!(matches!(error.kind(), ErrorKind::Closed), "{error:?}"),
        }
        assert!(matches!(run(&idem, "b").unwrap_err().kind(), ErrorKind::Closed));
    });
}

#[test]
fn tokens_grow_whoever_claims() {
    explore(|| {
        let (idem, _) = store();
        let claims = |name: &'static str| {
            let store = idem.clone();
            let claim = move || {
                let claim = block_on(store.claim::<u64>(&request(name), Duration::from_millis(5)));
                let Claim::Acquired(lease) = claim.unwrap() else { panic!("the key is free") };
                let token = lease.token();
                lease.abandon();
                token
            };
            Box::new(claim) as Box<dyn FnOnce() -> Token + Send>
        };
        let tokens: BTreeSet<_> =
            together(vec![claims("a"), claims("b"), claims("c")]).into_iter().collect();
        assert_eq!(tokens.len(), 3, "no two holders have one token");
    });
}
