//! The loop of the stores that can only compare and set.

use std::{
    future::poll_fn,
    hash::{BuildHasher, RandomState},
    task::Poll,
};

use crate::{BoxStep, Change, Committed, Error, ErrorKind, Key, Record, Timestamp, run_step};

/// How often an effect whose reads were not one state runs before its caller gets
/// [`ErrorKind::Contended`].
pub const MISREAD_LIMIT: u32 = 32;

/// How often a call loses the race for its commit before its caller gets [`ErrorKind::Contended`].
///
/// Somebody else has committed each time, or had the turn, so a call that loses as often as this is starved by quicker ones,
/// or stands in its own way: its effect changes what it reads through a call of its own.
pub const RACE_LIMIT: u32 = 1000;

/// How often an effect runs without the values that it asks for, each of which is fetched for its next run,
/// before its caller gets [`ErrorKind::TooManyReads`].
pub const FETCH_LIMIT: u32 = 1000;

/// What a store that commits by compare-and-set offers to [`optimistic`].
///
/// Its atomic section is short and never runs an effect, so that a slow effect, or one that asks its own
/// store, blocks nobody.
///
/// Implement it on a private type that refers to the store: with one that it can name, an effect could
/// [begin](Optimistic::begin) another transaction and put it in its own's place.
pub trait Optimistic: Send + Sync {
    /// What an effect writes through: an [`Overlay`](crate::Overlay), or something over one.
    type Transaction: Send;

    /// The key's record and the time, the record read first.
    fn look(&self, key: &Key) -> impl Future<Output = Result<Look, Error>> + Send;

    /// A transaction in which nothing has happened yet.
    fn begin(&self, key: &Key) -> Self::Transaction;

    /// Whether the transaction was asked for values that it did not have, so that the next look must fetch
    /// them and the step must run again, whatever it ended with.
    ///
    /// For a store whose transactions cannot read while an effect runs.
    fn lacks(&self, transaction: &Self::Transaction) -> bool {
        let _ = transaction;
        false
    }

    /// Commits `change` and the transaction's writes together, if the record and all that the
    /// transaction read are unchanged. Otherwise does nothing.
    fn commit(
        &self,
        key: &Key,
        seen: &Look,
        transaction: &Self::Transaction,
        change: Change,
    ) -> impl Future<Output = Result<Applied, Error>> + Send;

    /// Whether the record and all that the transaction read are unchanged, all at one instant.
    fn is_unchanged(
        &self,
        key: &Key,
        seen: &Look,
        transaction: &Self::Transaction,
    ) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Lets others go first after the attempt of that number, from 1, lost its race.
    ///
    /// By default it gives some turns to the other tasks: whoever won is done already. A store whose callers wait
    /// between their look and their commit has the losers take turns: see `HotValues` (feature `tokio`).
    fn back_off(&self, attempt: u32) -> impl Future<Output = ()> + Send {
        yield_turns(attempt)
    }
}

/// What an attempt decides on.
#[derive(Clone, Debug)]
pub struct Look {
    /// The key's record.
    pub record: Option<Record>,
    /// The time of the attempt.
    pub now: Timestamp,
}

/// What became of an attempt to commit.
#[derive(Debug)]
pub enum Applied {
    /// It is committed.
    Committed {
        /// The record now.
        after: Option<Record>,
        /// The time that stamped it: that of the look, unless the store stamps at the commit.
        now: Timestamp,
    },
    /// Something had changed, and nothing was written.
    Stale,
}

/// Yields more often after each loss, and never as often as another loser.
pub(crate) async fn yield_turns(attempt: u32) {
    let most = u64::from(attempt.min(16));
    let mut turns = 1 + RandomState::new().hash_one(attempt) % most;
    poll_fn(|context| {
        if turns == 0 {
            return Poll::Ready(());
        }
        turns -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Runs `step` on `key` by compare-and-set: looks, asks, runs on a transaction of its own, commits if
/// nothing changed, and starts over if something did.
///
/// An error or a panic of the step is believed only if what it read was one state.
///
/// # Errors
/// The step's, the store's, [`ErrorKind::Contended`] or [`ErrorKind::TooManyReads`].
///
/// # Cancel safety
/// As far as the store's `commit` is: nothing else writes.
pub async fn optimistic<O: Optimistic>(
    store: &O,
    key: &Key,
    mut step: BoxStep<O::Transaction>,
) -> Result<Committed, Error> {
    let (mut races, mut misreads, mut fetches) = (0, 0, 0);
    while races < RACE_LIMIT {
        let seen = store.look(key).await?;
        if !step.proceeds(seen.record.as_ref(), seen.now) {
            return Ok(Committed::kept(seen.record, seen.now));
        }
        let mut transaction = store.begin(key);
        let ran = run_step(&mut *step, &mut transaction, seen.record.as_ref(), seen.now);
        if store.lacks(&transaction) {
            fetches += 1;
            if fetches == FETCH_LIMIT {
                return Err(Error::nothing_done(ErrorKind::TooManyReads { rounds: fetches }));
            }
            continue;
        }
        races += 1;
        match ran {
            Ok(change) => {
                let applied = store.commit(key, &seen, &transaction, change).await?;
                if let Applied::Committed { after, now } = applied {
                    return Ok(Committed::ran(seen.record, after, now));
                }
            }
            Err(error) => {
                if store.is_unchanged(key, &seen, &transaction).await? {
                    return Err(error);
                }
                misreads += 1;
                if misreads >= MISREAD_LIMIT {
                    let kind = ErrorKind::Contended { attempts: misreads };
                    return Err(Error::nothing_done(kind).with_source(error));
                }
            }
        }
        store.back_off(races).await;
    }
    Err(Error::nothing_done(ErrorKind::Contended { attempts: RACE_LIMIT }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Certainty, Step};
    use std::{
        pin::pin,
        sync::{
            Arc,
            atomic::{AtomicU32, Ordering},
        },
        task::{Context, Waker},
    };

    /// A store whose first transactions lack what they are asked for, and whose first commits lose a race.
    #[derive(Default)]
    struct Flaky {
        lacking: AtomicU32,
        losing: AtomicU32,
        looks: AtomicU32,
    }

    fn take_one(count: &AtomicU32) -> bool {
        let less = |count: u32| count.checked_sub(1);
        count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok()
    }

    impl Optimistic for Flaky {
        type Transaction = ();

        async fn look(&self, _: &Key) -> Result<Look, Error> {
            let look = self.looks.fetch_add(1, Ordering::SeqCst) + 1;
            Ok(Look { record: None, now: Timestamp::from_millis(look.into()) })
        }

        fn begin(&self, _: &Key) {}

        fn lacks(&self, (): &()) -> bool {
            take_one(&self.lacking)
        }

        async fn commit(
            &self,
            _: &Key,
            seen: &Look,
            (): &(),
            change: Change,
        ) -> Result<Applied, Error> {
            if take_one(&self.losing) {
                return Ok(Applied::Stale);
            }
            let after = change.stamp(None, seen.now, || panic!("no claim"))?;
            Ok(Applied::Committed { after, now: seen.now })
        }

        async fn is_unchanged(&self, _: &Key, _: &Look, (): &()) -> Result<bool, Error> {
            Ok(!take_one(&self.losing))
        }

        async fn back_off(&self, _: u32) {}
    }

    /// Fails in its first runs, and counts them all.
    struct Counting {
        runs: Arc<AtomicU32>,
        failing: u32,
    }

    impl Step<()> for Counting {
        fn proceeds(&self, _: Option<&Record>, _: Timestamp) -> bool {
            true
        }

        fn run(&mut self, (): &mut (), _: Option<&Record>, _: Timestamp) -> Result<Change, Error> {
            let run = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
            if run <= self.failing {
                return Err(Error::nothing_done(ErrorKind::Effect));
            }
            Ok(Change::Keep)
        }
    }

    /// What comes of a step that fails so often, and how often it ran.
    fn run(store: &Flaky, failing: u32) -> (Result<Committed, Error>, u32) {
        let runs = Arc::new(AtomicU32::new(0));
        let step = Box::new(Counting { runs: Arc::clone(&runs), failing });
        let key = Key::new("t", "o", "k").unwrap();
        let future = pin!(optimistic(store, &key, step));
        let Poll::Ready(result) = future.poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("nothing of this store waits")
        };
        (result, runs.load(Ordering::SeqCst))
    }

    #[test]
    fn what_a_run_without_its_values_ended_with_is_not_believed() {
        let store = Flaky { lacking: 3.into(), ..Flaky::default() };
        let (committed, runs) = run(&store, 3);
        assert_eq!((committed.unwrap().now, runs), (Timestamp::from_millis(4), 4));
    }

    #[test]
    fn an_effect_that_asks_for_ever_more_ends_in_a_typed_error() {
        let store = Flaky { lacking: u32::MAX.into(), ..Flaky::default() };
        let (result, runs) = run(&store, 0);
        let error = result.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::TooManyReads { rounds: 1000 }), "{error:?}");
        assert_eq!((error.certainty(), runs), (Certainty::NothingDone, FETCH_LIMIT));
        let store = Flaky { lacking: (FETCH_LIMIT - 1).into(), ..Flaky::default() };
        assert!(run(&store, 0).0.is_ok());
    }

    #[test]
    fn a_caller_that_always_loses_ends_in_a_typed_error() {
        let store = Flaky { losing: RACE_LIMIT.into(), ..Flaky::default() };
        let (result, runs) = run(&store, 0);
        let error = result.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Contended { attempts: 1000 }), "{error:?}");
        assert_eq!((error.certainty(), runs), (Certainty::NothingDone, RACE_LIMIT));
        let store = Flaky { losing: (RACE_LIMIT - 1).into(), ..Flaky::default() };
        assert!(run(&store, 0).0.is_ok());
    }

    #[test]
    fn an_error_is_believed_once_what_was_read_is_unchanged() {
        let store = Flaky { losing: (MISREAD_LIMIT - 1).into(), ..Flaky::default() };
        let (result, runs) = run(&store, u32::MAX);
        assert!(matches!(result.unwrap_err().kind(), ErrorKind::Effect));
        assert_eq!(runs, MISREAD_LIMIT);
        let store = Flaky { losing: MISREAD_LIMIT.into(), ..Flaky::default() };
        let error = run(&store, u32::MAX).0.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Contended { attempts: 32 }), "{error:?}");
    }
}
