//! Handling each event once.

use std::{fmt, sync::Arc, time::Duration};

use super::{
    outside::{Outside, guarded, unless_panic},
    patience::{NoPatience, Unhandled},
};
use crate::{
    EffectError, Error, ErrorKind, Fingerprint, Idem, Key, Request, Retention, Space, Span, Store,
    error::BoxError,
};

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a conflict is an outcome, not an error"]
pub enum Handled {
    /// The handler ran, and the event is marked.
    Ran,
    /// The event was marked before; nothing ran.
    Duplicate,
    /// The event was marked before with another payload, or a lease with another payload ended without marking it; nothing
    /// ran. Only if the handler has a [fingerprint](Handler::fingerprint).
    Conflict,
}

/// Runs a consumer's handler on each event that is not marked: a duplicate does not run, a success is marked, a
/// failure is not.
///
/// There are two modes: an atomic handler takes effect once per consumer and event, one whose effect lies outside
/// runs at least once. If the handler's effect lies in the store, make the handler
/// [atomic](Handler::atomic): its writes and the mark are one commit. If it lies outside, use
/// [`Handler::outside`]: the mark follows the success, so a crash between the two, or two deliveries at the
/// same time, run it twice. The [module](super) says what each promises.
pub struct Handler<S: Store, M> {
    idem: Idem<S>,
    consumer: String,
    retention: Option<Duration>,
    fingerprint: Option<FingerprintOf<M>>,
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

type FingerprintOf<M> = Box<dyn Fn(&M) -> Result<Fingerprint, Error> + Send + Sync>;

/// What a handler does inside the store's transaction.
pub(super) type Inside<S, M> =
    Arc<dyn Fn(&mut <S as Store>::Transaction, &M) -> Result<(), EffectError> + Send + Sync>;

pub(super) enum Mode<S: Store, M> {
    MarkAfter(Outside<M>),
    Atomic(Inside<S, M>),
}

impl<S: Store + 'static, M: Send + Sync + 'static> Handler<S, M> {
    /// A handler whose effect lies outside the store: marked after its success.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`] if `consumer` is no good name.
    pub fn outside<F, R, E>(idem: &Idem<S>, consumer: &str, handle: F) -> Result<Self, Error>
    where
        F: Fn(M) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError> + 'static,
    {
        Self::with_mode(idem, consumer, Mode::MarkAfter(guarded(handle)))
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
        Space::consumer(consumer)?;
        let (idem, consumer) = (idem.clone(), consumer.to_string());
        Ok(Self { idem, consumer, retention: None, fingerprint: None, mode })
    }

    /// How long a mark lives, in whole milliseconds (rounded up); forever unless told. An atomic handler's
    /// counts from the start of its run, the other's from its mark.
    ///
    /// It must live at least as long as the event can be delivered again, or the event runs twice:
    /// [`consume`](super::consume) refuses a shorter one, and one of which it cannot tell; see
    /// [`Options::horizon`](super::Options::horizon).
    #[must_use]
    pub fn retain(mut self, retention: Duration) -> Self {
        self.retention = Some(retention);
        self
    }

    /// Makes the payload part of what is the same event: `of` identifies what matters in a message, and an
    /// event that comes again with another fingerprint is a [conflict](Handled::Conflict). Unless told, the
    /// event's id alone decides, and whatever comes again under it is a duplicate.
    ///
    /// A mark that was made without a fingerprint, by a [`Recorder`](super::Recorder) or by a handler before it
    /// had one, is another's to every message: its event conflicts. An error of `of`, or its panic, is the
    /// delivery's failure, before the handler runs.
    ///
    /// ```
    /// use idem_core::{Fingerprint, Store, consumer::Handler};
    /// fn by_payload<S: Store + 'static>(handler: Handler<S, String>) -> Handler<S, String> {
    ///     handler.fingerprint(|message| Ok(Fingerprint::of(message)?))
    /// }
    /// ```
    #[must_use]
    pub fn fingerprint<F>(mut self, of: F) -> Self
    where
        F: Fn(&M) -> Result<Fingerprint, Error> + Send + Sync + 'static,
    {
        self.fingerprint = Some(Box::new(of));
        self
    }

    /// Handles one event. What fails is told, and nothing is tried again: that is
    /// [`consume`](super::consume)'s.
    ///
    /// # Errors
    /// Before the handler runs: [`ErrorKind::InvalidKey`] for a bad event id,
    /// [`ErrorKind::InvalidDuration`] for a bad retention, [`ErrorKind::InvalidFingerprint`] or
    /// [`ErrorKind::Work`] for a message whose [fingerprint](Handler::fingerprint) cannot be made,
    /// [`ErrorKind::InProgress`] if a live lease holds the event, and the store's own when it is asked.
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
        async move {
            self.attempt(event_id, message, &mut NoPatience).await.map_err(Unhandled::into_error)
        }
    }

    /// What is asked of the store for an event.
    pub(super) fn request(&self, event_id: &str, message: &M) -> Result<Request, Error> {
        let request = Request::new(Key::event(&self.consumer, event_id)?);
        let request = match self.retention {
            Some(retention) => request.retain(retention),
            None => request.retain_forever(),
        };
        let Some(of) = &self.fingerprint else { return Ok(request) };
        let failed = |error| Error::nothing_done(ErrorKind::Work).with_source(error);
        match unless_panic(|| of(message)).map_err(failed)? {
            Ok(fingerprint) => Ok(request.with_fingerprint(fingerprint)),
            Err(error) if matches!(error.kind(), ErrorKind::InvalidFingerprint(_)) => Err(error),
            // Whatever its kind, it is not this store's.
            Err(error) => Err(failed(error.into())),
        }
    }
}

impl<S: Store, M> Handler<S, M> {
    /// How long its marks live.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidDuration`].
    pub(super) fn retention(&self) -> Result<Retention, Error> {
        match self.retention {
            Some(retention) => Span::new("retention", retention).map(Retention::For),
            None => Ok(Retention::Forever),
        }
    }

    pub(super) fn idem(&self) -> &Idem<S> {
        &self.idem
    }

    pub(super) fn mode(&self) -> &Mode<S, M> {
        &self.mode
    }
}
