//! Waiting under a scheduler that tries interleavings at random. No timer ever ends here: who is not woken waits for
//! ever, and that is a failure. `IDEM_ROUNDS` says how many interleavings; a failure prints the schedule that
//! [`shuttle::replay`] takes.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]
// The library's own sources, with the scheduler's locks in the place of its own.
#![allow(dead_code, missing_docs, unreachable_pub)]

#[path = "../src/back_off.rs"]
mod back_off;
#[path = "../src/hot_values.rs"]
mod hot_values;
#[path = "../src/waiting.rs"]
mod waiting;

mod sync {
    pub(crate) use event_listener::EventListener;
    pub(crate) use shuttle::sync::{
        Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    };
    pub(crate) use std::sync::PoisonError;

    /// An event before whose every use another thread may go on.
    #[derive(Debug, Default)]
    pub(crate) struct Event(event_listener::Event);

    impl Event {
        pub(crate) fn listen(&self) -> EventListener {
            shuttle::thread::yield_now();
            self.0.listen()
        }

        pub(crate) fn notify(&self, count: usize) {
            shuttle::thread::yield_now();
            self.0.notify(count);
        }
    }
}

/// Sleeps that end never, or at once.
mod runtime {
    use std::{cell::Cell, future::pending, time::Duration};

    use idem_core::{BoxFuture, SystemClock};

    thread_local! {
        pub(crate) static ENDS_AT_ONCE: Cell<bool> = const { Cell::new(false) };
    }

    pub(crate) fn sleep(_: &SystemClock, _: Duration) -> BoxFuture<()> {
        if ENDS_AT_ONCE.get() {
            Box::pin(shuttle::future::yield_now())
        } else {
            Box::pin(pending())
        }
    }
}

mod optimistic {
    pub(crate) async fn yield_turns(_: u32) {}
}

use std::{
    env,
    future::{pending, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use hot_values::{Contender, HotValues};
use idem_core::{
    BoxFuture, BoxStep, Committed, Cursor, Durability, Error, Filter, Guarantees, HomeProcess, Key,
    Overlay, Page, Purged, Record, Request, Retention, Sharing, Space, State, Store, SystemClock,
    Timestamp, Token, Values, Verdict, judge,
};
use shuttle::{
    future::block_on,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};
use uuid::Uuid;
use waiting::{Waiting, ask_patiently};

/// Tries interleavings of what the threads of `test` do.
fn explore(test: impl Fn() + Send + Sync + 'static) {
    let rounds = env::var("IDEM_ROUNDS").map_or(1000, |rounds| rounds.parse().unwrap());
    shuttle::check_random(test, rounds);
}

/// A store of which only the clock is asked, and that one stands still: what sleeps on it sleeps for ever.
struct Still;

struct Nothing;

impl Values for Nothing {
    fn value(&self, _: &[u8]) -> Result<Option<Bytes>, Error> {
        Ok(None)
    }
}

#[async_trait]
impl Store for Still {
    type Transaction = Overlay<Nothing>;

    async fn transact(&self, _: &Key, _: BoxStep<Self::Transaction>) -> Result<Committed, Error> {
        unreachable!("the tests ask by themselves")
    }

    async fn purge(&self, _: usize) -> Result<Purged, Error> {
        unreachable!("nothing is purged")
    }

    async fn value(&self, _: &Space, _: &[u8]) -> Result<Option<Bytes>, Error> {
        unreachable!("nothing is read")
    }

    async fn list(&self, _: &Filter, _: Option<&Cursor>, _: usize) -> Result<Page, Error> {
        unreachable!("nothing is listed")
    }

    async fn close(&self) -> Result<(), Error> {
        Ok(())
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::new(Durability::Process, Sharing::Process)
    }

    fn detach(&self, _: BoxFuture<()>) {
        unreachable!("nothing is detached")
    }

    fn sleep(&self, _: Duration) -> BoxFuture<()> {
        Box::pin(pending())
    }
}

fn token(token: u64) -> Token {
    Token::from_u64(token).unwrap()
}

fn request() -> Request {
    let key = Key::new("north", "order", "a").unwrap();
    Request::new(key).wait_for(Duration::from_secs(60))
}

/// The record of one key, and who waits for it.
#[derive(Clone)]
struct Place {
    record: Arc<Mutex<Option<Record>>>,
    waiting: Arc<Waiting>,
}

impl Place {
    /// A place whose key is held by the lease of token 1.
    fn held() -> Self {
        let place = Self { record: Arc::default(), waiting: Arc::default() };
        place.claim(token(1));
        place
    }

    /// As a store and a lease do it: the record first, and then it is noted.
    fn claim(&self, token: Token) {
        let state = State::Claimed {
            token,
            took_over: None,
            until: Timestamp::from_millis(1000),
            is_ended: false,
            keep: Retention::Forever,
        };
        let created_at = Timestamp::from_millis(0);
        let record = Record { fingerprint: None, attempt: Uuid::new_v4(), created_at, state };
        *self.record.lock().unwrap() = Some(record);
        self.waiting.hold(request().key(), token);
    }

    fn release(&self, token: Token) {
        *self.record.lock().unwrap() = None;
        self.waiting.let_go(request().key(), token);
    }

    /// Waits until the key is free.
    async fn wait(&self) {
        let ask = || async {
            let record = self.record.lock().unwrap().clone();
            Ok(Committed::kept(record, Timestamp::from_millis(0)))
        };
        let found = ask_patiently(&Still, &self.waiting, &request(), ask).await.unwrap();
        assert_eq!(judge(found.before.as_ref(), None, found.now), Verdict::Run);
    }

    /// A thread that waits.
    fn waiter(&self) -> thread::JoinHandle<()> {
        let place = self.clone();
        thread::spawn(move || block_on(place.wait()))
    }
}

#[test]
fn whoever_waits_is_woken_when_the_holder_lets_go() {
    explore(|| {
        let place = Place::held();
        let waiters = [place.waiter(), place.waiter()];
        place.release(token(1));
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        assert!(place.waiting.is_empty());
    });
}

#[test]
fn a_waiter_outlasts_one_holder_after_another() {
    explore(|| {
        let place = Place::held();
        let waiter = place.waiter();
        place.release(token(1));
        place.claim(token(2));
        place.release(token(2));
        waiter.join().unwrap();
        assert!(place.waiting.is_empty());
    });
}

#[test]
fn a_stale_holder_that_lets_go_meanwhile_strands_nobody() {
    explore(|| {
        let place = Place::held();
        let waiter = place.waiter();
        let waiting = Arc::clone(&place.waiting);
        let stale = thread::spawn(move || waiting.let_go(request().key(), token(1)));
        place.claim(token(2));
        place.release(token(2));
        stale.join().unwrap();
        waiter.join().unwrap();
        assert!(place.waiting.is_empty());
    });
}

#[test]
fn a_cancelled_waiter_strands_nobody_and_leaves_nothing_behind() {
    explore(|| {
        let place = Place::held();
        let cancelled = place.clone();
        let cancelled = thread::spawn(move || {
            block_on(async {
                let mut wait = pin!(cancelled.wait());
                // Polled once, and dropped.
                poll_fn(|context| Poll::Ready(wait.as_mut().poll(context).is_ready())).await;
            });
        });
        let waiter = place.waiter();
        place.release(token(1));
        cancelled.join().unwrap();
        waiter.join().unwrap();
        assert!(place.waiting.is_empty());
    });
}

#[test]
fn closing_waits_for_every_lease_that_is_being_ended() {
    explore(|| {
        let waiting = Arc::new(Waiting::default());
        let ended = Arc::new(Mutex::new(0));
        let endings = [(); 3].map(|()| {
            let (ending, ended) = (waiting.begins_to_end(), Arc::clone(&ended));
            thread::spawn(move || {
                *ended.lock().unwrap() += 1;
                drop(ending);
            })
        });
        block_on(waiting.all_ended());
        assert_eq!(*ended.lock().unwrap(), 3);
        endings.into_iter().for_each(|ending| ending.join().unwrap());
    });
}

/// A thread that has lost over the value of that name, takes its turn and counts itself while it has it.
fn takes_a_turn(
    values: &Arc<HotValues>,
    name: &'static str,
    inside: &Arc<AtomicUsize>,
) -> thread::JoinHandle<usize> {
    let (values, inside) = (Arc::clone(values), Arc::clone(inside));
    thread::spawn(move || {
        let contender = Contender::new(&values);
        contender.lost(&name);
        assert!(block_on(contender.wait()));
        let others = inside.fetch_add(1, Ordering::SeqCst);
        thread::yield_now();
        inside.fetch_sub(1, Ordering::SeqCst);
        others
    })
}

#[test]
fn who_takes_turns_is_alone_and_nobody_is_left_over() {
    explore(|| {
        let (values, inside) = (Arc::default(), Arc::default());
        let callers = [(); 4].map(|()| takes_a_turn(&values, "n", &inside));
        assert_eq!(callers.map(|caller| caller.join().unwrap()), [0; 4]);
        assert!(!values.any());
    });
}

#[test]
fn one_who_gives_up_in_the_line_or_with_its_turn_strands_nobody() {
    explore(|| {
        let (values, inside): (Arc<HotValues>, _) = (Arc::default(), Arc::default());
        let cancelled = Arc::clone(&values);
        let cancelled = thread::spawn(move || {
            block_on(async {
                let contender = Contender::new(&cancelled);
                contender.lost(&"n");
                let mut wait = pin!(contender.wait());
                // Polled once, and dropped.
                poll_fn(|context| Poll::Ready(wait.as_mut().poll(context).is_ready())).await;
                shuttle::future::yield_now().await;
            });
        });
        let callers = [(); 2].map(|()| takes_a_turn(&values, "n", &inside));
        cancelled.join().unwrap();
        assert_eq!(callers.map(|caller| caller.join().unwrap()), [0; 2]);
        assert!(!values.any());
    });
}

#[test]
fn turns_that_are_taken_over_at_any_time_strand_nobody() {
    explore(|| {
        runtime::ENDS_AT_ONCE.set(true);
        let (values, inside) = (Arc::default(), Arc::default());
        let callers = [(); 4].map(|()| takes_a_turn(&values, "n", &inside));
        assert!(callers.into_iter().all(|caller| caller.join().unwrap() < 4));
        assert!(!values.any());
    });
}

#[test]
fn callers_of_two_values_in_opposite_order_get_both_turns() {
    explore(|| {
        let values: Arc<HotValues> = Arc::default();
        let callers = [["a", "b"], ["b", "a"], ["a", "b"]].map(|names| {
            let values = Arc::clone(&values);
            thread::spawn(move || {
                let contender = Contender::new(&values);
                for name in names {
                    contender.lost(&name);
                    assert!(block_on(contender.wait()));
                }
            })
        });
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        assert!(!values.any());
    });
}
