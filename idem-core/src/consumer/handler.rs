//! Handling each event once.

use std::{
    any::Any,
    fmt,
    future::{poll_fn, ready},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use bytes::Bytes;

use super::{Marked, recorder};
use crate::{
    EffectError, Error, ErrorKind, Idem, Key, Request, Store, error::BoxError, protocol::Execute,
    step::panic_message, time::BoxFuture,
};

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled {
    /// The handler ran, and the event is marked.
    Ran,
    /// The event was marked before; nothing ran.
    Duplicate,
}

/// Runs a consumer's handler once per event: a duplicate does not run, a success is marked, a failure is
/// not.
///
/// There are two modes. If the handler's effect lies in the store, make the handler
/// [atomic](Handler::atomic): its writes and the mark are one commit. If it lies outside, use
/// [`Handler::new`]: the mark follows the success, so a crash between the two, or two deliveries at the
/// same time, run it twice.
pub struct Handler<S: Store, M> {
    idem: Idem<S>,
    consumer: String,
    retention: Option<Duration>,
    mode: Mode<S, M>,
}

impl<S: Store, M> fmt::Debug for Handler<S, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handler")
            .field("consumer", &self.consumer)
            .field("retention", &self.retention)
            .finish_non_exhaustive()
    }
}

type Outside<M> = Box<dyn Fn(M) -> BoxFuture<Result<(), BoxError>> + Send + Sync>;
type Inside<S, M> =
    Arc<dyn Fn(&mut <S as Store>::Transaction, &M) -> Result<(), EffectError> + Send + Sync>;

enum Mode<S: Store, M> {
    MarkAfter(Outside<M>),
    Atomic(Inside<S, M>),
}

impl<S: Store + 'static, M: Send + 'static> Handler<S, M> {
    /// A handler whose effect lies outside the store: marked after its success.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`] if `consumer` is no good name.
    pub fn new<F, R, E>(idem: &Idem<S>, consumer: &str, handle: F) -> Result<Self, Error>
    where
        F: Fn(M) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError> + 'static,
    {
        let handle: Outside<M> = Box::new(move |message| {
            // A panic is one delivery's failure and must not take down the consumer.
            let start = AssertUnwindSafe(|| handle(message));
            match catch_unwind(start) {
                Ok(running) => Box::pin(until_panic(running)),
                Err(payload) => Box::pin(ready(Err(panicked(payload)))),
            }
        });
        Self::with_mode(idem, consumer, Mode::MarkAfter(handle))
    }

    /// A handler that writes through the store's transaction: its writes and the mark are one commit.
    ///
    /// It must touch nothing but the transaction, as every effect: see [`Idem::execute`].
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`] if `consumer` is no good name.
    pub fn atomic<F>(idem: &Idem<S>, consumer: &str, handle: F) -> Result<Self, Error>
    where
        F: Fn(&mut S::Transaction, &M) -> Result<(), EffectError> + Send + Sync + 'static,
    {
        Self::with_mode(idem, consumer, Mode::Atomic(Arc::new(handle)))
    }

    fn with_mode(idem: &Idem<S>, consumer: &str, mode: Mode<S, M>) -> Result<Self, Error> {
        crate::Space::consumer(consumer)?;
        Ok(Self { idem: idem.clone(), consumer: consumer.to_string(), retention: None, mode })
    }

    /// How long a mark lives; forever unless told. It must be longer than the queue can deliver again, or
    /// the event runs twice.
    #[must_use]
    pub fn retain(mut self, retention: Duration) -> Self {
        self.retention = Some(retention);
        self
    }

    /// Handles one event.
    ///
    /// # Errors
    /// Before the handler runs: [`ErrorKind::InvalidKey`] for a bad event id,
    /// [`ErrorKind::InvalidDuration`] for a bad retention, [`ErrorKind::InProgress`] if a live lease holds
    /// the event, and the store's own when it is asked.
    ///
    /// If the handler failed: [`ErrorKind::Work`] if its effect is outside the store,
    /// [`ErrorKind::Effect`] or [`ErrorKind::Panicked`] if it is atomic. The event is not marked and may come
    /// again.
    ///
    /// After a handler outside the store has succeeded: the store's own when the event is marked. Its
    /// [certainty](Error::certainty) speaks of the mark alone.
    ///
    /// # Cancel safety
    /// An atomic handler: the event is untouched, or handled and marked. A handler outside the store may
    /// have run without a mark.
    pub fn handle(
        &self,
        event_id: &str,
        message: M,
    ) -> impl Future<Output = Result<Handled, Error>> + Send {
        // Said to be Send here, where the store is any store: see `Idem::execute`.
        async move { self.handle_once(event_id, message).await }
    }

    async fn handle_once(&self, event_id: &str, message: M) -> Result<Handled, Error> {
        let key = Key::event(&self.consumer, event_id)?;
        let request = match self.retention {
            Some(retention) => Request::new(key).retain(retention),
            None => Request::new(key).retain_forever(),
        };
        match &self.mode {
            Mode::MarkAfter(handle) => self.handle_then_mark(handle, &request, message).await,
            Mode::Atomic(handle) => self.handle_and_mark(handle, &request, message).await,
        }
    }

    async fn handle_then_mark(
        &self,
        handle: &Outside<M>,
        request: &Request,
        message: M,
    ) -> Result<Handled, Error> {
        let retention = request.retention()?;
        let looked = recorder::look(self.idem.store(), request.key()).await?;
        if recorder::done_before(&looked)? {
            return Ok(Handled::Duplicate);
        }
        // A mark that cannot be made must stop the handler before it runs.
        retention.expires_at(looked.now)?;
        let failed = |error: BoxError| Error::nothing_done(ErrorKind::Work).with_source(error);
        handle(message).await.map_err(failed)?;
        // Whoever marked meanwhile ran the handler as well: to this caller it makes no difference.
        let (Marked::First | Marked::Again) = recorder::mark(self.idem.store(), request).await?;
        Ok(Handled::Ran)
    }

    async fn handle_and_mark(
        &self,
        handle: &Inside<S, M>,
        request: &Request,
        message: M,
    ) -> Result<Handled, Error> {
        let handle = Arc::clone(handle);
        let effect = move |tx: &mut S::Transaction| {
            handle(tx, &message)?;
            Ok(Bytes::new())
        };
        let step = Execute::new(request, 0, effect)?;
        let committed = self.idem.transact(request.key(), step).await?;
        Ok(match recorder::first_or_again(&committed)? {
            Marked::First => Handled::Ran,
            Marked::Again => Handled::Duplicate,
        })
    }
}

/// Drives a handler, and turns its panic into an error.
async fn until_panic<R, E>(running: R) -> Result<(), BoxError>
where
    R: Future<Output = Result<(), E>>,
    E: Into<BoxError>,
{
    let mut running = Box::pin(running);
    let handled = poll_fn(|context| {
        let poll = || running.as_mut().poll(context).map(|handled| handled.map_err(Into::into));
        catch_unwind(AssertUnwindSafe(poll))
            .unwrap_or_else(|payload| Poll::Ready(Err(panicked(payload))))
    })
    .await;
    // Its destructor is the handler's code as well.
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(running)));
    handled.and(dropped.map_err(panicked))
}

fn panicked(payload: Box<dyn Any + Send>) -> BoxError {
    format!("it panicked: {}", panic_message(payload)).into()
}
