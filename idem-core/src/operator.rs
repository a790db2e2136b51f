//! What an operator does to a key: forgetting it, ending its lease, settling what nobody knows the outcome of.

use bytes::Bytes;
use uuid::Uuid;

use crate::{
    Change, Committed, Error, Idem, Key, Phase, Record, State, Step, Store, Timestamp, Token,
    decision::held_until, protocol::within,
};

/// What became of work whose lease ended without an answer.
#[derive(Clone, PartialEq, Eq)]
pub enum Settlement {
    /// It was done, with this result: JSON if the key is asked for through [`Idem::execute`] or [`Idem::claim`], see
    /// [`encode_result`](crate::encode_result).
    Completed(Bytes),
    /// The work did not happen, and the holder will not do it later.
    NothingHappened,
}

// A result may be a secret: not in a log.
impl std::fmt::Debug for Settlement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Completed(result) => {
                f.debug_tuple("Completed").field(&format_args!("{} bytes", result.len())).finish()
            }
            Self::NothingHappened => f.write_str("NothingHappened"),
        }
    }
}

impl<S: Store> Idem<S> {
    /// Forgets a key, so that the next call runs, and returns whether there was something to forget: a live receipt, or
    /// the record of an ended lease.
    ///
    /// # Errors
    /// [`ErrorKind::InProgress`](crate::ErrorKind::InProgress) if a live lease holds the key; the store's own.
    ///
    /// # Cancel safety
    /// Dropping the future at any point leaves the key forgotten or untouched.
    pub async fn forget(&self, key: &Key) -> Result<bool, Error> {
        let committed = self.transact(key, Forget).await?;
        refuse_held(&committed)?;
        let now = committed.now;
        Ok(committed.before.is_some_and(|before| before.phase(now) != Phase::Gone))
    }

    /// Settles a key whose lease ended without an answer, for an operator who has found out what became of the work.
    /// Returns whether there was such a lease to settle.
    ///
    /// After [`Settlement::Completed`] every caller with the parameters of that lease gets the result, for the retention
    /// that the lease was claimed with, counted from now. After [`Settlement::NothingHappened`] the key is free, also for
    /// other parameters.
    ///
    /// A receipt is left as it is: then nothing was unknown, and the answer is `false`. It settles whatever lease has ended
    /// last: [list](Idem::list_where) the key again just before, and compare the token with the one that you looked into.
    ///
    /// # Errors
    /// [`ErrorKind::InProgress`](crate::ErrorKind::InProgress) if a live lease holds the key: [end](Idem::end_held) it
    /// first. [`ErrorKind::ResultTooLarge`](crate::ErrorKind::ResultTooLarge); the store's own.
    ///
    /// # Cancel safety
    /// Dropping the future at any point leaves the key settled or untouched.
    pub async fn settle(&self, key: &Key, settlement: Settlement) -> Result<bool, Error> {
        let settlement = match settlement {
            Settlement::Completed(result) => {
                Settlement::Completed(within(self.result_limit(), result)?)
            }
            Settlement::NothingHappened => Settlement::NothingHappened,
        };
        let committed = self.transact(key, Settle { settlement, attempt: Uuid::new_v4() }).await?;
        refuse_held(&committed)?;
        Ok(committed.ran)
    }

    /// Ends the live lease of a key, whoever holds it, and returns its token; none if no lease was live.
    ///
    /// The key is then as after any lease that ended without an answer: the next claim takes over, and the holder's next
    /// step fails with [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost). The holder's work goes on until then: only
    /// the fencing token keeps it from what the lease protects.
    ///
    /// Who [waits](crate::Request::wait_for) for the key through this front, or a clone, is woken. Through the holder's
    /// own front, if that is another, it is woken when the holder's next step fails, or when the lease's time has passed.
    ///
    /// # Errors
    /// The store's own.
    ///
    /// # Cancel safety
    /// Dropping the future at any point leaves the lease ended or untouched.
    pub async fn end_held(&self, key: &Key) -> Result<Option<Token>, Error> {
        let committed = self.transact(key, EndHeld).await?;
        if !committed.ran {
            return Ok(None);
        }
        self.waiting().changed(key);
        Ok(committed.before.and_then(|before| match before.state {
            State::Claimed { token, .. } => Some(token),
            State::Completed { .. } => None,
        }))
    }
}

/// Fails if a live lease was in the way.
fn refuse_held(committed: &Committed) -> Result<(), Error> {
    let found = committed.before.as_ref().filter(|_| !committed.ran);
    match held_until(found, committed.now) {
        Some(until) => Err(committed.in_progress(until)),
        None => Ok(()),
    }
}

/// Removes what is recorded for the key, unless it is a live lease.
struct Forget;

impl<Tx: ?Sized> Step<Tx> for Forget {
    fn proceeds(&self, record: Option<&Record>, now: Timestamp) -> bool {
        record.is_some() && held_until(record, now).is_none()
    }

    fn effectless(&self) -> bool {
        true
    }

    fn run(&mut self, _: &mut Tx, _: Option<&Record>, _: Timestamp) -> Result<Change, Error> {
        Ok(Change::Remove)
    }
}

/// Ends the live lease of the key.
struct EndHeld;

impl<Tx: ?Sized> Step<Tx> for EndHeld {
    fn proceeds(&self, record: Option<&Record>, now: Timestamp) -> bool {
        held_until(record, now).is_some()
    }

    fn effectless(&self) -> bool {
        true
    }

    fn run(&mut self, _: &mut Tx, _: Option<&Record>, _: Timestamp) -> Result<Change, Error> {
        Ok(Change::End)
    }
}

/// Gives an ended lease its outcome.
struct Settle {
    settlement: Settlement,
    attempt: Uuid,
}

impl<Tx: ?Sized> Step<Tx> for Settle {
    fn proceeds(&self, record: Option<&Record>, now: Timestamp) -> bool {
        record.is_some_and(|record| record.phase(now) == Phase::Ended)
    }

    fn effectless(&self) -> bool {
        true
    }

    fn run(&mut self, _: &mut Tx, record: Option<&Record>, _: Timestamp) -> Result<Change, Error> {
        let Some(Record { fingerprint, state: State::Claimed { keep, .. }, .. }) = record else {
            return Ok(Change::Keep);
        };
        Ok(match &self.settlement {
            Settlement::NothingHappened => Change::Remove,
            Settlement::Completed(result) => Change::Complete {
                fingerprint: *fingerprint,
                attempt: self.attempt,
                result: result.clone(),
                retention: *keep,
            },
        })
    }
}
