//! Integers that a double cannot hold: tokens and times stay exact.

use std::time::Duration;

use idem_core::{ErrorKind, ManualClock, Outcome, Request, Timestamp, Token};
use idem_redis::{RedisStore, testing::Server};

use crate::setup::*;

const TOKEN: &str = "idem:{tnorth}:token";

#[tokio::test]
async fn tokens_are_counted_exactly() {
    let server = Server::start().unwrap();
    let clock = ManualClock::at(Timestamp::from_millis(1_000));
    let own = open_with(RedisStore::builder().clock(clock), &server.url()).await;
    for (idem, kind) in [(open(&server.url()).await, "server"), (own, "own")] {
        let starts = [(1 << 53) - 1, 1 << 53, (1 << 53) + 1, (1 << 60) + 1, (1 << 63) - 4];
        for start in starts {
            let start: u64 = start;
            server.command(&["SET", TOKEN, &start.to_string()]).unwrap();
            for step in 1..=3 {
                let name = format!("{kind}-{start}-{step}");
                let claim = claimed(&idem, &name).await;
                assert_eq!(token(Some(&claim)).as_u64(), start + step, "{name}");
                let stored: u64 = server.query(&["GET", TOKEN]).unwrap();
                assert_eq!(stored, start + step);
                // A second claim finds it in the record, as it is.
                let found = claim_again(&idem, &name).await;
                assert_eq!(found.as_u64(), start + step);
                // And a holder's step on it is bound to each digit.
                assert!(on_claim(&idem, &name, &claim, completion(&claim, "1")).await.unwrap().ran);
            }
        }
    }
}

async fn claim_again(idem: &Front, name: &str) -> Token {
    let committed = claim(idem, name).await.unwrap();
    assert!(!committed.ran);
    token(committed.before.as_ref())
}

/// Between what a double can tell apart, a larger token is never followed by a smaller one.
#[tokio::test]
async fn tokens_grow_where_a_clock_is_about_as_far() {
    let server = Server::start().unwrap();
    for distance in [-600, -129, -128, -1, 0, 1, 127, 300] {
        // Beyond 2^53 microseconds: in the year 2255, or with a clock that is wrong.
        let clock = ManualClock::at(Timestamp::from_millis(1 << 50));
        let micros = (1_i64 << 50) * 1_000;
        let last = u64::try_from(micros + distance).unwrap();
        server.command(&["SET", TOKEN, &last.to_string()]).unwrap();
        let idem = open_with(RedisStore::builder().clock(clock), &server.url()).await;
        let claim = claimed(&idem, &format!("k{distance}")).await;
        assert!(token(Some(&claim)).as_u64() > last, "{distance}");
    }
}

#[tokio::test]
async fn a_new_token_is_the_servers_time_in_microseconds_at_least() {
    let server = Server::start().unwrap();
    let idem = open(&server.url()).await;
    let before = server_time(&server) * 1_000;
    let claim = claimed(&idem, "k").await;
    let after = (server_time(&server) + 1) * 1_000;
    let first = i64::try_from(token(Some(&claim)).as_u64()).unwrap();
    assert!((before..after).contains(&first), "{before} {first} {after}");
}

#[tokio::test]
async fn times_beyond_what_a_double_holds_are_exact() {
    let server = Server::start().unwrap();
    let millis: [u64; 5] = [(1 << 52) - 1, 1 << 52, (1 << 52) + 1, (1 << 53) + 1, (1 << 62) + 1];
    for speculative in [false, true] {
        let builder = RedisStore::builder().speculative(speculative);
        let idem = open_with(builder.prefix(format!("s{speculative}")), &server.url()).await;
        for millis in millis {
            let name = millis.to_string();
            let request = Request::new(key(&name)).retain(Duration::from_millis(millis));
            let outcome = idem.execute(&request, |_| Ok(1)).await.unwrap();
            assert_eq!(outcome, Outcome::Created(1));
            let receipt = idem.receipt(&key(&name)).await.unwrap().unwrap();
            let lives = receipt.expires_at.unwrap().as_millis() - receipt.created_at.as_millis();
            assert_eq!(u64::try_from(lives).unwrap(), millis);
            assert_eq!(idem.execute(&request, |_| Ok(1)).await.unwrap(), Outcome::Replayed(1));
        }
    }
}

/// A mark and a claim, which are stamped by the server where it can.
#[tokio::test]
async fn long_leases_are_exact() {
    let server = Server::start().unwrap();
    let idem = open(&server.url()).await;
    for millis in [1 << 40, (1 << 52) - 1, 1 << 52, (1 << 53) + 1] {
        let request = Request::new(key(&millis.to_string())).retain(Duration::from_millis(millis));
        let mut step = claim_of(&request);
        if let idem_core::Change::Claim { lease: of_step, .. } = &mut step.change {
            *of_step = lease(Duration::from_millis(millis));
        }
        let record = transact(&idem, request.key(), step).await.unwrap().after.unwrap();
        let idem_core::State::Claimed { until, .. } = record.state else { panic!() };
        let millis = i64::try_from(millis).unwrap();
        let expected = record.created_at.as_millis() + millis;
        assert_eq!(until.as_millis(), expected);
        assert_eq!(record.gone_at().unwrap().as_millis(), expected + millis);
        let stored = claim(&idem, &millis.to_string()).await.unwrap().before.unwrap();
        assert_eq!(stored, record);
    }
}

#[tokio::test]
async fn what_overflows_is_refused_before_the_effect() {
    let server = Server::start().unwrap();
    let too_long = [Duration::from_millis(i64::MAX as u64), Duration::MAX, Duration::ZERO];
    for speculative in [false, true] {
        let builder = RedisStore::builder().speculative(speculative);
        let idem = open_with(builder, &server.url()).await;
        for retention in too_long {
            let runs = Runs::default();
            let counter = runs.clone();
            let request = Request::new(key("k")).retain(retention);
            let effect = move |tx: &mut idem_redis::RedisTransaction| {
                counter.bump();
                put_one(tx, "k")
            };
            let error = idem.execute(&request, effect).await.unwrap_err();
            let is_duration = matches!(error.kind(), ErrorKind::InvalidDuration { .. });
            assert!(is_duration, "{retention:?}: {error:?}");
            assert_eq!(runs.get(), 0);
            assert!(!has_record(&server, "k"));
        }
    }
}

/// The extremes of a clock of the user's.
#[tokio::test]
async fn clocks_at_the_ends_of_time_do_no_harm() {
    let server = Server::start().unwrap();
    for (now, name) in [(i64::MIN, "a"), (-1, "b"), (0, "c"), (i64::MAX - 60_000, "d")] {
        for speculative in [false, true] {
            let clock = ManualClock::at(Timestamp::from_millis(now));
            let builder = RedisStore::builder().clock(clock.clone()).speculative(speculative);
            let builder = builder.prefix(format!("p{speculative}"));
            let idem = open_with(builder, &server.url()).await;
            put_first(&idem, name).await;
            let receipt = idem.receipt(&key(name)).await.unwrap().unwrap();
            assert_eq!(receipt.created_at.as_millis(), now);
            assert_eq!(receipt.expires_at.unwrap().as_millis(), now + 60_000);
            assert_eq!(put(&idem, name).await.unwrap(), Outcome::Replayed(1));
            clock.set(receipt.expires_at.unwrap());
            assert_eq!(idem.receipt(&key(name)).await.unwrap(), None);
            assert_eq!(idem.purge(10).await.unwrap().removed, 1);
        }
    }
}
