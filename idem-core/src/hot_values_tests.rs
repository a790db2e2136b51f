//! Turns without a store.

use std::{
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker},
};

use crate::{Contender, HotValues};

fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// A call that has lost its race for the value of that name, and has its turn if that is free.
fn loser<'v>(values: &'v Arc<HotValues>, name: &str) -> Contender<'v> {
    let contender = Contender::new(values);
    contender.lost(&name);
    contender
}

/// A call that has its turn.
fn holder<'v>(values: &'v Arc<HotValues>, name: &str) -> Contender<'v> {
    let contender = loser(values, name);
    assert!(poll(pin!(contender.wait())).is_ready(), "nobody else is there");
    contender
}

#[test]
fn losers_take_turns_in_the_order_of_their_coming() {
    let values = Arc::default();
    let first = holder(&values, "n");
    let (second, third) = (loser(&values, "n"), loser(&values, "n"));
    let (mut second_waits, mut third_waits) = (pin!(second.wait()), pin!(third.wait()));
    assert!(poll(second_waits.as_mut()).is_pending());
    assert!(poll(third_waits.as_mut()).is_pending());
    drop(first);
    assert!(poll(third_waits.as_mut()).is_pending());
    assert!(poll(second_waits).is_ready());
    assert!(poll(third_waits.as_mut()).is_pending());
    drop(second.give_turn());
    assert!(poll(third_waits).is_ready());
    drop(third.give_turn());
    assert!(!values.any(), "a line that nobody is in is forgotten");
}

#[test]
fn values_of_other_names_have_other_turns() {
    let values = Arc::default();
    let (_a, _b) = (holder(&values, "a"), holder(&values, "b"));
}

#[test]
fn who_has_its_turn_keeps_it_when_it_loses_again() {
    let values = Arc::default();
    let first = holder(&values, "n");
    let second = loser(&values, "n");
    let mut waits = pin!(second.wait());
    assert!(poll(waits.as_mut()).is_pending());
    first.lost(&"n");
    assert!(poll(pin!(first.wait())).is_ready());
    assert!(poll(waits.as_mut()).is_pending());
}

#[test]
fn whoever_goes_away_strands_nobody() {
    let values = Arc::default();
    let first = holder(&values, "n");
    let (second, third) = (loser(&values, "n"), loser(&values, "n"));
    let fourth = loser(&values, "n");
    let mut second_waits = Box::pin(second.wait());
    let mut third_waits = Box::pin(third.wait());
    let mut fourth_waits = pin!(fourth.wait());
    assert!(poll(second_waits.as_mut()).is_pending());
    assert!(poll(third_waits.as_mut()).is_pending());
    assert!(poll(fourth_waits.as_mut()).is_pending());
    // In the line, with the turn, and with a turn that it does not know of yet.
    drop(second_waits);
    drop(first);
    drop(third_waits);
    assert!(poll(fourth_waits).is_ready());
    drop(fourth.give_turn());
    assert!(!values.any());
    drop(Box::pin(second.wait()));
    drop((second, third));
    assert!(!values.any());
}

#[test]
fn a_call_that_loses_over_another_value_passes_its_turn_on_before_it_waits() {
    let values = Arc::default();
    let (ab, ba) = (holder(&values, "a"), holder(&values, "b"));
    ab.lost(&"b");
    ba.lost(&"a");
    let mut ab_waits = pin!(ab.wait());
    assert!(poll(ab_waits.as_mut()).is_pending());
    assert!(poll(pin!(ba.wait())).is_ready(), "the turn for `a` is free");
    assert!(poll(ab_waits).is_ready(), "and so is the one for `b`");
}

#[test]
fn newcomers_line_up_where_others_take_turns_and_nowhere_else() {
    let values = Arc::default();
    let newcomer = Contender::new(&values);
    assert!(!newcomer.must_wait(|| ["m", "n"]));
    assert_eq!(poll(pin!(newcomer.wait())), Poll::Ready(false));
    let first = holder(&values, "n");
    assert!(!first.must_wait(|| ["m", "n"]), "it has its turn");
    assert!(!newcomer.must_wait(|| ["l", "m"]));
    assert!(newcomer.must_wait(|| ["m", "n"]));
    let mut waits = pin!(newcomer.wait());
    assert!(poll(waits.as_mut()).is_pending());
    drop(first);
    assert_eq!(poll(waits), Poll::Ready(true));
    assert!(!newcomer.must_wait(|| ["m", "n"]));
}

#[tokio::test]
async fn a_line_that_stands_still_is_taken_over_by_one_after_the_other() {
    let values: Arc<HotValues> = Arc::default();
    let stuck = holder(&values, "n");
    // Its thread may be blocked: it is never polled again.
    let blocked = loser(&values, "n");
    let mut blocked_waits = pin!(blocked.wait());
    assert!(poll(blocked_waits.as_mut()).is_pending());
    let next = loser(&values, "n");
    assert!(next.wait().await);
    assert!(!stuck.has_turn());
    let last = loser(&values, "n");
    assert!(last.wait().await);
    // A turn that was taken over is no longer passed on.
    drop(stuck);
    drop(next);
    assert!(last.has_turn());
    drop(last);
    assert!(poll(blocked_waits).is_ready());
    drop(blocked.give_turn());
    assert!(!values.any());
}

#[tokio::test]
async fn a_turn_that_is_taken_over_before_its_caller_knows_of_it_still_counts() {
    let values: Arc<HotValues> = Arc::default();
    let first = holder(&values, "n");
    let second = loser(&values, "n");
    let mut second_waits = pin!(second.wait());
    assert!(poll(second_waits.as_mut()).is_pending());
    drop(first);
    let third = loser(&values, "n");
    assert!(third.wait().await);
    assert!(poll(second_waits).is_ready());
    // It has to line up again when it loses.
    second.lost(&"n");
    let mut again = pin!(second.wait());
    assert!(poll(again.as_mut()).is_pending());
    drop(third);
    assert!(poll(again).is_ready());
}
