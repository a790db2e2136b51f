//! Servers that end and come back: what was acknowledged is there, and the store needs no reopening.

use std::time::Duration;

use idem_core::{
    Certainty, Error, Outcome,
    consumer::{Marked, Recorder},
};
use idem_redis::{RedisStore, testing::Server};

use crate::setup::*;

fn durable() -> Server {
    let builder = Server::builder().arg("--appendonly", "yes").arg("--appendfsync", "always");
    builder.start().unwrap()
}

fn end(server: &mut Server, by_kill: bool) {
    if by_kill { server.kill() } else { server.stop() }.unwrap();
}

async fn run(idem: &Front, name: String) -> Result<Outcome<u64>, Error> {
    let effect_name = name.clone();
    idem.execute(&request(&name, "p"), move |tx| add(tx, &effect_name)).await
}

#[tokio::test]
async fn what_was_acknowledged_replays_after_a_restart() {
    for by_kill in [false, true] {
        let mut server = durable();
        let idem = open(&server.url()).await;
        for number in 0..20 {
            assert_eq!(run(&idem, number.to_string()).await.unwrap(), Outcome::Created(1));
        }
        assert_eq!(idem.mark_processed("billing", "7").await.unwrap(), Marked::First);
        let claim = claimed(&idem, "c").await;
        end(&mut server, by_kill);
        server.restart().unwrap();
        for number in 0..20 {
            assert_eq!(run(&idem, number.to_string()).await.unwrap(), Outcome::Replayed(1));
            assert_eq!(count(&idem, &number.to_string()).await, 1);
        }
        assert_eq!(idem.mark_processed("billing", "7").await.unwrap(), Marked::Again);
        assert!(on_claim(&idem, "c", &claim, completion(&claim, "1")).await.unwrap().ran);
        let next = claimed(&idem, "d").await;
        assert!(token(Some(&next)) > token(Some(&claim)));
    }
}

/// Runs keys until the server has been restarted, and some more; says what was told of each.
async fn through_a_restart(
    idem: Front,
    caller: usize,
    restarted: tokio::sync::watch::Receiver<bool>,
) -> Vec<(String, Result<Outcome<u64>, Error>)> {
    let (mut told, mut after) = (Vec::new(), 0);
    while after < 3 {
        after += u32::from(*restarted.borrow());
        let name = format!("{caller}-{}", told.len());
        let outcome = run(&idem, name.clone()).await;
        told.push((name, outcome));
    }
    told
}

/// Asks for a key again, and checks it against what was told the first time.
async fn check(idem: &Front, name: &str, told: &Result<Outcome<u64>, Error>) {
    let committed = count(idem, name).await;
    match told {
        Ok(outcome) => {
            assert_eq!(outcome, &Outcome::Created(1), "{name}");
            assert_eq!(committed, 1, "{name}");
        }
        Err(error) if error.certainty() == Certainty::NothingDone => assert_eq!(committed, 0),
        Err(error) => assert_eq!(error.certainty(), Certainty::Unknown, "{error}"),
    }
    let expected = if committed == 1 { Outcome::Replayed(1) } else { Outcome::Created(1) };
    assert_eq!(run(idem, name.to_string()).await.unwrap(), expected, "{name}");
    assert_eq!(count(idem, name).await, 1, "{name}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_under_way_during_a_restart_are_told_the_truth() {
    for by_kill in [false, true] {
        let mut server = durable();
        // With little patience some fail, with much none does.
        for patience in [40, 5_000] {
            let builder = RedisStore::builder().prefix(format!("p{patience}"));
            let builder = builder.response_timeout(Duration::from_millis(patience));
            let idem = open_with(builder, &server.url()).await;
            let (restarted, is_restarted) = tokio::sync::watch::channel(false);
            let callers: Vec<_> = (0..8)
                .map(|caller| through_a_restart(idem.clone(), caller, is_restarted.clone()))
                .map(tokio::spawn)
                .collect();
            within("calls to be under way", async { while count(&idem, "0-1").await == 0 {} })
                .await;
            end(&mut server, by_kill);
            server.restart().unwrap();
            restarted.send(true).unwrap();
            for caller in callers {
                for (name, told) in joined("a caller", caller).await {
                    assert!(patience < 1_000 || told.is_ok(), "{name}: {told:?}");
                    check(&idem, &name, &told).await;
                }
            }
        }
    }
}
