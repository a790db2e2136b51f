//! The holder's side of a lease.

use std::{fmt, marker::PhantomData, time::Duration};

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use uuid::Uuid;

use super::step::{ByHolder, CompleteWith};
use crate::{
    Certainty, Change, Committed, EffectError, Error, ErrorKind, Idem, Key, Record, Request, Span,
    State, Step, Store, Timestamp, Token,
    json::{decode_result, encode_result},
    protocol::within,
};

/// A key that is held, from [`Idem::claim`], until it is completed, released, or the lease ends.
///
/// It belongs to nobody but its owner, and can move to another task. [Completing](Lease::complete) and
/// [releasing](Lease::release) take it, so that neither happens twice; if that fails it comes back in the error.
///
/// Dropping it ends the lease in the background, on a best effort: the key is then free, and whoever claims it
/// next is told that it takes over. So does a panic, and a lease that nobody ends ends by itself. [`Idem::close`]
/// waits for what was dropped; a process that exits without it may leave keys held until their leases end. To wait
/// for the end, [`Lease::end`] it. If nothing happened outside, say so by [`Lease::release`].
///
/// ```compile_fail,E0382
/// # use idem_core::{Lease, LeaseError, Store};
/// # async fn twice<S: Store + 'static>(lease: Lease<S, u64>) -> Result<(), LeaseError<S, u64>> {
/// lease.complete(1).await?;
/// lease.complete(2).await?; // use of moved value
/// # Ok(()) }
/// ```
///
/// # The token
/// The lease's [token](Lease::token) is a fencing token. A holder that was held up (a long pause, a slow network)
/// can still be at work when its lease has ended and another holds the key; only what the lease protects can
/// stop it then. Hand key and token to it, and let it refuse any token smaller than one that it has seen of that key:
/// those of two keys say nothing of each other.
#[must_use = "dropping a lease ends it, and says that something may have happened outside"]
pub struct Lease<S: Store + 'static, T> {
    pub(super) held: Box<Held<S>>,
    result: PhantomData<fn() -> T>,
}

pub(super) struct Held<S: Store + 'static> {
    pub(super) idem: Idem<S>,
    request: Request,
    /// As it was committed last.
    claim: Record,
    pub(super) token: Token,
    took_over: Option<Token>,
    pub(super) lease: Span,
    /// The id of the completion, one for however often it is tried: so a later try finds an earlier one.
    completion: Uuid,
    /// Whether a completion may have been committed, without our knowing.
    in_doubt: bool,
    /// Nothing is left to be ended.
    is_over: bool,
}

impl<S: Store + 'static, T> fmt::Debug for Lease<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("key", self.key())
            .field("token", &self.token())
            .field("took_over", &self.took_over())
            .field("until", &self.until())
            .finish_non_exhaustive()
    }
}

impl<S: Store + 'static, T> Lease<S, T> {
    pub(super) fn new(
        idem: &Idem<S>,
        request: &Request,
        lease: Span,
        claim: Record,
        token: Token,
        took_over: Option<Token>,
    ) -> Self {
        idem.waiting().hold(request.key(), token);
        let held = Held {
            idem: idem.clone(),
            request: request.clone(),
            claim,
            token,
            took_over,
            lease,
            completion: Uuid::new_v4(),
            in_doubt: false,
            is_over: false,
        };
        Self { held: Box::new(held), result: PhantomData }
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &Key {
        self.held.request.key()
    }

    /// The fencing token: larger than that of every lease of the key before, whatever became of it.
    #[must_use]
    pub fn token(&self) -> Token {
        self.held.token
    }

    /// The token of the lease before, if that ended without an answer and this one took over: what its holder did outside
    /// may have happened. Both were claimed with the same parameters.
    ///
    /// None if there was none, if it was released or settled, or if its record was gone: its retention, counted from its
    /// end, had passed.
    #[must_use]
    pub fn took_over(&self) -> Option<Token> {
        self.held.took_over
    }

    /// When the lease ends, by the store's clock, as it was last claimed or renewed here.
    #[must_use]
    pub fn until(&self) -> Timestamp {
        self.held.ends_at()
    }

    /// Moves the end of the lease to `lease` from now: later or sooner.
    ///
    /// # Errors
    /// [`ErrorKind::LeaseLost`] if the lease has ended, also if nobody took over; a lease that is zero or too
    /// long; the store's own.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the lease renewed or as it was.
    pub fn renew(&mut self, lease: Duration) -> impl Future<Output = Result<(), Error>> + Send {
        async move {
            let lease = Span::new("lease", lease)?;
            self.held.extend(lease).await?;
            Ok(())
        }
    }

    /// Completes the key with `result`: every later caller gets it until the receipt expires, which counts from
    /// now. Returns what the receipt holds.
    ///
    /// Asked again after an error of unknown certainty, it finds out whether the first try was committed, and
    /// then returns that result. Until it has, whatever else the lease is asked for fails with that certainty too.
    ///
    /// # Errors
    /// The lease comes back in the error. [`ErrorKind::LeaseLost`] if it has ended, and then nothing was changed;
    /// a result that is over the limit, or that JSON would not give back; the store's own.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the key completed, or the lease is dropped.
    pub fn complete(self, result: T) -> impl Future<Output = Result<T, LeaseError<S, T>>> + Send
    where
        T: Serialize + DeserializeOwned,
    {
        let stored = encode_result(&result);
        async move {
            let (stored, lease) = self.finish_with(stored).await?;
            lease.decoded(&stored)
        }
    }

    /// Completes the key with what `effect` returns, and commits what it wrote together with the receipt: for
    /// what belongs into the store after the effect outside.
    ///
    /// The effect is as that of [`Idem::execute`]: it must touch nothing but its transaction, and may run more
    /// than once. It does not run if an earlier try to complete, of unknown certainty, is found committed.
    ///
    /// # Errors
    /// As [`Lease::complete`]; and the effect's own error or its panic, after which nothing was changed, and the
    /// lease is still held.
    ///
    /// # Cancel safety
    /// As [`Lease::complete`].
    pub fn complete_with<F>(
        self,
        mut effect: F,
    ) -> impl Future<Output = Result<T, LeaseError<S, T>>> + Send
    where
        T: Serialize + DeserializeOwned,
        F: FnMut(&mut S::Transaction) -> Result<T, EffectError> + Send + 'static,
    {
        async move {
            let effect = move |tx: &mut S::Transaction| encode_result(&effect(tx)?);
            let (stored, lease) = self.finish_by(effect).await?;
            lease.decoded(&stored)
        }
    }

    /// Lets go of the key: nothing happened outside under this lease. The key is free at once, also for other parameters,
    /// and the next claim takes nothing over.
    ///
    /// A lease that [took over](Lease::took_over) is ended instead, since what the holder before did may have happened:
    /// the next claim takes over. An operator who knows better [settles](Idem::settle) the key.
    ///
    /// # Errors
    /// The lease comes back in the error. [`ErrorKind::LeaseLost`] if it has ended, and then nothing was changed
    /// (after an error of unknown certainty it may also have been released); the store's own.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the key free, or the lease is dropped.
    pub fn release(self) -> impl Future<Output = Result<(), LeaseError<S, T>>> + Send {
        let change = if self.held.took_over.is_some() { Change::End } else { Change::Remove };
        self.give_up(change)
    }

    /// Ends the lease, as dropping it does, and waits for it: the key is free, and the next claim takes over.
    ///
    /// # Errors
    /// As [`Lease::release`].
    ///
    /// # Cancel safety
    /// Dropping the future ends the lease all the same, in the background.
    pub fn end(self) -> impl Future<Output = Result<(), LeaseError<S, T>>> + Send {
        self.give_up(Change::End)
    }

    async fn give_up(mut self, change: Change) -> Result<(), LeaseError<S, T>> {
        match self.held.ask(change).await {
            Ok(_) => {
                self.held.is_over = true;
                Ok(())
            }
            Err(error) => Err(LeaseError { error, lease: self }),
        }
    }

    /// Leaves the lease to its end: until then nobody gets the key, and the next claim takes over.
    pub fn abandon(mut self) {
        self.held.is_over = true;
    }

    pub(super) async fn finish_with(
        self,
        stored: Result<Bytes, Error>,
    ) -> Result<(Bytes, Self), LeaseError<S, T>> {
        match self.held.completion(stored) {
            Ok(change) => {
                let step = ByHolder::new(&self.held.claim, self.held.token, change);
                self.finish(step).await
            }
            Err(error) => Err(LeaseError { error, lease: self }),
        }
    }

    /// Completes the key with what an effect returns.
    pub(super) async fn finish_by<F>(self, mut effect: F) -> Result<(Bytes, Self), LeaseError<S, T>>
    where
        F: FnMut(&mut S::Transaction) -> Result<Bytes, Error> + Send + 'static,
    {
        let retention = match self.held.request.retention() {
            Ok(retention) => retention,
            Err(error) => return Err(LeaseError { error, lease: self }),
        };
        let limit = self.held.idem.result_limit();
        let step = CompleteWith {
            token: self.held.token,
            fingerprint: self.held.claim.fingerprint,
            retention,
            attempt: self.held.completion,
            effect: move |tx: &mut S::Transaction| within(limit, effect(tx)?),
            transaction: PhantomData,
        };
        self.finish(step).await
    }

    /// Takes the step that completes the key, and returns the result that it is completed with.
    async fn finish(
        mut self,
        step: impl Step<S::Transaction> + Send + 'static,
    ) -> Result<(Bytes, Self), LeaseError<S, T>> {
        match self.held.finish(step).await {
            Ok(result) => {
                self.held.is_over = true;
                Ok((result, self))
            }
            Err(error) => Err(LeaseError { error, lease: self }),
        }
    }

    fn decoded(self, stored: &Bytes) -> Result<T, LeaseError<S, T>>
    where
        T: DeserializeOwned,
    {
        decode_result(stored).map_err(|error| LeaseError { error, lease: self })
    }
}

impl<S: Store> Lease<S, Bytes> {
    /// As [`Lease::complete`], with a result of bytes that is stored and replayed as it is; for a lease by
    /// [`Idem::claim_bytes`].
    ///
    /// # Errors
    /// As [`Lease::complete`], but for what concerns JSON.
    ///
    /// # Cancel safety
    /// As [`Lease::complete`].
    pub fn complete_bytes(
        self,
        result: Bytes,
    ) -> impl Future<Output = Result<Bytes, LeaseError<S, Bytes>>> + Send {
        async move { Ok(self.finish_with(Ok(result)).await?.0) }
    }
}

impl<S: Store + 'static> Held<S> {
    pub(super) fn ends_at(&self) -> Timestamp {
        match self.claim.state {
            State::Claimed { until, .. } => until,
            // A lease has a claim.
            State::Completed { .. } => self.claim.created_at,
        }
    }

    pub(super) fn claimed_at(&self) -> Timestamp {
        self.claim.created_at
    }

    fn completion(&self, stored: Result<Bytes, Error>) -> Result<Change, Error> {
        Ok(Change::Complete {
            fingerprint: self.claim.fingerprint,
            attempt: self.completion,
            result: within(self.idem.result_limit(), stored?)?,
            retention: self.request.retention()?,
        })
    }

    async fn finish(
        &mut self,
        step: impl Step<S::Transaction> + Send + 'static,
    ) -> Result<Bytes, Error> {
        let committed = match self.idem.transact(self.request.key(), step).await {
            Ok(committed) => committed,
            Err(error) => {
                self.in_doubt |= error.certainty() == Certainty::Unknown;
                return Err(self.doubted(error));
            }
        };
        match committed.after {
            // An earlier try may have been committed, and its answer lost.
            Some(Record { attempt, state: State::Completed { result, .. }, .. })
                if attempt == self.completion =>
            {
                Ok(result)
            }
            _ => Err(self.refusal(committed.ran)),
        }
    }

    pub(super) async fn extend(&mut self, lease: Span) -> Result<Committed, Error> {
        let committed = self.ask(Change::Extend { lease }).await?;
        self.note(&committed);
        Ok(committed)
    }

    /// Takes note of the claim as it is now.
    pub(super) fn note(&mut self, committed: &Committed) {
        let Some(claim) = &committed.after else { return };
        let before = self.ends_at();
        self.claim.clone_from(claim);
        if self.ends_at() < before {
            // Who waits for the end as it was would wait for too long.
            self.idem.waiting().changed(self.request.key());
        }
    }

    /// Asks for a change as the holder.
    async fn ask(&self, change: Change) -> Result<Committed, Error> {
        self.take(ByHolder::new(&self.claim, self.token, change)).await
    }

    /// Takes a holder's step, which must run.
    pub(super) async fn take(
        &self,
        step: impl Step<S::Transaction> + Send + 'static,
    ) -> Result<Committed, Error> {
        let asked = self.idem.transact(self.request.key(), step).await;
        let committed = asked.map_err(|error| self.doubted(error))?;
        if committed.ran { Ok(committed) } else { Err(self.refusal(false)) }
    }

    /// The same error; of unknown certainty if a completion before it is.
    fn doubted(&self, error: Error) -> Error {
        if self.in_doubt { error.with_certainty(Certainty::Unknown) } else { error }
    }

    fn refusal(&self, ran: bool) -> Error {
        if ran {
            let rule = "the record after a completion must be the completed one";
            return Error::new(ErrorKind::Contract(rule), Certainty::Unknown);
        }
        // Who waits here for this lease need not wait any longer.
        self.idem.waiting().let_go(self.request.key(), self.token);
        self.doubted(Error::nothing_done(ErrorKind::LeaseLost { token: self.token }))
    }
}

impl<S: Store + 'static> Drop for Held<S> {
    fn drop(&mut self) {
        // In a forked child the lease is its parent's still.
        if !self.idem.waiting().home.is_here() {
            return;
        }
        let (idem, key, token) = (self.idem.clone(), self.request.key().clone(), self.token);
        if self.is_over {
            return idem.waiting().let_go(&key, token);
        }
        let end = ByHolder::new(&self.claim, token, Change::End);
        let ending = idem.waiting().begins_to_end();
        self.idem.store().detach(Box::pin(async move {
            // What cannot be ended now ends by itself.
            drop(idem.transact(&key, end).await);
            idem.waiting().let_go(&key, token);
            drop(ending);
        }));
    }
}

/// A lease could not be completed or released. It is in here, to try again; dropping it ends the lease.
///
/// As an [`Error`] it is the reason alone, so that `?` in a function which returns that drops the lease. A boxed
/// error has the lease in it, held, until it is dropped: take it [apart](LeaseError::into_parts) where it matters.
pub struct LeaseError<S: Store + 'static, T> {
    error: Error,
    lease: Lease<S, T>,
}

impl<S: Store + 'static, T> LeaseError<S, T> {
    /// Why.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// Why, and the lease.
    pub fn into_parts(self) -> (Error, Lease<S, T>) {
        (self.error, self.lease)
    }
}

impl<S: Store + 'static, T> From<LeaseError<S, T>> for Error {
    fn from(failed: LeaseError<S, T>) -> Self {
        failed.error
    }
}

impl<S: Store + 'static, T> fmt::Debug for LeaseError<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseError")
            .field("error", &self.error)
            .field("lease", &self.lease)
            .finish()
    }
}

impl<S: Store + 'static, T> fmt::Display for LeaseError<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<S: Store + 'static, T> std::error::Error for LeaseError<S, T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}
