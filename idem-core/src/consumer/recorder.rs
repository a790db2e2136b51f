//! The mark of a consumer on an event.

use async_trait::async_trait;

use crate::{
    Committed, Error, ErrorKind, Idem, Key, Request, State, Store,
    decision::is_live,
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

/// Remembers which events a consumer has processed. Every [`Store`] is one, and so is an [`Idem`] over it.
///
/// A mark lives forever unless a [`Handler`](super::Handler) is told otherwise.
#[async_trait]
pub trait Recorder: Send + Sync {
    /// Whether `consumer` has processed the event.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`]; the store's own.
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
        Ok(matches!(live(&looked), Some(State::Completed { .. })))
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

pub(super) async fn mark<S: Store + ?Sized>(store: &S, request: &Request) -> Result<Marked, Error> {
    let committed = store.transact(request.key(), Box::new(Mark::new(request)?)).await?;
    first_or_again(&committed)
}

/// Whether the step of an event ran, or the event was done before.
pub(super) fn first_or_again(committed: &Committed) -> Result<Marked, Error> {
    if committed.ran {
        return Ok(Marked::First);
    }
    match done_before(committed)? {
        true => Ok(Marked::Again),
        false => Err(Error::nothing_done(ErrorKind::Contract(
            "a step that proceeds on the record must run",
        ))),
    }
}

/// Whether the event was done before.
///
/// # Errors
/// [`ErrorKind::InProgress`] if a live lease holds it.
pub(super) fn done_before(committed: &Committed) -> Result<bool, Error> {
    match live(committed) {
        Some(State::Completed { .. }) => Ok(true),
        Some(State::Claimed { until, .. }) => {
            Err(Error::nothing_done(ErrorKind::InProgress { until: *until }))
        }
        None => Ok(false),
    }
}

fn live(committed: &Committed) -> Option<&State> {
    let record = committed.before.as_ref();
    record.filter(|record| is_live(record, committed.now)).map(|record| &record.state)
}
