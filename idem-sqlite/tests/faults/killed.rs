//! Processes that are killed at any instant, over and over on one growing file.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use idem_conformance::{
    chance::rounds,
    child::{Child, hear, say},
};
use idem_core::{Claim, EffectError, Idem, Key, Outcome, Transaction};
use idem_sqlite::{SqliteStore, SqliteTransaction, Synchronous};
use rusqlite::Connection;
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::{chance, column, opened, orders, request, variables};

/// How many callers a child has. The last ones claim their keys first.
const CALLERS: usize = 6;
const CLAIMING: usize = 2;
const LEASE: Duration = Duration::from_secs(3600);

/// What the key of that name adds to the sum.
fn quantity(name: &str) -> i64 {
    name.bytes().map(i64::from).sum()
}

/// An order in the user's own tables and in the portable space, and their sums in both.
fn order(tx: &mut SqliteTransaction, name: &str) -> Result<i64, EffectError> {
    let quantity = quantity(name);
    tx.execute("INSERT INTO orders VALUES (?1, ?2)", (name, quantity))?;
    tx.execute("UPDATE total SET sum = sum + ?1", [quantity])?;
    tx.put(name.as_bytes(), quantity.to_string().as_bytes())?;
    let sum = match tx.get(b"sum")? {
        Some(sum) => std::str::from_utf8(&sum)?.parse()?,
        None => 0,
    };
    tx.put(b"sum", (sum + quantity).to_string().as_bytes())?;
    if name.ends_with('7') {
        // Now and then so much that the log is copied and starts over.
        tx.put(b"large", &vec![7; 400_000])?;
    }
    Ok(quantity)
}

/// The child of the test below; nothing without it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Some((path, orders)) = orders() else { return };
    std::thread::spawn(hear);
    let (round, synchronous) = orders.split_once(' ').unwrap();
    let synchronous = match synchronous {
        "full" => Synchronous::Full,
        _ => Synchronous::Normal,
    };
    let idem = opened(&path, synchronous).await;
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        callers.spawn(call_for_ever(idem.clone(), round.to_string(), caller));
    }
    callers.join_all().await;
}

async fn call_for_ever(idem: Idem<SqliteStore>, round: String, caller: usize) {
    for number in 0.. {
        let name = format!("{round}-{caller}-{number}");
        say(&format!("starts {name}"));
        let (request, effect_name) = (request(&name), name.clone());
        let effect = move |tx: &mut SqliteTransaction| order(tx, &effect_name);
        if caller < CALLERS - CLAIMING {
            let outcome = idem.execute(&request, effect).await.unwrap();
            assert_eq!(outcome, Outcome::Created(quantity(&name)));
        } else {
            let lease = idem.claim(&request, LEASE).await.unwrap().lease().unwrap();
            say(&format!("token {caller} {}", lease.token()));
            assert_eq!(lease.complete_with(effect).await.unwrap(), quantity(&name));
        }
        say(&format!("told {name}"));
    }
}

/// What the children have said until now.
#[derive(Default)]
struct Said {
    /// In this round.
    started: BTreeSet<String>,
    told: BTreeSet<String>,
    /// The last token, of each caller in this round and of all that were before.
    tokens: BTreeMap<String, u64>,
    last_token: u64,
}

impl Said {
    /// Takes note of a line; whether it tells of a key.
    fn note(&mut self, line: &str) -> bool {
        if let Some(name) = line.strip_prefix("starts ") {
            self.started.insert(name.to_string());
        }
        if let Some((caller, token)) =
            line.strip_prefix("token ").and_then(|line| line.split_once(' '))
        {
            let token = token.parse().unwrap();
            assert!(token > self.last_token, "a token of an earlier round is larger");
            let before = self.tokens.insert(caller.to_string(), token);
            assert!(before.is_none_or(|before| token > before), "a token goes back");
        }
        let Some(name) = line.strip_prefix("told ") else { return false };
        self.told.insert(name.to_string());
        true
    }

    /// The round is over, and its last token was followed by this one.
    fn end_round(&mut self, token: u64) {
        self.last_token = self.tokens.values().copied().fold(self.last_token, u64::max);
        assert!(token > self.last_token, "a token after a kill goes back");
        self.last_token = token;
        self.tokens.clear();
        self.started.clear();
    }
}

/// Runs a child, kills it at any instant, and takes note of what it has said.
fn kill_one(chance: &mut fastrand::Rng, path: &Path, round: usize, said: &mut Said) {
    let synchronous = if round.is_multiple_of(2) { "full" } else { "normal" };
    let child = Child::start("killed::child", variables(path, &format!("{round} {synchronous}")));
    let enough = if chance.usize(..30) == 0 { 200 } else { chance.usize(..20) };
    let mut count = 0;
    while count < enough {
        count += usize::from(said.note(&child.line().expect("the child goes on for ever")));
    }
    // Not at once, so that it is not always just after an answer; or, where there was none, while it opens.
    let longest = if enough == 0 { 20_000 } else { 2_000 };
    std::thread::sleep(Duration::from_micros(chance.usize(..longest).try_into().unwrap()));
    for line in child.kill() {
        said.note(&line);
    }
}

/// All effects have receipts, all receipts have effects, everywhere, and the sums are theirs. Returns their keys.
fn check_file(path: &Path, said: &Said) -> BTreeSet<String> {
    let set = |sql: &str| column::<String>(path, sql).into_iter().collect::<BTreeSet<_>>();
    let receipts = set("SELECT key FROM idem_records WHERE state = 'completed'");
    assert_eq!(set("SELECT name FROM orders"), receipts);
    let values = "SELECT CAST(name AS TEXT) FROM idem_values WHERE name NOT IN (CAST('sum' AS BLOB), CAST('large' AS BLOB))";
    assert_eq!(set(values), receipts);
    let lost: Vec<_> = said.told.difference(&receipts).collect();
    assert!(lost.is_empty(), "lost: {lost:?}");
    let sum: i64 = receipts.iter().map(|name| quantity(name)).sum();
    assert_eq!(column::<i64>(path, "SELECT sum FROM total"), [sum]);
    assert_eq!(column::<i64>(path, "SELECT coalesce(sum(quantity), 0) FROM orders"), [sum]);
    receipts
}

async fn check_sum(idem: &Idem<SqliteStore>, receipts: &BTreeSet<String>) {
    let sum: i64 = receipts.iter().map(|name| quantity(name)).sum();
    let stored = idem.value(&request("any").key().space(), b"sum").await.unwrap();
    assert_eq!(
        stored.map_or("0".into(), |stored| String::from_utf8(stored.to_vec()).unwrap()),
        sum.to_string()
    );
}

/// What was told replays; what was not replays if its effect is there, and else runs or is held.
async fn ask(idem: &Idem<SqliteStore>, names: &BTreeSet<String>, receipts: &BTreeSet<String>) {
    for name in names {
        let effect_name = name.clone();
        let effect = move |tx: &mut SqliteTransaction| order(tx, &effect_name);
        match idem.execute(&request(name), effect).await.unwrap() {
            Outcome::Replayed(quantity) => {
                assert!(receipts.contains(name), "{name} replays without its effect");
                assert_eq!(quantity, self::quantity(name), "{name}");
            }
            Outcome::Created(_) => assert!(!receipts.contains(name), "{name} ran twice"),
            Outcome::InProgress { .. } => {
                assert!(!receipts.contains(name), "{name} is held and has its effect");
                assert!(is_claiming(name), "{name} is held, and nobody claims it");
            }
            Outcome::Conflict => panic!("{name}: nobody asks with another fingerprint"),
        }
    }
}

fn is_claiming(name: &str) -> bool {
    let caller: usize = name.split('-').nth(1).unwrap().parse().unwrap();
    caller >= CALLERS - CLAIMING
}

async fn next_token(idem: &Idem<SqliteStore>, round: usize) -> u64 {
    let key = Key::new("north", "token", round.to_string()).unwrap();
    let request = idem_core::Request::new(key);
    let Claim::Acquired(lease) = idem.claim::<()>(&request, LEASE).await.unwrap() else {
        panic!("a new key is free");
    };
    let token = lease.token().as_u64();
    lease.release().await.unwrap();
    token
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_told_before_a_kill_is_there_after_it_and_the_rest_is_whole_or_not_there() {
    let mut chance = chance();
    // A file is read as a whole in each of its rounds: many rounds take more than one file.
    let mut left = rounds(100);
    while left > 0 {
        let rounds = left.min(100);
        kill_over_and_over(&mut chance, rounds).await;
        left -= rounds;
    }
}

/// So many rounds on one growing file.
async fn kill_over_and_over(chance: &mut fastrand::Rng, rounds: usize) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    let tables = "CREATE TABLE orders (name TEXT PRIMARY KEY, quantity INTEGER);
                  CREATE TABLE total (sum INTEGER); INSERT INTO total VALUES (0)";
    Connection::open(&path).unwrap().execute_batch(tables).unwrap();
    let mut said = Said::default();
    for round in 0..rounds {
        kill_one(chance, &path, round, &mut said);
        let idem = opened(&path, Synchronous::Normal).await;
        let receipts = check_file(&path, &said);
        check_sum(&idem, &receipts).await;
        ask(&idem, &said.started, &receipts).await;
        said.end_round(next_token(&idem, round).await);
        idem.close().await.unwrap();
    }
    assert!(said.told.len() >= rounds, "the children were told of too little to say much");
    let receipts = check_file(&path, &said);
    let idem = opened(&path, Synchronous::Normal).await;
    ask(&idem, &said.told, &receipts).await;
    check_sum(&idem, &receipts).await;
}
