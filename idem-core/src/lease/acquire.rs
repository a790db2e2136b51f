//! Claiming a key.

use std::{fmt, time::Duration};

use bytes::Bytes;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::{
    guard::{Lease, TakenOver},
    step::{Acquire, EndClaimOf},
};
use crate::{
    Certainty, Committed, Error, ErrorKind, Idem, Key, Outcome, Request, Span, State, Store,
    Timestamp, json::decode_result, waiting::ask_patiently,
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
}

impl<S: Store + 'static, T> Claim<S, T> {
    /// The lease, if the key is held by it now.
    pub fn lease(self) -> Option<Lease<S, T>> {
        match self {
            Self::Acquired(lease) => Some(lease),
            Self::Replayed(_) | Self::Conflict | Self::InProgress { .. } => None,
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
        }
    }
}

impl<S: Store + 'static> Idem<S> {
    /// Holds the key for `lease`, unless it is completed or held, for an effect outside the store.
    ///
    /// The lease ends by itself at that time by the store's clock, in whole milliseconds (rounded up), so that
    /// a crash of its holder blocks the key no longer. Until then it is the only one. Whoever claims the key
    /// after a lease that ended without [completing](Lease::complete) or [releasing](Lease::release) it takes
    /// over, and is [told so](Lease::took_over): what that holder did outside may have happened.
    ///
    /// An ended lease keeps nobody out, also not a request with other parameters: it takes over as well, and is
    /// [told that too](Lease::took_over_other). [`Idem::execute`] on such a key runs and is told nothing: do not
    /// mix the two on one key.
    ///
    /// The request's retention is that of the receipt, and counts from the completion. The record of a lease that
    /// ended is kept for as long, counted from the claim: after that it may be purged, and the next claim is not
    /// told of it. So retain for longer than a lease may be held in all.
    ///
    /// While a live lease holds the key, the outcome is [`Claim::InProgress`], at once or after the request has
    /// [waited](Request::wait_for).
    ///
    /// # Errors
    /// A lease or a retention that is zero or too long; a stored result that is no `T`; the store's own.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the key untouched or claimed. What was claimed is ended in the background as
    /// far as that is possible; otherwise the lease ends by itself. The next claim then takes over.
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
        Ok(match Outcome::<Bytes>::of(committed, request.fingerprint_value())? {
            Outcome::Created(result) | Outcome::Replayed(result) => {
                Self::Replayed(decode(&result)?)
            }
            Outcome::Conflict => Self::Conflict,
            Outcome::InProgress { until, retry_after } => Self::InProgress { until, retry_after },
        })
    }
}

/// A claim that was asked for; if its answer does not come, it is ended, should it have come into force.
struct Asked<'i, S: Store + 'static> {
    idem: &'i Idem<S>,
    key: &'i Key,
    attempt: Uuid,
    is_settled: bool,
}

impl<S: Store + 'static> Drop for Asked<'_, S> {
    fn drop(&mut self) {
        if self.is_settled {
            return;
        }
        let (idem, key, attempt) = (self.idem.clone(), self.key.clone(), self.attempt);
        let ending = idem.waiting().begins_to_end();
        self.idem.store().detach(Box::pin(async move {
            // What cannot be ended now ends by itself.
            drop(idem.transact(&key, EndClaimOf(attempt)).await);
            drop(ending);
        }));
    }
}

impl<S: Store + 'static, T> Lease<S, T> {
    /// The lease of a claim that came into force, and the one that it took over.
    fn acquired(
        idem: &Idem<S>,
        request: &Request,
        lease: Span,
        committed: &Committed,
    ) -> Option<Self> {
        let claim = committed.after.clone().filter(|_| committed.ran)?;
        let State::Claimed { token, .. } = claim.state else { return None };
        let took_over = committed.before.as_ref().and_then(|before| match before.state {
            State::Claimed { token, .. } => {
                Some(TakenOver { token, is_other: before.fingerprint != claim.fingerprint })
            }
            State::Completed { .. } => None,
        });
        Some(Self::new(idem, request, lease, claim, token, took_over))
    }
}
