//! The mark of a consumer on an event.

use async_trait::async_trait;

use crate::{
    Committed, Error, ErrorKind, Fingerprint, Idem, Key, Request, Store,
    decision::{EventVerdict, judge_event},
    protocol::{Mark, Read},
};

/// Whether a mark was the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a caller that did not mark first may have repeated the work"]
pub enum Marked {
    /// This call marked the event.
    First,
    /// It was marked before.
    Again,
}

/// Remembers which events a consumer has processed, in marks of their own: what was done and not marked yet is done
/// again. Every [`Store`] is one, and so is an [`Idem`] over it.
///
/// A mark lives forever unless a [`Handler`](super::Handler) is told otherwise.
#[async_trait]
pub trait Recorder: Send + Sync {
    /// Whether `consumer` has processed the event.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`]; the store's own.
    ///
    /// # Cancel safety
    /// It reads; dropping the future changes nothing.
    async fn is_processed(&self, consumer: &str, event_id: &str) -> Result<bool, Error>;

    /// Marks the event as processed by `consumer`. Marking again is harmless and says so.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`]; [`ErrorKind::InProgress`] if a live lease holds the event; the store's own.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the event marked or not.
    async fn mark_processed(&self, consumer: &str, event_id: &str) -> Result<Marked, Error>;
}

#[async_trait]
impl<S: Store + ?Sized> Recorder for S {
    async fn is_processed(&self, consumer: &str, event_id: &str) -> Result<bool, Error> {
        let looked = look(self, &Key::event(consumer, event_id)?).await?;
        let verdict = judge_event(looked.before.as_ref(), None, looked.now);
        Ok(verdict == EventVerdict::Marked)
    }

    async fn mark_processed(&self, consumer: &str, event_id: &str) -> Result<Marked, Error> {
        mark(self, &Request::new(Key::event(consumer, event_id)?).retain_forever()).await
    }
}

#[async_trait]
impl<S: Store> Recorder for Idem<S> {
    async fn is_processed(&self, consumer: &str, event_id: &str) -> Result<bool, Error> {
        self.store().is_processed(consumer, event_id).await
    }

    async fn mark_processed(&self, consumer: &str, event_id: &str) -> Result<Marked, Error> {
        self.store().mark_processed(consumer, event_id).await
    }
}

/// What is recorded of the event of that key.
pub(super) async fn look<S: Store + ?Sized>(store: &S, key: &Key) -> Result<Committed, Error> {
    store.transact(key, Box::new(Read)).await
}

/// Marks the event of a request.
pub(super) async fn mark<S: Store + ?Sized>(store: &S, request: &Request) -> Result<Marked, Error> {
    let committed = store.transact(request.key(), Box::new(Mark::new(request)?)).await?;
    if committed.ran {
        return Ok(Marked::First);
    }
    match found(&committed, None)? {
        Found::Marked | Found::Other => Ok(Marked::Again),
        Found::Free => Err(did_not_run()),
    }
}

/// What stands in the way of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing.
    Free,
    /// It is marked.
    Marked,
    /// It is marked, or was held, with another payload.
    Other,
}

/// What a delivery with that payload finds; without one, the event alone decides.
///
/// # Errors
/// [`ErrorKind::InProgress`] if a live lease holds it.
pub(super) fn found(committed: &Committed, payload: Option<&Fingerprint>) -> Result<Found, Error> {
    match judge_event(committed.before.as_ref(), payload, committed.now) {
        EventVerdict::Run => Ok(Found::Free),
        EventVerdict::Marked => Ok(Found::Marked),
        EventVerdict::Conflict => Ok(Found::Other),
        EventVerdict::InProgress(until) => Err(committed.in_progress(until)),
    }
}

/// The error of a step that did not run on a free event.
pub(super) fn did_not_run() -> Error {
    Error::nothing_done(ErrorKind::Contract("a step that proceeds on the record must run"))
}
