//! Servers and clients that are killed at random instants: this test runs itself as a child.
//!
//! The child says what it begins and what it was told; that is held against what is there afterwards. The environment
//! variable `IDEM_ROUNDS` says how often, and `IDEM_SEED`, which is printed, at which instants.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    time::Duration,
};

use idem_conformance::{
    chance::{rounds, seed},
    child::{Child, hear, say},
};
use idem_core::{Certainty, Claim, EffectError, Idem, Outcome, Request, Transaction};
use idem_redis::{RedisTransaction, testing::Server};
use tokio::sync::watch;

use crate::{faults::patiently, setup::*};

const URL: &str = "IDEM_REDIS_TEST_URL";
const ROUND: &str = "IDEM_REDIS_TEST_ROUND";
/// Longer than this test takes, however slow the machine.
const LEASE: Duration = Duration::from_secs(3600);
/// How many servers there are at a time, since most of a round is waiting.
const LANES: u64 = 4;

/// Writes a value under the key's name, and counts itself.
fn count_itself(tx: &mut RedisTransaction, name: &str) -> Result<u64, EffectError> {
    tx.put(name.as_bytes(), name.as_bytes())?;
    add(tx, "total")?;
    Ok(7)
}

fn lasting(name: &str) -> Request {
    request(name, "p").retain(LEASE)
}

async fn run(idem: &Front, name: &str) -> Result<Outcome<u64>, idem_core::Error> {
    let own = name.to_string();
    idem.execute(&lasting(name), move |tx| count_itself(tx, &own)).await
}

/// The child of the test below; nothing without it. It goes on until it reads a line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let (Ok(url), Ok(round)) = (env::var(URL), env::var(ROUND)) else { return };
    let (end, ends) = watch::channel(false);
    std::thread::spawn(move || {
        hear();
        end.send(true).ok();
    });
    // Two stores, one of which gives up sooner than the other.
    let opened = async |millis| {
        let open = async || hasty(millis).open(&url).await;
        Idem::new(patiently("the server", open).await)
    };
    let stores = [opened(60).await, opened(150).await];
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..5 {
        callers.spawn(run_until(
            ends.clone(),
            stores[caller % 2].clone(),
            format!("{round}-{caller}"),
        ));
    }
    callers.spawn(claim_until(ends, stores[1].clone(), format!("{round}-lease")));
    callers.join_all().await;
    say("ended");
}

/// What is said of an error.
fn word(certainty: Certainty) -> &'static str {
    match certainty {
        Certainty::NothingDone => "nothing",
        Certainty::Done => "done",
        _ => "unknown",
    }
}

async fn run_until(ends: watch::Receiver<bool>, idem: Front, caller: String) {
    for number in 0.. {
        if *ends.borrow() {
            return;
        }
        let name = format!("{caller}-{number}");
        say(&format!("begun {name}"));
        match run(&idem, &name).await {
            Ok(outcome) => {
                assert_eq!(outcome, Outcome::Created(7), "{name}");
                say(&format!("told {name}"));
            }
            Err(error) => say(&format!("{} {name}", word(error.certainty()))),
        }
    }
}

async fn claim_until(ends: watch::Receiver<bool>, idem: Front, caller: String) {
    for number in 0.. {
        if *ends.borrow() {
            return;
        }
        let name = format!("{caller}-{number}");
        match idem.claim::<u64>(&lasting(&name), LEASE).await {
            Ok(claim) => {
                let lease = claim.lease().unwrap();
                say(&format!("leased {name} {}", lease.token()));
                lease.abandon();
            }
            Err(error) if error.certainty() == Certainty::NothingDone => {
                say(&format!("not-leased {name}"))
            }
            Err(_) => {}
        }
    }
}

/// What a child has said.
#[derive(Default)]
struct Said {
    /// The last word on each key.
    keys: BTreeMap<String, String>,
    leased: BTreeSet<String>,
    not_leased: BTreeSet<String>,
    told: usize,
    last_token: u64,
}

impl Said {
    fn hear(&mut self, line: &str) {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            [word @ ("begun" | "told" | "nothing" | "done" | "unknown"), name] => {
                self.keys.insert(name.to_string(), word.to_string());
                self.told += usize::from(word == "told");
            }
            ["leased", name, token] => {
                self.leased.insert(name.to_string());
                self.grows(token.parse().unwrap());
            }
            ["not-leased", name] => {
                self.not_leased.insert(name.to_string());
            }
            _ => {}
        }
    }

    fn grows(&mut self, token: u64) {
        assert!(token > self.last_token, "{token} came after {}", self.last_token);
        self.last_token = token;
    }

    fn hear_more(&mut self, child: &Child, told: usize) {
        let enough = self.told + told;
        while self.told < enough {
            self.hear(&child.line().expect("the child goes on"));
        }
    }
}

/// One server and its life so far.
struct Lane {
    number: u64,
    server: Server,
    random: fastrand::Rng,
    last_token: u64,
    /// How many keys have counted themselves.
    counted: u64,
    all: BTreeSet<String>,
}

impl Lane {
    /// Listens to a child until it, or its server, is killed at a random instant.
    fn one_life(&mut self, round: u64) -> Said {
        let mut said = Said { last_token: self.last_token, ..Said::default() };
        let variables = [(URL, self.server.url()), (ROUND, format!("{}-{round}", self.number))];
        let mut child = Child::start("crash::child", variables);
        said.hear_more(&child, self.random.usize(1..=30));
        std::thread::sleep(Duration::from_micros(self.random.u64(..3_000)));
        let rest = if self.random.bool() {
            child.kill()
        } else {
            self.server.kill().unwrap();
            self.server.restart().unwrap();
            said.hear_more(&child, 1);
            child.go_on();
            child.ends()
        };
        rest.iter().for_each(|line| said.hear(line));
        said
    }

    async fn check(&mut self, idem: &Front, said: Said) {
        let before = count(idem, "total").await;
        let mut there = self.counted;
        for (name, word) in &said.keys {
            let was_there = check(idem, name, word).await;
            there += u64::from(was_there);
            self.counted += 1;
        }
        assert_eq!(before, there, "each key counted itself once, if it is there");
        assert_eq!(count(idem, "total").await, self.counted, "and now all do");
        self.last_token = said.last_token;
        self.check_leases(idem, &said).await;
        self.all.extend(said.keys.into_keys());
    }

    /// A lease that was told is held, one that was not granted is not; and the next one has a larger token.
    async fn check_leases(&mut self, idem: &Front, said: &Said) {
        for name in &said.leased {
            let claim = idem.claim::<u64>(&lasting(name), LEASE).await.unwrap();
            assert!(matches!(claim, Claim::InProgress { .. }), "{name}: {claim:?}");
        }
        for name in &said.not_leased {
            let lease = idem.claim::<u64>(&lasting(name), LEASE).await.unwrap().lease();
            let lease = lease.unwrap_or_else(|| panic!("{name} is held, and nothing was done"));
            assert_eq!(lease.took_over(), None, "{name}");
            self.grows(&lease.token().as_u64());
            lease.abandon();
        }
        let next = format!("next-{}", self.all.len());
        let lease = idem.claim::<u64>(&lasting(&next), LEASE).await.unwrap().lease().unwrap();
        self.grows(&lease.token().as_u64());
        lease.release().await.unwrap();
    }

    fn grows(&mut self, token: &u64) {
        assert!(*token > self.last_token, "{token} came after {}", self.last_token);
        self.last_token = *token;
    }
}

/// A key is there with its effect or not at all, and as it was told. Asked again, it is settled. Returns whether it was
/// there.
async fn check(idem: &Front, name: &str, word: &str) -> bool {
    let receipt = idem.receipt(&key(name)).await.unwrap();
    let value = idem.value(&space(), name.as_bytes()).await.unwrap();
    assert_eq!(receipt.is_some(), value.is_some(), "{name}: {word}");
    match word {
        "told" | "done" => assert!(receipt.is_some(), "{name} was told"),
        "nothing" => assert!(receipt.is_none(), "{name} is there, and nothing was done"),
        _ => {}
    }
    let expected = if receipt.is_some() { Outcome::Replayed(7) } else { Outcome::Created(7) };
    assert_eq!(run(idem, name).await.unwrap(), expected, "{name}: {word}");
    let value = idem.value(&space(), name.as_bytes()).await.unwrap();
    assert_eq!(value.as_deref(), Some(name.as_bytes()));
    receipt.is_some()
}

async fn lane(number: u64, seed: u64, rounds: u64) -> BTreeMap<String, usize> {
    let server = Server::builder().arg("--appendonly", "yes").arg("--appendfsync", "always");
    let mut lane = Lane {
        number,
        server: server.start().unwrap(),
        random: fastrand::Rng::with_seed(seed),
        last_token: 0,
        counted: 0,
        all: BTreeSet::new(),
    };
    let mut words = BTreeMap::new();
    for round in 0..rounds {
        let said;
        (lane, said) = tokio::task::spawn_blocking(move || {
            let said = lane.one_life(round);
            (lane, said)
        })
        .await
        .unwrap();
        said.keys.values().for_each(|word| *words.entry(word.clone()).or_default() += 1);
        let idem = open(&lane.server.url()).await;
        lane.check(&idem, said).await;
    }
    // Later rounds have left the keys of earlier ones alone.
    let idem = open(&lane.server.url()).await;
    for name in &lane.all {
        assert!(check(&idem, name, "told").await);
    }
    assert_eq!(count(&idem, "total").await, lane.counted);
    words
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whenever_a_server_or_a_client_is_killed_what_was_told_is_there_and_the_rest_whole_or_not()
{
    let (rounds, seed) = (rounds(100) as u64, seed());
    let lanes: Vec<_> = (0..LANES)
        .map(|number| {
            let share = (rounds + number) / LANES;
            tokio::spawn(lane(number, seed.wrapping_add(number), share))
        })
        .collect();
    for lane in lanes {
        println!("keys by the last word on them: {:?}", lane.await.unwrap());
    }
}
