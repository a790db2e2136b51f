//! Connections that the server ends: no caller sees more than that its answer took a little longer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use idem_core::{Idem, Outcome, consumer::Recorder};
use idem_redis::{RedisStore, testing::Server};

use crate::setup::*;

fn kill(server: &Server) {
    let _: i64 = server.query(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).unwrap();
}

#[tokio::test]
async fn a_connection_that_was_killed_before_a_call_is_replaced() {
    for speculative in [false, true] {
        let server = Server::start().unwrap();
        let idem = open_with(RedisStore::builder().speculative(speculative), &server.url()).await;
        kill(&server);
        assert_eq!(added(&idem, "a").await.unwrap(), Outcome::Created(1));
        kill(&server);
        assert_eq!(added(&idem, "a").await.unwrap(), Outcome::Replayed(1));
        kill(&server);
        assert!(idem.receipt(&key("a")).await.unwrap().is_some());
        kill(&server);
        assert!(!idem.is_processed("billing", "1").await.unwrap());
        kill(&server);
        let claim = claimed(&idem, "c").await;
        kill(&server);
        assert!(on_claim(&idem, "c", &claim, completion(&claim, "1")).await.unwrap().ran);
        kill(&server);
        assert_eq!(idem.list(None, 10).await.unwrap().records.len(), 2);
        kill(&server);
        assert!(!idem.purge(10).await.unwrap().more);
        kill(&server);
        assert!(idem.forget(&key("a")).await.unwrap());
        kill(&server);
        assert!(!idem.store().check().await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_connection_that_is_killed_by_the_effect_is_replaced() {
    let server = Arc::new(Server::start().unwrap());
    let idem = open(&server.url()).await;
    let killing = server.clone();
    let effect = move |tx: &mut idem_redis::RedisTransaction| {
        kill(&killing);
        add(tx, "n")
    };
    assert_eq!(idem.execute(&request("n", "p"), effect).await.unwrap(), Outcome::Created(1));
    assert_eq!(count(&idem, "n").await, 1);
}

/// Kills all connections again and again, until it is dropped.
struct Killer {
    ended: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<u32>>,
}

impl Killer {
    fn start(server: &Arc<Server>) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let (server, is_ended) = (server.clone(), ended.clone());
        let thread = thread::spawn(move || {
            let mut kills = 0;
            while !is_ended.load(Ordering::SeqCst) {
                kill(&server);
                kills += 1;
                // How often, not until when: callers must get something done in between.
                thread::sleep(Duration::from_millis(15));
            }
            kills
        });
        Self { ended, thread: Some(thread) }
    }

    fn stop(mut self) -> u32 {
        self.ended.store(true, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap()
    }
}

/// Runs `calls` operations, each under a key of its own, and asks each again.
async fn work(idem: Idem<RedisStore>, caller: usize, calls: usize) {
    for call in 0..calls {
        let name = format!("{caller}-{call}");
        for _ in 0..2 {
            let effect_name = name.clone();
            let request = request(&name, "p");
            let outcome = idem.execute(&request, move |tx| add(tx, &effect_name)).await;
            assert_eq!(outcome.unwrap().result(), Some(1), "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_survive_many_kills() {
    for speculative in [false, true] {
        let server = Arc::new(Server::start().unwrap());
        let idem = open_with(RedisStore::builder().speculative(speculative), &server.url()).await;
        let killer = Killer::start(&server);
        together((0..64).map(|caller| work(idem.clone(), caller, 2))).await;
        assert!(killer.stop() > 0);
        for caller in 0..64 {
            for call in 0..2 {
                assert_eq!(count(&idem, &format!("{caller}-{call}")).await, 1);
            }
        }
    }
}
