//! How many commands a call sends, as the server counts them.

use idem_core::{
    Change, Outcome, Transaction,
    consumer::{Marked, Recorder},
};
use idem_redis::{RedisStore, testing::Server};

use crate::setup::*;

/// What scripts call, and what new connections, the harness and this function itself send.
const OTHERS: [&str; 12] = [
    "get",
    "set",
    "del",
    "exists",
    "getrange",
    "incr",
    // These two come along with a look, which GETEX is.
    "time",
    "echo",
    "info",
    "ping",
    "client|setinfo",
    "config|resetstat",
];

/// How many commands clients have sent.
fn commands(server: &Server) -> u64 {
    let stats: String = server.query(&["INFO", "commandstats"]).unwrap();
    let lines = stats.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(':'));
    let calls = lines.filter(|(name, _)| !OTHERS.contains(name)).map(|(_, stats)| {
        let calls = stats.strip_prefix("calls=").and_then(|rest| rest.split(',').next());
        calls.unwrap().parse::<u64>().unwrap()
    });
    calls.sum()
}

/// Asserts that `call` sends so many commands.
pub(crate) async fn costs<T>(
    server: &Server,
    commands_sent: u64,
    call: impl Future<Output = T>,
) -> T {
    let before = commands(server);
    let answer = call.await;
    assert_eq!(commands(server) - before, commands_sent, "commands sent");
    answer
}

pub(crate) async fn warm(server: &Server, speculative: bool) -> Front {
    let idem = open_with(RedisStore::builder().speculative(speculative), &server.url()).await;
    put_first(&idem, "warm").await;
    assert_eq!(idem.mark_processed("warm", "1").await.unwrap(), Marked::First);
    assert_eq!(added(&idem, "warm-read").await.unwrap(), Outcome::Created(1));
    for name in ["warm", "warm-read"] {
        assert!(idem.forget(&key(name)).await.unwrap());
    }
    claimed(&idem, "warm-claim").await;
    idem
}

#[tokio::test]
async fn an_execution_looks_and_commits() {
    let server = Server::start().unwrap();
    let idem = warm(&server, false).await;
    assert_eq!(costs(&server, 2, put(&idem, "k")).await.unwrap(), Outcome::Created(1));
    assert_eq!(costs(&server, 1, put(&idem, "k")).await.unwrap(), Outcome::Replayed(1));
    // It looks, runs in vain, looks with the value, commits.
    assert_eq!(costs(&server, 3, added(&idem, "n")).await.unwrap(), Outcome::Created(1));
    assert_eq!(costs(&server, 1, added(&idem, "n")).await.unwrap(), Outcome::Replayed(1));
    let other = request("k", "other");
    let other = idem.execute(&other, |tx| put_one(tx, "k"));
    assert_eq!(costs(&server, 1, other).await.unwrap(), Outcome::Conflict);
}

#[tokio::test]
async fn a_speculative_execution_commits_at_once() {
    let server = Server::start().unwrap();
    let idem = warm(&server, true).await;
    assert_eq!(costs(&server, 1, put(&idem, "k")).await.unwrap(), Outcome::Created(1));
    assert_eq!(costs(&server, 1, put(&idem, "k")).await.unwrap(), Outcome::Replayed(1));
    // It runs in vain, looks with the value, commits.
    assert_eq!(costs(&server, 2, added(&idem, "n")).await.unwrap(), Outcome::Created(1));
    assert_eq!(costs(&server, 1, added(&idem, "n")).await.unwrap(), Outcome::Replayed(1));
    let other = request("k", "other");
    let other = idem.execute(&other, |tx| put_one(tx, "k"));
    assert_eq!(costs(&server, 1, other).await.unwrap(), Outcome::Conflict);
}

#[tokio::test]
async fn reads_that_an_effect_asks_for_together_are_fetched_together() {
    let server = Server::start().unwrap();
    let idem = warm(&server, false).await;
    let request = request("k", "p");
    let effect = |tx: &mut idem_redis::RedisTransaction| {
        // Passing on no error, it asks for all three in its first run.
        let read: Vec<_> = [b"a", b"b", b"c"].iter().map(|name| tx.get(*name)).collect();
        for value in read {
            assert_eq!(value?, None);
        }
        Ok(7)
    };
    let call = idem.execute(&request, effect);
    assert_eq!(costs(&server, 3, call).await.unwrap(), Outcome::Created(7));
}

#[tokio::test]
async fn a_mark_and_a_lease_need_no_look() {
    let server = Server::start().unwrap();
    let idem = warm(&server, false).await;
    let mark = || idem.mark_processed("billing", "7");
    assert_eq!(costs(&server, 1, mark()).await.unwrap(), Marked::First);
    assert_eq!(costs(&server, 1, mark()).await.unwrap(), Marked::Again);
    assert!(costs(&server, 1, idem.is_processed("billing", "7")).await.unwrap());
    let claim = costs(&server, 1, claimed(&idem, "k")).await;
    let longer = Change::Extend { lease: lease(2 * LEASE) };
    let extended = costs(&server, 1, on_claim(&idem, "k", &claim, longer)).await.unwrap();
    let claim = extended.after.unwrap();
    let released = costs(&server, 1, on_claim(&idem, "k", &claim, Change::Remove)).await;
    assert!(released.unwrap().ran);
    let claim = claimed(&idem, "k").await;
    let complete = on_claim(&idem, "k", &claim, completion(&claim, "1"));
    assert!(costs(&server, 1, complete).await.unwrap().ran);
}

#[tokio::test]
async fn reading_forgetting_and_sweeping_cost_what_they_must() {
    let server = Server::start().unwrap();
    let idem = warm(&server, false).await;
    put_first(&idem, "k").await;
    assert!(costs(&server, 1, idem.receipt(&key("k"))).await.unwrap().is_some());
    assert_eq!(costs(&server, 1, count(&idem, "k")).await, 1);
    assert!(costs(&server, 2, idem.forget(&key("k"))).await.unwrap());
    assert!(!costs(&server, 1, idem.forget(&key("k"))).await.unwrap());
    // A SCAN, and a look for each record that is left: a mark and a claim.
    assert_eq!(costs(&server, 3, idem.list(None, 10)).await.unwrap().records.len(), 2);
}
