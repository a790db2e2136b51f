//! Waiting and its registry. Apart from them, so that the tests of interleavings can take them as they are.

use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

use event_listener::EventListener;
use uuid::Uuid;

use crate::{
    Committed, Key, Record, Request, Retention, State, Timestamp, Token,
    waiting::{Held, Waiter, Waiting},
};

fn token(token: u64) -> Token {
    Token::from_u64(token).unwrap()
}

fn is_ready(listener: &mut EventListener) -> bool {
    pin!(listener).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

#[test]
fn letting_go_wakes_all_who_listened_before_and_leaves_nothing_behind() {
    let (waiting, key) = (Waiting::default(), Key::new("t", "o", "k").unwrap());
    waiting.hold(&key, token(1));
    let waiters = [waiting.enter(&key), waiting.enter(&key)];
    let [mut first, mut second] = waiters.each_ref().map(Waiter::listen);
    assert!(!is_ready(&mut first));
    assert!(waiting.is_held_here(&key, token(1)) && !waiting.is_held_here(&key, token(2)));
    waiting.let_go(&key, token(1));
    let mut late = waiters[0].listen();
    assert!(is_ready(&mut first) && is_ready(&mut second) && !is_ready(&mut late));
    assert!(!waiting.is_held_here(&key, token(1)));
    drop(waiters);
    assert!(waiting.is_empty());
}

#[test]
fn what_has_changed_wakes_who_waits_and_lets_nothing_go() {
    let (waiting, key) = (Waiting::default(), Key::new("t", "o", "k").unwrap());
    waiting.hold(&key, token(1));
    let waiter = waiting.enter(&key);
    let (mut first, mut second) = (waiter.listen(), waiter.listen());
    waiting.changed(&Key::new("t", "o", "other").unwrap());
    assert!(!is_ready(&mut first));
    waiting.changed(&key);
    assert!(is_ready(&mut first) && waiting.is_held_here(&key, token(1)));
    waiting.all_changed();
    assert!(is_ready(&mut second));
}

#[tokio::test]
async fn what_is_being_ended_is_waited_for() {
    let waiting = Arc::new(Waiting::default());
    waiting.all_ended().await;
    let (first, second) = (waiting.begins_to_end(), waiting.begins_to_end());
    let mut ended = pin!(waiting.all_ended());
    let mut context = Context::from_waker(Waker::noop());
    drop(first);
    assert!(ended.as_mut().poll(&mut context).is_pending());
    drop(second);
    ended.await;
}

#[test]
fn a_stale_holder_that_lets_go_leaves_its_successor_noted() {
    let (waiting, key) = (Waiting::default(), Key::new("t", "o", "k").unwrap());
    waiting.hold(&key, token(1));
    waiting.hold(&key, token(2));
    waiting.let_go(&key, token(1));
    assert!(waiting.is_held_here(&key, token(2)));
    waiting.let_go(&key, token(2));
    assert!(waiting.is_empty());
    // Nobody is there any more.
    waiting.let_go(&key, token(2));
    assert!(waiting.is_empty());
}

#[test]
fn a_clock_that_stepped_back_makes_nobody_wait_longer_than_the_lease_or_a_second() {
    let at = Timestamp::from_millis;
    let request = Request::new(Key::new("t", "o", "k").unwrap());
    for (lease, now, left) in [(300, 0, 300), (300, -60_000, 1_000), (5_000, -60_000, 5_000)] {
        let state = State::Claimed {
            token: token(1),
            took_over: None,
            until: at(lease),
            is_ended: false,
            keep: Retention::Forever,
        };
        let record = Record { fingerprint: None, attempt: Uuid::nil(), created_at: at(0), state };
        let held = Held::by(&Committed::kept(Some(record), at(now)), &request).unwrap();
        assert_eq!(held.left, Duration::from_millis(left), "{lease} at {now}");
    }
}
