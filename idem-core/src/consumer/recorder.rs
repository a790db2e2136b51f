//! The mark of a consumer on an event.

use async_trait::async_trait;

use crate::{
    Committed, Error, ErrorKind, Key, Receipt, Record, Request, State, Store, Timestamp,
    decision::is_live,
    protocol::{Look, Mark},
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

/// Remembers which events a consumer has processed. Every [`Store`] is one.
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
        Ok(is_marked(self, &Key::event(consumer, event_id)?).await?.0)
    }

    async fn mark_processed(&self, consumer: &str, event_id: &str) -> Result<Marked, Error> {
        mark(self, &Request::new(Key::event(consumer, event_id)?).retain_forever()).await
    }
}

/// Whether the event of that key is marked, and the time that decided.
pub(super) async fn is_marked<S: Store + ?Sized>(
    store: &S,
    key: &Key,
) -> Result<(bool, Timestamp), Error> {
    let Committed { before, now, .. } = store.transact(key, Box::new(Look)).await?;
    Ok((before.is_some_and(|record| Receipt::live(&record, now).is_some()), now))
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
    match live(committed.before.as_ref(), committed.now) {
        Some(State::Completed { .. }) => Ok(Marked::Again),
        Some(State::Claimed { until, .. }) => {
            Err(Error::new(ErrorKind::InProgress { until: *until }))
        }
        None => Err(Error::new(ErrorKind::Contract("a step that proceeds on the record must run"))),
    }
}

fn live(record: Option<&Record>, now: Timestamp) -> Option<&State> {
    record.filter(|record| is_live(record, now)).map(|record| &record.state)
}
