//! The loop of the stores that can only compare and set.

use crate::{BoxStep, Change, Committed, Error, ErrorKind, Key, Record, Timestamp, run_step};

/// How often an effect whose reads were not one state runs before its caller gets
/// [`ErrorKind::Contended`].
pub const MISREAD_LIMIT: u32 = 32;

/// How often a call loses the race for its commit before its caller gets [`ErrorKind::Contended`].
///
/// Somebody else has committed each time, so a call that loses as often as this is starved by quicker ones,
/// or stands in its own way: its effect changes what it reads through a call of its own.
pub const RACE_LIMIT: u32 = 1000;

/// How often an effect runs without the values that it asks for, each of which is fetched for its next run,
/// before its caller gets [`ErrorKind::TooManyReads`].
pub const FETCH_LIMIT: u32 = 1000;

/// What a store that commits by compare-and-set offers to [`optimistic`].
///
/// Its atomic section is short and never runs an effect, so that a slow effect, or one that asks its own
/// store, blocks nobody.
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
    fn back_off(&self, attempt: u32) -> impl Future<Output = ()> + Send;
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

/// Runs `step` on `key` by compare-and-set: looks, asks, runs on a transaction of its own, commits if
/// nothing changed, and starts over if something did.
///
/// An error or a panic of the step is believed only if what it read was one state.
///
/// # Errors
/// The step's, the store's, or [`ErrorKind::Contended`].
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
