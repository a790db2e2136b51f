//! What lies under the prefix and is none of the library's: each call says so, runs nothing anew, and other
//! keys do not mind.

use bytes::Bytes;
use idem_core::{
    Certainty, Error, ErrorKind, Idem, ManualClock, Outcome, Timestamp, Transaction,
    consumer::Recorder,
};
use idem_redis::{RedisStore, testing::Server};

use crate::setup::*;

fn is_damaged(error: Error) {
    assert!(matches!(error.kind(), ErrorKind::Damaged { .. }), "{error:?}");
    assert_eq!(error.certainty(), Certainty::NothingDone, "{error:?}");
}

async fn stores(server: &Server) -> [Front; 2] {
    let speculative = RedisStore::builder().speculative(true);
    [open(&server.url()).await, open_with(speculative, &server.url()).await]
}

/// Asserts that every call on the key `name` finds it damaged and changes nothing.
async fn finds_damage(idem: &Front, name: &'static str) {
    is_damaged(put(idem, name).await.unwrap_err());
    is_damaged(added(idem, name).await.unwrap_err());
    is_damaged(idem.receipt(&key(name)).await.unwrap_err());
    is_damaged(idem.forget(&key(name)).await.unwrap_err());
    is_damaged(claim(idem, name).await.unwrap_err());
    is_damaged(idem.list(None, 10).await.unwrap_err());
}

#[tokio::test]
async fn a_record_of_another_type_is_damaged() {
    let server = Server::start().unwrap();
    for idem in stores(&server).await {
        server.command(&["FLUSHALL"]).unwrap();
        server.command(&["RPUSH", &record_name("k"), "x"]).unwrap();
        finds_damage(&idem, "k").await;
        assert_eq!(value_of(&server, "k"), None);
        put_first(&idem, "other").await;
        // A purge goes round it.
        assert_eq!(idem.purge(10).await.unwrap().removed, 0);
    }
}

#[tokio::test]
async fn a_value_of_another_type_is_damaged() {
    let server = Server::start().unwrap();
    for idem in stores(&server).await {
        server.command(&["FLUSHALL"]).unwrap();
        server.command(&["HSET", "idem:{tnorth}:v:n", "a", "b"]).unwrap();
        is_damaged(added(&idem, "n").await.unwrap_err());
        is_damaged(idem.value(&space(), b"n").await.unwrap_err());
        assert!(!has_record(&server, "n"));
        put_first(&idem, "other").await;
    }
}

/// It must not get the next lease that was counted from something else.
#[tokio::test]
async fn a_token_that_is_none_is_damaged() {
    let server = Server::start().unwrap();
    let name = "idem:{tnorth}:token";
    let max = i64::MAX.to_string();
    let odd = ["", "x", "-1", "+5", "1.5", "1e3", " 7", "007", "9223372036854775808", &max];
    let clock = ManualClock::at(Timestamp::from_millis(1_000));
    let own = open_with(RedisStore::builder().clock(clock), &server.url()).await;
    for idem in [open(&server.url()).await, own] {
        for token in odd {
            server.command(&["SET", name, token]).unwrap();
            is_damaged(claim(&idem, "c").await.unwrap_err());
            assert!(!has_record(&server, "c"), "{token}");
            assert_eq!(server.query::<String>(&["GET", name]).unwrap(), token);
        }
        server.command(&["DEL", name]).unwrap();
        server.command(&["RPUSH", name, "x"]).unwrap();
        is_damaged(claim(&idem, "c").await.unwrap_err());
        assert!(!has_record(&server, "c"));
        // Whoever needs no token does not mind.
        assert!(put(&idem, "k").await.unwrap().result().is_some());
        server.command(&["DEL", name]).unwrap();
    }
}

/// Each byte of a record, changed in one bit.
#[tokio::test]
async fn a_damaged_record_is_never_taken_for_another() {
    let server = Server::start().unwrap();
    let stores = stores(&server).await;
    put_first(&stores[0], "k").await;
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let name = record_name("k");
    let stored: Vec<u8> = redis::cmd("GET").arg(&name).query(&mut connection).unwrap();
    for index in 0..stored.len() {
        let mut damaged = stored.clone();
        damaged[index] ^= 1 << (index % 8);
        redis::cmd("SET").arg(&name).arg(&damaged).exec(&mut connection).unwrap();
        let idem = &stores[index % 2];
        let errors = [
            put(idem, "k").await.unwrap_err(),
            idem.receipt(&key("k")).await.unwrap_err(),
            claim(idem, "k").await.unwrap_err(),
            idem.list(None, 10).await.unwrap_err(),
        ];
        for error in errors {
            // The first byte is the version.
            let is_newer = matches!(error.kind(), ErrorKind::SchemaNewer { .. }) && index == 0;
            let is_damaged = matches!(error.kind(), ErrorKind::Damaged { .. });
            assert!(is_newer || is_damaged, "{index}: {error:?}");
            assert_eq!(error.certainty(), Certainty::NothingDone);
        }
        let found: Vec<u8> = redis::cmd("GET").arg(&name).query(&mut connection).unwrap();
        assert_eq!(found, damaged, "nothing has changed it");
    }
    redis::cmd("SET").arg(&name).arg(&stored).exec(&mut connection).unwrap();
    assert_eq!(put(&stores[0], "k").await.unwrap(), Outcome::Replayed(1));
}

/// Cut short, and empty: a falsy value is no absent one.
#[tokio::test]
async fn a_record_that_was_cut_is_damaged() {
    let server = Server::start().unwrap();
    let [idem, speculative] = stores(&server).await;
    put_first(&idem, "k").await;
    let stored: String = server.query(&["GET", &record_name("k")]).unwrap();
    for length in [0, 1, 10, stored.len() - 1] {
        server.command(&["SET", &record_name("k"), &stored[..length]]).unwrap();
        for idem in [&idem, &speculative] {
            finds_damage(idem, "k").await;
        }
    }
    let marked = "idem:{cbilling}:r:0::7";
    server.command(&["SET", marked, ""]).unwrap();
    is_damaged(idem.mark_processed("billing", "7").await.unwrap_err());
    is_damaged(idem.is_processed("billing", "7").await.unwrap_err());
}

#[tokio::test]
async fn a_record_of_a_newer_version_is_left_to_newer_programs() {
    let server = Server::start().unwrap();
    for idem in stores(&server).await {
        server.command(&["SET", &record_name("k"), "2 anything\n"]).unwrap();
        for error in [
            put(&idem, "k").await.unwrap_err(),
            idem.receipt(&key("k")).await.unwrap_err(),
            idem.forget(&key("k")).await.unwrap_err(),
            claim(&idem, "k").await.unwrap_err(),
        ] {
            let is_newer =
                matches!(error.kind(), ErrorKind::SchemaNewer { found: 2, supported: 1, .. });
            assert!(is_newer, "{error:?}");
        }
        assert_eq!(idem.purge(10).await.unwrap().removed, 0);
        assert!(has_record(&server, "k"));
    }
}

/// Empty values and results are there.
#[tokio::test]
async fn what_is_empty_is_not_absent() {
    let server = Server::start().unwrap();
    for (idem, name) in stores(&server).await.into_iter().zip(["a", "b"]) {
        let run = |idem: Idem<RedisStore>| async move {
            let effect = move |tx: &mut idem_redis::RedisTransaction| {
                tx.put(name.as_bytes(), b"")?;
                Ok(Bytes::new())
            };
            idem.execute_bytes(&request(name, "p"), effect).await.unwrap()
        };
        assert_eq!(run(idem.clone()).await, Outcome::Created(Bytes::new()));
        assert_eq!(run(idem.clone()).await, Outcome::Replayed(Bytes::new()));
        let value = idem.value(&space(), name.as_bytes()).await.unwrap();
        assert_eq!(value, Some(Bytes::new()));
        // An effect sees it so, too, and a commit on it holds.
        let seen = move |tx: &mut idem_redis::RedisTransaction| {
            let is_empty = tx.get(name.as_bytes())? == Some(Bytes::new());
            tx.put(name.as_bytes(), b"full")?;
            Ok(is_empty)
        };
        let outcome = idem.execute(&request(&format!("{name}2"), "p"), seen).await;
        assert_eq!(outcome.unwrap(), Outcome::Created(true));
    }
}
