//! Claiming a key.

use std::{fmt, time::Duration};

use bytes::Bytes;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::{
    guard::Lease,
    step::{Acquire, TakeBack},
};
use crate::{
    Certainty, Committed, Error, ErrorKind, Idem, Key, Outcome, Request, Span, State, Store,
    Timestamp, Token, Unfinished, Verdict, json::decode_result, judge, waiting::ask_patiently,
};

/// What became of a claim.
#[must_use = "an acquired lease that is dropped is ended"]
pub enum Claim<S: Store + 'static, T> {
    /// The key is held by this lease.
    Acquired(Lease<S, T>),
    /// The key was completed before; this is the first result.
    Replayed(T),
    /// The key is in use for a request with other parameters.
    Conflict,
    /// The key is held by another lease.
    InProgress {
        /// When the lease ends, unless it is renewed; by the store's clock.
        until: Timestamp,
        /// How long to wait before asking again: until the lease ends, if nothing happens before.
        retry_after: Duration,
    },
    /// A lease before ended without an answer, and the request [refuses to take over](Request::refuse_takeover): nothing
    /// was written.
    Unfinished {
        /// The token of that lease.
        token: Token,
        /// When it ended; by the store's clock.
        ended_at: Timestamp,
    },
}

impl<S: Store + 'static, T> Claim<S, T> {
    /// The lease, if the key is held by it now.
    pub fn lease(self) -> Option<Lease<S, T>> {
        match self {
            Self::Acquired(lease) => Some(lease),
            Self::Replayed(_)
            | Self::Conflict
            | Self::InProgress { .. }
            | Self::Unfinished { .. } => None,
        }
    }
}

/// Gives back what no [`Outcome`] says: the lease, and an unfinished one before.
impl<S: Store + 'static, T> TryFrom<Claim<S, T>> for Outcome<T> {
    type Error = Claim<S, T>;

    fn try_from(claim: Claim<S, T>) -> Result<Self, Claim<S, T>> {
        match claim {
            Claim::Replayed(result) => Ok(Self::Replayed(result)),
            Claim::Conflict => Ok(Self::Conflict),
            Claim::InProgress { until, retry_after } => Ok(Self::InProgress { until, retry_after }),
            Claim::Acquired(_) | Claim::Unfinished { .. } => Err(claim),
        }
    }
}

// A result may be a secret: not in a log.
impl<S: Store + 'static, T> fmt::Debug for Claim<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acquired(lease) => f.debug_tuple("Acquired").field(lease).finish(),
            Self::Replayed(_) => f.write_str("Replayed"),
            Self::Conflict => f.write_str("Conflict"),
            Self::InProgress { until, retry_after } => f
                .debug_struct("InProgress")
                .field("until", until)
                .field("retry_after", retry_after)
                .finish(),
            Self::Unfinished { token, ended_at } => f
                .debug_struct("Unfinished")
                .field("token", token)
                .field("ended_at", ended_at)
                .finish(),
        }
    }
}

impl<S: Store + 'static> Idem<S> {
    /// Holds the key for `lease`, unless it is completed or held, for an effect outside the store.
    ///
    /// The lease ends by itself at that time by the store's clock, in whole milliseconds (rounded up), so that a crash of
    /// its holder blocks the key no longer. Until then it is the only one.
    ///
    /// # After a lease that ended
    /// A lease that ended without [completing](Lease::complete) or [releasing](Lease::release) the key leaves an unknown
    /// outcome: what its holder did outside may have happened. The next claim with the same parameters takes over, and
    /// [names the token](Lease::took_over) of that lease; or it answers [`Claim::Unfinished`] if the request
    /// [refuses to take over](Request::refuse_takeover). A claim with other parameters is a conflict.
    ///
    /// That lasts for the request's retention, counted from the lease's end. Then the record counts as none: the next
    /// claim takes nothing over. The retention of a receipt counts from the completion.
    ///
    /// [`Idem::execute`] on such a key with the same parameters runs and is told nothing: do not mix the two on one key.
    /// An operator who knows the outcome [settles](Idem::settle) it.
    ///
    /// While a live lease holds the key, the outcome is [`Claim::InProgress`], at once or after the request has
    /// [waited](Request::wait_for).
    ///
    /// # Errors
    /// A lease or a retention that is zero or too long; a stored result that is no `T`; the store's own.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the key untouched or claimed. A claim that never reached its caller is released in the
    /// background, best effort: nothing was done under it. One that took over is ended instead, so that the evidence
    /// stays. What cannot be released ends by itself.
    pub fn claim<T: DeserializeOwned>(
        &self,
        request: &Request,
        lease: Duration,
    ) -> impl Future<Output = Result<Claim<S, T>, Error>> + Send {
        self.claim_of(request, lease, decode_result)
    }

    /// As [`Idem::claim`], for a result of bytes that is stored and replayed as it is.
    ///
    /// # Errors
    /// As [`Idem::claim`], but for what concerns JSON.
    ///
    /// # Cancel safety
    /// As [`Idem::claim`].
    pub fn claim_bytes(
        &self,
        request: &Request,
        lease: Duration,
    ) -> impl Future<Output = Result<Claim<S, Bytes>, Error>> + Send {
        self.claim_of(request, lease, |stored| Ok(stored.clone()))
    }

    fn claim_of<T>(
        &self,
        request: &Request,
        lease: Duration,
        decode: fn(&Bytes) -> Result<T, Error>,
    ) -> impl Future<Output = Result<Claim<S, T>, Error>> + Send {
        let lease = Span::new("lease", lease);
        // Said to be Send here, where the store is any store: see `Idem::execute`.
        async move {
            let lease = lease?;
            let committed = ask_patiently(self.store(), self.waiting(), request, || {
                self.ask_for(request, lease)
            })
            .await?;
            match Lease::acquired(self, request, lease, &committed) {
                Some(lease) => Ok(Claim::Acquired(lease)),
                None => Claim::refused(&committed, request, decode),
            }
        }
    }

    fn ask_for(
        &self,
        request: &Request,
        lease: Span,
    ) -> impl Future<Output = Result<Committed, Error>> + Send {
        async move {
            let attempt = Uuid::new_v4();
            let step = Acquire::new(request, lease, attempt)?;
            let mut asked = Asked { idem: self, key: request.key(), attempt, is_settled: false };
            let answer = self.transact(request.key(), step).await;
            asked.is_settled = match &answer {
                Ok(_) => true,
                Err(error) => error.certainty() != Certainty::Unknown,
            };
            answer
        }
    }
}

impl<S: Store, T> Claim<S, T> {
    /// What a caller is told that did not get the key.
    fn refused(
        committed: &Committed,
        request: &Request,
        decode: fn(&Bytes) -> Result<T, Error>,
    ) -> Result<Self, Error> {
        if committed.ran {
            return Err(Error::new(
                ErrorKind::Contract("the record after a claim must be the claim"),
                Certainty::Unknown,
            ));
        }
        let verdict = judge(committed.before.as_ref(), request.fingerprint_value(), committed.now);
        if let (Verdict::TakeOver(Unfinished { token, ended_at }), true) =
            (verdict, request.refuses_takeover())
        {
            return Ok(Self::Unfinished { token, ended_at });
        }
        Ok(match Outcome::<Bytes>::of(committed, request.fingerprint_value())? {
            Outcome::Created(result) | Outcome::Replayed(result) => {
                Self::Replayed(decode(&result)?)
            }
            Outcome::Conflict => Self::Conflict,
            Outcome::InProgress { until, retry_after } => Self::InProgress { until, retry_after },
        })
    }
}

/// A claim that was asked for. If no answer arrives, dropping this takes the claim back in case it was committed.
struct Asked<'i, S: Store + 'static> {
    idem: &'i Idem<S>,
    key: &'i Key,
    attempt: Uuid,
    is_settled: bool,
}

impl<S: Store + 'static> Drop for Asked<'_, S> {
    fn drop(&mut self) {
        if self.is_settled || !self.idem.waiting().home.is_here() {
            return;
        }
        let (idem, key, attempt) = (self.idem.clone(), self.key.clone(), self.attempt);
        let ending = idem.waiting().begins_to_end();
        self.idem.store().detach(Box::pin(async move {
            // What cannot be taken back now ends by itself.
            drop(idem.transact(&key, TakeBack(attempt)).await);
            idem.waiting().changed(&key);
            drop(ending);
        }));
    }
}

impl<S: Store + 'static, T> Lease<S, T> {
    /// The lease of a claim that came into force.
    fn acquired(
        idem: &Idem<S>,
        request: &Request,
        lease: Span,
        committed: &Committed,
    ) -> Option<Self> {
        let claim = committed.after.clone().filter(|_| committed.ran)?;
        let State::Claimed { token, took_over, .. } = claim.state else { return None };
        Some(Self::new(idem, request, lease, claim, token, took_over))
    }
}
