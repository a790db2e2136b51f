//! Claim, run, complete, in one call.

use std::time::Duration;

use futures_util::future::{Either, select};
use serde::{Serialize, de::DeserializeOwned};

use super::{Claim, Lease};
use crate::{
    Error, ErrorKind, Idem, Request, Store, Timestamp, Token,
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

impl<S: Store + 'static> Idem<S> {
    /// Claims the key for `lease`, runs `work`, and completes the key with its result: for an effect outside the
    /// store that is done well within the lease, which is not renewed. For more, see [`Idem::claim`].
    ///
    /// When the work fails, `on_failure` says what becomes of the key. It needs the error's type:
    /// `|_: &MyError| OnFailure::End`.
    ///
    /// When the result cannot be recorded because the store cannot be reached, is busy, takes no writes or fails in
    /// its own way, that is tried again until the time of the lease has passed since the claim.
    ///
    /// # Errors
    /// [`ErrorKind::Work`] if the work failed, with its error as the source ([`Error::effect_error`]), unless the
    /// failure is remembered; before the work begins, those of [`Idem::claim`].
    ///
    /// # Panics
    /// If the work does; the lease is then ended as if it had been dropped.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and the lease: the next claim takes over.
    pub fn run_leased<T, E, W, R, P>(
        &self,
        request: &Request,
        lease: Duration,
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
        // Said to be Send here, where the store is any store: see `Idem::execute`.
        async move {
            let held = match self.claim::<T>(request, lease).await? {
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
            let patience = self.store().sleep(lease);
            let holding = Holding { token: held.token(), took_over: held.took_over() };
            match work(holding).await {
                Ok(result) => Ok(held.record(result, patience).await),
                Err(failure) => match on_failure(&failure) {
                    OnFailure::Remember(result) => Ok(held.record(result, patience).await),
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
    /// Completes the key, and tries again until `patience` ends while the store is out of reach.
    async fn record(mut self, result: T, mut patience: BoxFuture<()>) -> LeasedOutcome<T> {
        let stored = match encode_result(&result) {
            Ok(stored) => stored,
            Err(error) => return LeasedOutcome::Unrecorded { result, error },
        };
        let mut failures = 0;
        loop {
            let (error, lease) = match self.finish_with(Ok(stored.clone())).await {
                Ok((stored, _)) => {
                    return match decode_result(&stored) {
                        Ok(result) => LeasedOutcome::Created(result),
                        Err(error) => LeasedOutcome::Unrecorded { result, error },
                    };
                }
                Err(failed) => failed.into_parts(),
            };
            if !may_pass(&error) {
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

fn may_pass(error: &Error) -> bool {
    match Trouble::of(error, Load::Nothing) {
        Trouble::Store | Trouble::Key => true,
        Trouble::Closed | Trouble::Call => false,
    }
}
