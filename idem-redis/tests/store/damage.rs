//! What lies under the prefix and is none of the library's: each call says so, runs nothing anew, and other
//! keys do not mind.

use bytes::Bytes;
use idem_conformance::damage::damaged;
use idem_core::{
    Certainty, Change, Error, ErrorKind, Idem, ManualClock, Outcome, Timestamp, Transaction,
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
    let error = idem.list(None, 10).await.unwrap_err();
    assert!(error.to_string().contains(&record_name(name)), "it must name the key: {error}");
    is_damaged(error);
}

#[tokio::test]
async fn a_record_of_another_type_is_damaged() {
    let server = Server::start().unwrap();
    for idem in stores(&server).await {
        server.command(&["FLUSHALL"]).unwrap();
        for other in [["RPUSH", &record_name("k"), "x"], ["SADD", &record_name("k"), "x"]] {
            server.command(&["DEL", &record_name("k")]).unwrap();
            server.command(&other).unwrap();
            finds_damage(&idem, "k").await;
            assert_eq!(value_of(&server, "k"), None);
        }
        server.command(&["DEL", &record_name("k")]).unwrap();
        server.command(&["HSET", &record_name("k"), "a", "b"]).unwrap();
        finds_damage(&idem, "k").await;
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

/// That the record of the key `k` cannot be read, and where it is.
fn is_found<T: std::fmt::Debug>(answer: Result<T, Error>, damaged: &[u8]) {
    let what = damaged.escape_ascii();
    let error = answer.expect_err("it cannot be read");
    let is_typed =
        matches!(error.kind(), ErrorKind::Damaged { .. } | ErrorKind::SchemaNewer { .. });
    assert!(is_typed && error.certainty() == Certainty::NothingDone, "{what}: {error:?}");
    assert!(error.to_string().contains(&record_name("k")), "it must name the key: {error}");
}

/// Every call of one of the stores, in turn, meets each damage to the record of the key `k`.
async fn every_damage_is_found(server: &Server, stores: &[Front; 2]) {
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let name = record_name("k");
    let stored: Vec<u8> = redis::cmd("GET").arg(&name).query(&mut connection).unwrap();
    for (damaged, idem) in damaged(&stored).iter().zip(stores.iter().cycle()) {
        redis::cmd("SET").arg(&name).arg(damaged).exec(&mut connection).unwrap();
        is_found(put(idem, "k").await, damaged);
        is_found(claim(idem, "k").await, damaged);
        is_found(idem.receipt(&key("k")).await, damaged);
        is_found(idem.forget(&key("k")).await, damaged);
        is_found(idem.list(None, 10).await, damaged);
        assert_eq!(idem.purge(10).await.unwrap().removed, 0);
        let found: Vec<u8> = redis::cmd("GET").arg(&name).query(&mut connection).unwrap();
        assert!(found == *damaged, "for who can mend it");
    }
    redis::cmd("SET").arg(&name).arg(&stored).exec(&mut connection).unwrap();
}

#[tokio::test]
async fn any_damage_to_a_receipt_is_found_by_every_call_that_meets_it() {
    let server = Server::start().unwrap();
    let stores = stores(&server).await;
    put_first(&stores[0], "k").await;
    every_damage_is_found(&server, &stores).await;
    assert_eq!(put(&stores[0], "k").await.unwrap(), Outcome::Replayed(1), "it was mended");
}

#[tokio::test]
async fn any_damage_to_a_claim_is_found_by_every_call_that_meets_it() {
    let server = Server::start().unwrap();
    let stores = stores(&server).await;
    let claim = claimed(&stores[0], "k").await;
    every_damage_is_found(&server, &stores).await;
    assert!(on_claim(&stores[0], "k", &claim, completion(&claim, "1")).await.unwrap().ran);
}

/// Its holder, too, is told so, and nothing is made of it.
#[tokio::test]
async fn a_claim_that_was_damaged_is_an_error_to_its_holder() {
    let server = Server::start().unwrap();
    let idem = open(&server.url()).await;
    let claim = claimed(&idem, "k").await;
    server.command(&["SETRANGE", &record_name("k"), "20", "x"]).unwrap();
    let damaged: String = server.query(&["GET", &record_name("k")]).unwrap();
    let longer = Change::Extend { lease: lease(2 * LEASE) };
    for change in [completion(&claim, "1"), longer, Change::Remove, Change::End] {
        is_found(on_claim(&idem, "k", &claim, change).await, damaged.as_bytes());
    }
    assert_eq!(server.query::<String>(&["GET", &record_name("k")]).unwrap(), damaged);
}

/// A falsy value is no absent one.
#[tokio::test]
async fn a_mark_that_was_emptied_is_damaged() {
    let server = Server::start().unwrap();
    let idem = open(&server.url()).await;
    let marked = "idem:{cbilling}:r:0::7";
    server.command(&["SET", marked, ""]).unwrap();
    is_damaged(idem.mark_processed("billing", "7").await.unwrap_err());
    is_damaged(idem.is_processed("billing", "7").await.unwrap_err());
}

#[tokio::test]
async fn a_record_of_a_newer_version_is_left_to_newer_programs() {
    let server = Server::start().unwrap();
    for idem in stores(&server).await {
        server.command(&["SET", &record_name("k"), "3 anything\n"]).unwrap();
        for error in [
            put(&idem, "k").await.unwrap_err(),
            idem.receipt(&key("k")).await.unwrap_err(),
            idem.forget(&key("k")).await.unwrap_err(),
            claim(&idem, "k").await.unwrap_err(),
            idem.list(None, 10).await.unwrap_err(),
        ] {
            let is_newer =
                matches!(error.kind(), ErrorKind::SchemaNewer { found: 3, supported: 2, .. });
            assert!(is_newer, "{error:?}");
            assert!(error.to_string().contains(&record_name("k")), "{error}");
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
