//! Claim, run, complete, in one call.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::{Either, select};
use serde::{Serialize, de::DeserializeOwned};

use super::{Claim, Lease, LeaseError, LeaseTerms};
use crate::{
    EffectError, Error, ErrorKind, Idem, Outcome, Request, Store, Timestamp, Token,
    back_off::BackOff,
    error::BoxError,
    json::{decode_result, encode_result},
    time::BoxFuture,
    trouble::{Load, Trouble},
};

/// The pauses between the tries to record what was done.
const RETRIES: BackOff =
    BackOff { first: Duration::from_millis(20), longest: Duration::from_secs(1) };

/// What work that runs with a lease is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holding {
    /// The lease's [fencing token](Lease::token).
    pub token: Token,
    /// The token of the lease that this one [took over](Lease::took_over): if there is one, the work may have
    /// been done before.
    pub took_over: Option<Token>,
}

/// What becomes of a key whose work failed.
///
/// What the store does not let happen at once happens when the lease ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnFailure<T> {
    /// Nothing happened outside: the key is free when the call returns, and the next claim takes nothing over. If the
    /// lease itself took over, it is [ended](Lease::release) instead.
    Release,
    /// Something may have happened outside: the key is free when the call returns, and the next claim is told that
    /// it takes over.
    End,
    /// As [`OnFailure::End`], but nobody gets the key before the lease ends.
    Abandon,
    /// The failure is the result: this caller and every later one get this value, and the error is dropped.
    Remember(T),
}

/// What became of work that runs with a lease.
#[derive(Debug)]
#[must_use = "a conflict, a key in progress and a result that could not be recorded are outcomes, not errors"]
pub enum LeasedOutcome<T> {
    /// The work was done, and its result is recorded.
    Created(T),
    /// The key was completed before; this is the first result, and nothing ran.
    Replayed(T),
    /// The key is in use for a request with other parameters; nothing ran.
    Conflict,
    /// The key is held by another lease; nothing ran.
    InProgress {
        /// When the lease ends, unless it is renewed; by the store's clock.
        until: Timestamp,
        /// How long to wait before asking again: until the lease ends, if nothing happens before.
        retry_after: Duration,
    },
    /// A lease before ended without an answer, and the request [refuses to take over](Request::refuse_takeover): nothing
    /// ran.
    Unfinished {
        /// The token of that lease.
        token: Token,
        /// When it ended; by the store's clock.
        ended_at: Timestamp,
    },
    /// The work was done, and its result could not be recorded.
    Unrecorded {
        /// What the work returned.
        result: T,
        /// Why: [`ErrorKind::LeaseLost`] if the lease had ended, so that another may be doing the work again;
        /// otherwise the store's error, whose [certainty](Error::certainty) tells whether the result may be
        /// recorded all the same.
        error: Error,
    },
}

impl<T> From<Outcome<T>> for LeasedOutcome<T> {
    fn from(outcome: Outcome<T>) -> Self {
        match outcome {
            Outcome::Created(result) => Self::Created(result),
            Outcome::Replayed(result) => Self::Replayed(result),
            Outcome::Conflict => Self::Conflict,
            Outcome::InProgress { until, retry_after } => Self::InProgress { until, retry_after },
        }
    }
}

/// Gives back what no [`Outcome`] says: a result that could not be recorded, and an unfinished lease before.
impl<T> TryFrom<LeasedOutcome<T>> for Outcome<T> {
    type Error = LeasedOutcome<T>;

    fn try_from(outcome: LeasedOutcome<T>) -> Result<Self, LeasedOutcome<T>> {
        match outcome {
            LeasedOutcome::Created(result) => Ok(Self::Created(result)),
            LeasedOutcome::Replayed(result) => Ok(Self::Replayed(result)),
            LeasedOutcome::Conflict => Ok(Self::Conflict),
            LeasedOutcome::InProgress { until, retry_after } => {
                Ok(Self::InProgress { until, retry_after })
            }
            LeasedOutcome::Unfinished { .. } | LeasedOutcome::Unrecorded { .. } => Err(outcome),
        }
    }
}

impl<S: Store + 'static> Idem<S> {
    /// Claims the key, runs `work` while the lease holds it, and completes the key with the result: for an effect outside
    /// the store.
    ///
    /// A [`Duration`] is a lease that is not renewed: the work must be done well within it. [`LeaseTerms::keep_alive`]
    /// renews it beside the work. When a lease that is kept alive is lost the work goes on all the same, and its result
    /// is [unrecorded](LeasedOutcome::Unrecorded).
    ///
    /// When the work fails, `on_failure` says what becomes of the key. It needs the error's type:
    /// `|_: &MyError| OnFailure::End`.
    ///
    /// When the result cannot be recorded because the store cannot be reached, is busy, takes no writes or fails in
    /// its own way, that is tried again until the time of the lease has passed: since the claim, or since the end of the
    /// work if the lease was kept alive.
    ///
    /// # Errors
    /// [`ErrorKind::Work`] if the work failed, with its error as the source ([`Error::effect_error`]), unless the
    /// failure is remembered. Before the work begins: those of [`Idem::claim`], and
    /// [`ErrorKind::InvalidDuration`] for terms that make no sense.
    ///
    /// # Panics
    /// If the work does; the lease is then ended as if it had been dropped.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and the lease: the next claim takes over.
    pub fn run_leased<T, E, W, R, P>(
        &self,
        request: &Request,
        terms: impl Into<LeaseTerms>,
        on_failure: P,
        work: W,
    ) -> impl Future<Output = Result<LeasedOutcome<T>, Error>> + Send
    where
        T: Serialize + DeserializeOwned + Send,
        E: Into<BoxError> + Send,
        W: FnOnce(Holding) -> R + Send,
        R: Future<Output = Result<T, E>> + Send,
        P: FnOnce(&E) -> OnFailure<T> + Send,
    {
        let commit = |lease: Lease<S, T>, stored| lease.finish_with(Ok(stored));
        self.run_and_record(request, terms.into(), on_failure, work, (Load::Nothing, commit))
    }

    /// As [`Idem::run_leased`], with a last step: `record` writes what belongs into the store after the effect outside,
    /// in the commit that completes the key.
    ///
    /// It gets the result as it is stored, and is as every effect: it must touch nothing but its transaction, and may run
    /// more than once; see [`Idem::execute`]. If it fails or panics, the outcome is [`LeasedOutcome::Unrecorded`] with its
    /// error, nothing is written, and the lease is ended: the next claim takes over. It runs for a failure that is
    /// [remembered](OnFailure::Remember), too.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), idem_core::Error> {
    /// use idem_core::{Idem, LeasedOutcome, OnFailure, Request, Store, Transaction};
    /// use std::time::Duration;
    ///
    /// async fn pay<S: Store>(idem: &Idem<S>, request: &Request) -> Result<(), idem_core::Error> {
    ///     let on_failure = |_: &std::io::Error| OnFailure::End;
    ///     let charge = |_| async { Ok(1995_u64) }; // yours: the call to the provider
    ///     let outcome = idem.run_leased_then(request, Duration::from_secs(30), on_failure, charge, |tx, cents| {
    ///         tx.put(b"charged", cents.to_string().as_bytes())?;
    ///         Ok(())
    ///     }).await?;
    ///     assert!(!matches!(outcome, LeasedOutcome::Unrecorded { .. }));
    ///     Ok(())
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Idem::run_leased`].
    ///
    /// # Panics
    /// As [`Idem::run_leased`].
    ///
    /// # Cancel safety
    /// As [`Idem::run_leased`].
    pub fn run_leased_then<T, E, W, R, P, F>(
        &self,
        request: &Request,
        terms: impl Into<LeaseTerms>,
        on_failure: P,
        work: W,
        record: F,
    ) -> impl Future<Output = Result<LeasedOutcome<T>, Error>> + Send
    where
        T: Serialize + DeserializeOwned + Send,
        E: Into<BoxError> + Send,
        W: FnOnce(Holding) -> R + Send,
        R: Future<Output = Result<T, E>> + Send,
        P: FnOnce(&E) -> OnFailure<T> + Send,
        F: FnMut(&mut S::Transaction, &T) -> Result<(), EffectError> + Send + 'static,
    {
        // Each try takes it along.
        let record = Arc::new(Mutex::new(record));
        let commit = move |lease: Lease<S, T>, stored: Bytes| {
            let record = Arc::clone(&record);
            lease.finish_by(move |tx: &mut S::Transaction| {
                // After a panic it is as the panic left it, as in any store that runs it again.
                let mut record = record.lock().unwrap_or_else(PoisonError::into_inner);
                record(tx, &decode_result(&stored)?)?;
                Ok(stored.clone())
            })
        };
        self.run_and_record(request, terms.into(), on_failure, work, (Load::Effect, commit))
    }

    fn run_and_record<T, E, W, R, P, C, D>(
        &self,
        request: &Request,
        terms: LeaseTerms,
        on_failure: P,
        work: W,
        commit: (Load, C),
    ) -> impl Future<Output = Result<LeasedOutcome<T>, Error>> + Send
    where
        T: Serialize + DeserializeOwned + Send,
        E: Into<BoxError> + Send,
        W: FnOnce(Holding) -> R + Send,
        R: Future<Output = Result<T, E>> + Send,
        P: FnOnce(&E) -> OnFailure<T> + Send,
        C: Fn(Lease<S, T>, Bytes) -> D + Send + Sync,
        D: Future<Output = Result<(Bytes, Lease<S, T>), LeaseError<S, T>>> + Send,
    {
        // Said to be Send here, where the store is any store: see `Idem::execute`.
        async move {
            let renewal = terms.renewal()?;
            let mut held = match self.claim::<T>(request, terms.lease()).await? {
                Claim::Acquired(held) => held,
                Claim::Replayed(result) => return Ok(LeasedOutcome::Replayed(result)),
                Claim::Conflict => return Ok(LeasedOutcome::Conflict),
                Claim::InProgress { until, retry_after } => {
                    return Ok(LeasedOutcome::InProgress { until, retry_after });
                }
                Claim::Unfinished { token, ended_at } => {
                    return Ok(LeasedOutcome::Unfinished { token, ended_at });
                }
            };
            let mut patience = self.store().sleep(terms.lease());
            let work = work(Holding { token: held.token(), took_over: held.took_over() });
            let done = match renewal {
                None => work.await,
                Some(renewal) => {
                    let kept = held.keep_alive_from_claim(renewal, work).await;
                    patience = self.store().sleep(terms.lease());
                    kept.output
                }
            };
            match done {
                Ok(result) => Ok(held.record(result, patience, commit).await),
                Err(failure) => match on_failure(&failure) {
                    OnFailure::Remember(result) => Ok(held.record(result, patience, commit).await),
                    OnFailure::Release => {
                        // What cannot be released is ended as the lease is dropped.
                        drop(held.release().await);
                        Err(failed(failure))
                    }
                    OnFailure::End => {
                        drop(held.end().await);
                        Err(failed(failure))
                    }
                    OnFailure::Abandon => {
                        held.abandon();
                        Err(failed(failure))
                    }
                },
            }
        }
    }
}

fn failed(failure: impl Into<BoxError>) -> Error {
    Error::nothing_done(ErrorKind::Work).with_source(failure)
}

impl<S: Store + 'static, T: Serialize + DeserializeOwned + Send> Lease<S, T> {
    /// Completes the key, and tries again until `patience` ends while the store is out of reach. The load says whether the
    /// commit carries an effect, which may be what the store cannot commit.
    async fn record<C, D>(
        mut self,
        result: T,
        mut patience: BoxFuture<()>,
        (load, commit): (Load, C),
    ) -> LeasedOutcome<T>
    where
        C: Fn(Self, Bytes) -> D,
        D: Future<Output = Result<(Bytes, Self), LeaseError<S, T>>>,
    {
        let stored = match encode_result(&result) {
            Ok(stored) => stored,
            Err(error) => return LeasedOutcome::Unrecorded { result, error },
        };
        let mut failures = 0;
        loop {
            let (error, lease) = match commit(self, stored.clone()).await {
                Ok((stored, _)) => {
                    return match decode_result(&stored) {
                        Ok(result) => LeasedOutcome::Created(result),
                        Err(error) => LeasedOutcome::Unrecorded { result, error },
                    };
                }
                Err(failed) => failed.into_parts(),
            };
            if !may_pass(&error, load) {
                return LeasedOutcome::Unrecorded { result, error };
            }
            self = lease;
            failures += 1;
            let pause = self.held.idem.store().sleep(RETRIES.pause(failures));
            if let Either::Right(_) = select(pause, &mut patience).await {
                return LeasedOutcome::Unrecorded { result, error };
            }
        }
    }
}

fn may_pass(error: &Error, load: Load) -> bool {
    match Trouble::of(error, load) {
        Trouble::Store | Trouble::Key => true,
        Trouble::Closed | Trouble::Call => false,
    }
}
