//! Callers who are at the same at the same time share commands, and nothing else.

use std::{future::poll_fn, pin::pin, task::Poll};

use futures_util::future::{join, join_all};
use idem_core::{Error, ErrorKind, Key, Outcome, Request};
use idem_redis::{
    RedisStore, RedisTransaction,
    testing::{Mode, Proxy, Server},
};

use crate::setup::*;

const CALLERS: usize = 40;

/// How often a script was run by its digest.
fn scripts(server: &Server) -> usize {
    let stats: String = server.query(&["INFO", "commandstats"]).unwrap();
    let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    calls.map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
}

fn names() -> impl Iterator<Item = String> {
    (0..CALLERS).map(|number| format!("k{number}"))
}

async fn create(idem: &Front, name: &str) -> Result<Outcome<String>, Error> {
    let (request, name) = (request(name, "p"), name.to_string());
    let effect = move |tx: &mut RedisTransaction| {
        put_one(tx, &name)?;
        Ok(name.clone())
    };
    idem.execute(&request, effect).await
}

async fn all(idem: &Front) -> Vec<Result<Outcome<String>, Error>> {
    let names: Vec<String> = names().collect();
    join_all(names.iter().map(|name| create(idem, name))).await
}

async fn speculative(url: &str) -> Front {
    let idem = open_with(hasty(5_000).speculative(true), url).await;
    put_first(&idem, "warm").await;
    idem
}

#[tokio::test]
async fn many_creates_are_few_commands_and_each_is_whole() {
    let server = Server::start().unwrap();
    let idem = speculative(&server.url()).await;
    let before = scripts(&server);
    for (name, outcome) in names().zip(all(&idem).await) {
        assert_eq!(outcome.unwrap(), Outcome::Created(name.clone()));
        assert_eq!(value_of(&server, &name).as_deref(), Some("1"), "{name}");
    }
    assert!(scripts(&server) - before <= 4, "{} commands", scripts(&server) - before);
    for (name, outcome) in names().zip(all(&idem).await) {
        assert_eq!(outcome.unwrap(), Outcome::Replayed(name));
    }
}

#[tokio::test]
async fn a_create_that_fails_or_is_refused_leaves_the_others_alone() {
    let server = Server::start().unwrap();
    let idem = speculative(&server.url()).await;
    server.command(&["RPUSH", &record_name("k3"), "of another type"]).unwrap();
    let other = request("k5", "other");
    let other = idem.execute(&other, |_| Ok("k5".to_string())).await.unwrap();
    assert_eq!(other, Outcome::Created("k5".to_string()));
    let (outcomes, twin) = join(all(&idem), create(&idem, "k7")).await;
    let mut of_k7 = vec![twin.unwrap()];
    for (name, outcome) in names().zip(outcomes) {
        match (&*name, outcome) {
            ("k3", outcome) => {
                let error = outcome.unwrap_err();
                assert!(matches!(error.kind(), ErrorKind::Damaged { .. }), "{error:?}");
            }
            ("k5", outcome) => assert_eq!(outcome.unwrap(), Outcome::Conflict),
            ("k7", outcome) => of_k7.push(outcome.unwrap()),
            (_, outcome) => assert_eq!(outcome.unwrap(), Outcome::Created(name)),
        }
    }
    of_k7.sort_by_key(|outcome| matches!(outcome, Outcome::Replayed(_)));
    let k7 = || "k7".to_string();
    assert_eq!(of_k7, [Outcome::Created(k7()), Outcome::Replayed(k7())]);
}

/// The server refuses a command of which it refuses a part.
#[tokio::test]
async fn a_create_that_is_denied_leaves_the_others_alone() {
    let server = Server::start().unwrap();
    let rights = ["+@all", "~idem:{tnorth}*"];
    let mut user = vec!["ACL", "SETUSER", "app", "reset", "on", ">pw"];
    user.extend(rights);
    server.command(&user).unwrap();
    let idem = speculative(&format!("redis://app:pw@{}", server.address())).await;
    let south = Request::new(Key::new("south", "order", "k").unwrap());
    let (outcomes, denied) = join(all(&idem), idem.execute(&south, |_| Ok(1))).await;
    for (name, outcome) in names().zip(outcomes) {
        assert_eq!(outcome.unwrap(), Outcome::Created(name));
    }
    assert!(matches!(denied.unwrap_err().kind(), ErrorKind::Denied));
}

/// Callers that are dropped, or not polled any more, whether they have sent for others or not.
#[tokio::test]
async fn callers_who_give_up_take_nobody_along() {
    for polls in 1..4 {
        let server = Server::start().unwrap();
        let idem = speculative(&server.url()).await;
        let left: Vec<String> = (0..CALLERS).map(|number| format!("left{number}")).collect();
        let mut leaving: Vec<_> =
            left.iter().map(|name| Box::pin(create(&idem, name))).map(Some).collect();
        let started = std::time::Instant::now();
        let mut staying = pin!(all(&idem));
        let mut polled = 0;
        let outcomes = poll_fn(|context| {
            polled += 1;
            for (number, call) in leaving.iter_mut().enumerate() {
                if polled <= polls
                    && let Some(leaving) = call
                    && leaving.as_mut().poll(context).is_ready()
                {
                    *call = None;
                }
                // Half of them are dropped, the others are there and not polled.
                if polled == polls && number % 2 == 0 {
                    *call = None;
                }
            }
            match staying.as_mut().poll(context) {
                Poll::Ready(outcomes) => Poll::Ready(outcomes),
                Poll::Pending => Poll::Pending,
            }
        })
        .await;
        for (name, outcome) in names().zip(outcomes) {
            assert_eq!(outcome.unwrap(), Outcome::Created(name));
        }
        assert!(started.elapsed().as_millis() < 900, "nobody waited for an answer that was lost");
        drop(leaving);
        for name in &left {
            let is_whole = value_of(&server, name).is_some() == has_record(&server, name);
            assert!(is_whole, "{name}");
        }
    }
}

#[tokio::test]
async fn each_finds_its_own_create_when_the_answer_is_lost() {
    let server = Server::start().unwrap();
    let proxy = Proxy::before(&server).unwrap();
    let idem = speculative(&proxy.url()).await;
    proxy.set(Mode::CutAfterRequest { times: 1, containing: b"EVALSHA" });
    for (name, outcome) in names().zip(all(&idem).await) {
        assert_eq!(outcome.unwrap(), Outcome::Created(name));
    }
    assert_eq!(proxy.counts().cut, 1);
}

/// Looks go together as well, and what one of them finds is its own.
#[tokio::test]
async fn many_looks_find_each_its_own() {
    let server = Server::start().unwrap();
    let idem = open(&server.url()).await;
    put_first(&idem, "warm").await;
    server.command(&["RPUSH", &record_name("k3"), "of another type"]).unwrap();
    for is_created in [true, false] {
        for (name, outcome) in names().zip(all(&idem).await) {
            if name == "k3" {
                let error = outcome.unwrap_err();
                assert!(matches!(error.kind(), ErrorKind::Damaged { .. }), "{error:?}");
            } else if is_created {
                assert_eq!(outcome.unwrap(), Outcome::Created(name));
            } else {
                assert_eq!(outcome.unwrap(), Outcome::Replayed(name));
            }
        }
    }
}

#[tokio::test]
async fn creates_go_together_where_the_server_has_forgotten_the_script() {
    let server = Server::start().unwrap();
    let idem = open_with(RedisStore::builder().speculative(true), &server.url()).await;
    for (name, outcome) in names().zip(all(&idem).await) {
        assert_eq!(outcome.unwrap(), Outcome::Created(name));
    }
}
