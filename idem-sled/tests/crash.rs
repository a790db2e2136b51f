//! Processes that are killed at random instants, on one folder: this test runs itself as a child.
//!
//! The child says what it begins and what it was told; that is held against what is there afterwards. The environment
//! variable `IDEM_ROUNDS` says how often, and `IDEM_SEED`, which is printed, at which instants.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]
#![cfg(unix)]

mod common;

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    path::Path,
    time::Duration,
};

use common::{opened, random, request, space};
use idem_conformance::{
    chance::rounds,
    child::{Child, say},
};
use idem_core::{Claim, EffectError, Error, Idem, Outcome, Transaction};
use idem_sled::{SledStore, SledTransaction};
use tempfile::TempDir;
use tokio::task::JoinSet;

const FOLDER: &str = "IDEM_SLED_TEST_FOLDER";
const ROUND: &str = "IDEM_SLED_TEST_ROUND";

/// Longer than this test takes.
const LEASE: Duration = Duration::from_secs(3600);

/// How long the value of a key is: some are too long for the engine's log.
fn length(number: usize) -> usize {
    if number % 40 == 39 { 200_000 } else { 100 }
}

/// Writes a value to the space, its length to a tree, and counts itself in both if its name says so.
async fn put(idem: &Idem<SledStore>, name: &str, length: usize) -> Result<Outcome<usize>, Error> {
    let own = name.to_string();
    let effect = move |tx: &mut SledTransaction| {
        tx.put(own.as_bytes(), &vec![7; length])?;
        tx.tree("lengths")?.insert(&own, length.to_string())?;
        if own.starts_with("count") {
            count(tx)?;
        }
        Ok(length)
    };
    idem.execute(&request(name), effect).await
}

fn count(tx: &mut SledTransaction) -> Result<(), EffectError> {
    let in_space = 1 + number(tx.get(b"total")?.as_deref())?;
    tx.put(b"total", in_space.to_string().as_bytes())?;
    let in_tree = 1 + number(tx.tree("totals")?.get("total")?.as_deref())?;
    tx.tree("totals")?.insert("total", in_tree.to_string())?;
    Ok(())
}

fn number(digits: Option<&[u8]>) -> Result<usize, EffectError> {
    Ok(std::str::from_utf8(digits.unwrap_or(b"0"))?.parse()?)
}

/// The child of the test below; nothing without it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let (Ok(folder), Ok(round)) = (env::var(FOLDER), env::var(ROUND)) else { return };
    let idem = opened(Path::new(&folder)).await.unwrap();
    let mut callers = JoinSet::new();
    for caller in ["put-a", "put-b", "put-c", "put-d", "count-a", "count-b"] {
        callers.spawn(commit_for_ever(idem.clone(), format!("{caller}-{round}")));
    }
    callers.spawn(claim_for_ever(idem, format!("lease-{round}")));
    callers.join_all().await;
}

async fn commit_for_ever(idem: Idem<SledStore>, caller: String) {
    for number in 0.. {
        let (name, length) = (format!("{caller}-{number}"), length(number));
        say(&format!("begun {name} {length}"));
        assert_eq!(put(&idem, &name, length).await.unwrap(), Outcome::Created(length));
        say(&format!("told {name}"));
    }
}

async fn claim_for_ever(idem: Idem<SledStore>, caller: String) {
    for number in 0.. {
        let name = format!("{caller}-{number}");
        let lease = idem.claim::<usize>(&request(&name), LEASE).await.unwrap().lease().unwrap();
        say(&format!("leased {name} {}", lease.token()));
        lease.abandon();
    }
}

/// What children have said.
#[derive(Default)]
struct Said {
    /// The lengths of the keys that were begun.
    begun: BTreeMap<String, usize>,
    told: BTreeSet<String>,
    leased: BTreeSet<String>,
    last_token: u64,
}

impl Said {
    fn hear(&mut self, line: &str) {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["begun", name, length] => {
                self.begun.insert(name.to_string(), length.parse().unwrap());
            }
            ["told", name] => {
                self.told.insert(name.to_string());
            }
            ["leased", name, token] => {
                self.leased.insert(name.to_string());
                self.grows(token.parse().unwrap());
            }
            _ => {}
        }
    }

    fn grows(&mut self, token: u64) {
        assert!(token > self.last_token, "{token} came after {}", self.last_token);
        self.last_token = token;
    }
}

/// A key that was told is there with its effect, any other that was begun with it or not at all. Asked again, each is
/// settled. Returns whether it was there.
async fn check(idem: &Idem<SledStore>, name: &str, length: usize, told: bool) -> bool {
    let receipt = idem.receipt(request(name).key()).await.unwrap();
    assert!(receipt.is_some() || !told, "{name} was told");
    let expected = match receipt {
        Some(receipt) => {
            assert_eq!(receipt.result, length.to_string(), "{name}");
            Outcome::Replayed(length)
        }
        None => {
            assert!(
                !has_effect(idem, name, length).await,
                "{name} has an effect without a receipt"
            );
            Outcome::Created(length)
        }
    };
    assert_eq!(put(idem, name, length).await.unwrap(), expected, "{name}");
    assert!(has_effect(idem, name, length).await, "{name} has a receipt without its effect");
    matches!(expected, Outcome::Replayed(_))
}

/// Checks all of them at a time; says which were there.
async fn check_all(
    idem: &Idem<SledStore>,
    begun: &BTreeMap<String, usize>,
    told: &BTreeSet<String>,
) -> Vec<(String, bool)> {
    let checks = begun.iter().map(|(name, length)| {
        let (idem, name, length, told) = (idem.clone(), name.clone(), *length, told.contains(name));
        tokio::spawn(async move {
            let was_there = check(&idem, &name, length, told).await;
            (name, was_there)
        })
    });
    let mut checked = Vec::new();
    for check in checks.collect::<Vec<_>>() {
        checked.push(check.await.unwrap());
    }
    checked
}

/// Whether the effect of a key is there; it must not be in part.
async fn has_effect(idem: &Idem<SledStore>, name: &str, length: usize) -> bool {
    let value = idem.value(&space(), name.as_bytes()).await.unwrap();
    let lengths = idem.store().db().unwrap().open_tree("lengths").unwrap();
    match (value, lengths.get(name).unwrap()) {
        (None, None) => false,
        (Some(value), Some(in_tree)) => {
            assert!(value == vec![7; length], "{name}");
            assert_eq!(in_tree, length.to_string().as_bytes(), "{name}");
            true
        }
        (value, in_tree) => panic!("{name}: {:?}, {in_tree:?}", value.map(|value| value.len())),
    }
}

/// The count in the space, which is that in the tree.
async fn total(idem: &Idem<SledStore>) -> usize {
    let in_space = idem.value(&space(), b"total").await.unwrap();
    let in_tree = idem.store().db().unwrap().open_tree("totals").unwrap().get("total").unwrap();
    assert_eq!(in_space.as_deref(), in_tree.as_deref());
    number(in_tree.as_deref()).unwrap()
}

/// A lease that was told is held; the next has a larger token.
async fn check_leases(idem: &Idem<SledStore>, said: &mut Said, round: usize) {
    for name in &said.leased {
        let claim = idem.claim::<usize>(&request(name), LEASE).await.unwrap();
        assert!(matches!(claim, Claim::InProgress { .. }), "{name}: {claim:?}");
    }
    let next = request(format!("next-{round}"));
    let lease = idem.claim::<usize>(&next, LEASE).await.unwrap().lease().unwrap();
    said.grows(lease.token().as_u64());
    lease.abandon();
}

/// Listens to a child of that round until it is killed, at a random instant.
fn one_life(folder: &Path, round: usize, random: &mut fastrand::Rng, said: &mut Said) {
    let folder = folder.to_str().unwrap().to_string();
    let child = Child::start("child", [(FOLDER, folder), (ROUND, round.to_string())]);
    let enough = said.told.len() + random.usize(1..=20);
    while said.told.len() < enough {
        said.hear(&child.line().expect("the child goes on"));
    }
    std::thread::sleep(Duration::from_micros(random.u64(..3_000)));
    child.kill().iter().for_each(|line| said.hear(line));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_told_before_a_kill_is_there_after_it_and_the_rest_is_whole_or_not_there() {
    let mut random = random();
    let folder = TempDir::new().unwrap();
    let (mut all, mut counted, mut there, mut whole) = (Said::default(), 0, 0, 0);
    for round in 0..rounds(100) {
        let mut said = Said { last_token: all.last_token, ..Said::default() };
        one_life(folder.path(), round, &mut random, &mut said);
        let idem = opened(folder.path()).await.unwrap();
        let before = total(&idem).await;
        for (name, was_there) in check_all(&idem, &said.begun, &said.told).await {
            whole += usize::from(was_there && !said.told.contains(&name));
            let counts = usize::from(name.starts_with("count"));
            counted += counts;
            there += if was_there { counts } else { 0 };
        }
        assert_eq!(before, there, "each key counted itself once, if it is there");
        assert_eq!(total(&idem).await, counted, "and now all do");
        there = counted;
        check_leases(&idem, &mut said, round).await;
        idem.close().await.unwrap();
        all.last_token = said.last_token;
        all.begun.extend(said.begun);
        all.told.extend(said.told);
    }
    let (begun, told) = (all.begun.len(), all.told.len());
    println!("{begun} keys begun, {told} told, {whole} of the others whole");
    // Later rounds have left the keys of earlier ones alone.
    let idem = opened(folder.path()).await.unwrap();
    let names = all.begun.keys().cloned().collect();
    check_all(&idem, &all.begun, &names).await;
    assert_eq!(total(&idem).await, counted);
}
