//! Callers that give up: their keys are untouched or committed, and no answer reaches the wrong caller.

use std::{
    hash::{BuildHasher, RandomState},
    pin::pin,
    task::Poll,
};

use futures_util::future::join_all;
use idem_core::{
    Outcome,
    consumer::{Marked, Recorder},
};
use idem_redis::{RedisStore, testing::Server};

use crate::setup::*;

/// A number below `end`.
fn random(end: u64) -> u64 {
    RandomState::new().hash_one(0) % end
}

/// Runs `call` for at most `polls` polls and some turns of the others, then drops it.
async fn given_up<T>(call: impl Future<Output = T>, polls: u64) -> Option<T> {
    let mut call = pin!(call);
    let mut left = polls;
    let ended = std::future::poll_fn(|context| match call.as_mut().poll(context) {
        Poll::Ready(answer) => Poll::Ready(Some(answer)),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await;
    for _ in 0..random(4) {
        tokio::task::yield_now().await;
    }
    ended
}

async fn run(idem: &Front, number: u64) -> Outcome<u64> {
    let request = request(&number.to_string(), "p");
    let effect = move |tx: &mut idem_redis::RedisTransaction| {
        add(tx, &format!("n-{number}"))?;
        Ok(number)
    };
    idem.execute(&request, effect).await.unwrap()
}

/// Asserts that a key is untouched or committed, and yields its own value.
async fn is_whole(idem: &Front, number: u64) {
    let receipt = idem.receipt(&key(&number.to_string())).await.unwrap();
    let name = format!("n-{number}");
    assert_eq!(count(idem, &name).await, u64::from(receipt.is_some()), "{number}");
    if let Some(receipt) = receipt {
        assert_eq!(receipt.result, number.to_string());
    }
    assert_eq!(run(idem, number).await.result(), Some(number));
    assert_eq!(count(idem, &name).await, 1, "{number}");
}

const CALLS: u64 = 1_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_cancelled_calls_leave_each_key_whole() {
    for speculative in [false, true] {
        let server = Server::start().unwrap();
        let idem = open_with(RedisStore::builder().speculative(speculative), &server.url()).await;
        let mut cancelled = 0;
        for number in 0..CALLS {
            // Some polls lead past the commit, most do not.
            let answer = given_up(run(&idem, number), random(4)).await;
            cancelled += u64::from(answer.is_none());
            if let Some(answer) = answer {
                assert_eq!(answer, Outcome::Created(number));
            }
            if number % 5 == 0 {
                // A call of another caller that ends, between those that do not.
                assert_eq!(run(&idem, CALLS + number).await, Outcome::Created(number + CALLS));
            }
        }
        assert!(cancelled > CALLS / 4, "{cancelled}");
        // What they have sent is worked off in order, on the one connection that they share.
        for numbers in (0..CALLS).collect::<Vec<_>>().chunks(100) {
            join_all(numbers.iter().map(|number| is_whole(&idem, *number))).await;
        }
        let clients: String = server.query(&["INFO", "stats"]).unwrap();
        let connections =
            clients.lines().find_map(|l| l.strip_prefix("total_connections_received:"));
        // The store's, the harness's to see whether the server runs, and this one.
        assert!(connections.unwrap().trim().parse::<u32>().unwrap() < 30, "{connections:?}");
    }
}

/// Marks and claims, which are one command each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_mark_or_claim_is_made_or_not() {
    let server = Server::start().unwrap();
    let idem = open(&server.url()).await;
    let mut made = [0; 2];
    for number in 0..CALLS / 4 {
        let (event, name) = (number.to_string(), format!("claim-{number}"));
        given_up(async { idem.mark_processed("billing", &event).await }, random(2)).await;
        given_up(async { claim(&idem, &name).await }, random(2)).await;
        let is_marked = idem.is_processed("billing", &event).await.unwrap();
        let expected = if is_marked { Marked::Again } else { Marked::First };
        assert_eq!(idem.mark_processed("billing", &event).await.unwrap(), expected);
        // Whoever holds it, it is one of the two.
        let again = claim(&idem, &name).await.unwrap();
        assert_eq!(again.ran, again.before.is_none());
        made[usize::from(is_marked)] += 1;
    }
    assert!(made.iter().all(|count| *count > 0), "{made:?}");
}
