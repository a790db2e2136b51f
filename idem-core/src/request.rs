//! What a caller asks for.

use std::time::Duration;

use serde::Serialize;

use crate::{Error, Fingerprint, Key, Retention, Span};

/// One call of one logical action: its key, what identifies its parameters, and how long its receipt lives.
///
/// ```
/// # fn main() -> Result<(), idem_core::Error> {
/// use idem_core::{Key, Request};
/// use std::time::Duration;
/// let request = Request::new(Key::new("north", "web-order", "intent-a")?)
///     .fingerprint(&("article-7", 3))?
///     .retain(Duration::from_secs(60));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is executed"]
pub struct Request {
    key: Key,
    fingerprint: Option<Fingerprint>,
    retention: Asked,
    wait: Option<Duration>,
    refuses_takeover: bool,
}

/// A retention as it was asked for; checked when the request is used, so that building one cannot fail.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Checked(Retention),
    Unchecked(Duration),
}

impl Request {
    /// A request for `key`, without a fingerprint, whose receipt lives 24 hours.
    pub fn new(key: Key) -> Self {
        Self {
            key,
            fingerprint: None,
            retention: Asked::Checked(Retention::DEFAULT),
            wait: None,
            refuses_takeover: false,
        }
    }

    /// Identifies the request's parameters, so that the same key with others is a conflict.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidFingerprint`](crate::ErrorKind::InvalidFingerprint) if they have none; see
    /// [`Fingerprint::of`].
    pub fn fingerprint<T: Serialize + ?Sized>(self, parameters: &T) -> Result<Self, Error> {
        Ok(self.with_fingerprint(Fingerprint::of(parameters)?))
    }

    /// As [`Request::fingerprint`], from a fingerprint that the caller made.
    pub fn with_fingerprint(mut self, fingerprint: Fingerprint) -> Self {
        self.fingerprint = Some(fingerprint);
        self
    }

    /// How long the receipt lives, counted from the start of the run, in whole milliseconds (rounded up).
    ///
    /// Zero, or more than the clock can hold, is refused when the request is used, before the effect.
    pub fn retain(mut self, retention: Duration) -> Self {
        self.retention = Asked::Unchecked(retention);
        self
    }

    /// The receipt lives until it is forgotten.
    pub fn retain_forever(mut self) -> Self {
        self.retention = Asked::Checked(Retention::Forever);
        self
    }

    /// How long a call waits for whoever holds the key, by the store's clock, before it is told that the key is
    /// in progress. Unless told it does not wait.
    ///
    /// A call that waits is woken if the lease was claimed through the same [`Idem`](crate::Idem) or a clone of
    /// it; otherwise it asks again and again, with growing pauses of half a second at most, and when the lease
    /// ends. It then gets the result, or runs if the key has become free.
    ///
    /// It is a wait for leases, not for the store: what the store itself takes comes on top. A request that runs
    /// in a transaction of the caller's does not wait.
    pub fn wait_for(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Has a claim refuse to take over from a lease that ended without an answer: the outcome is then
    /// [`Claim::Unfinished`](crate::Claim::Unfinished), and nothing is written. So polling neither prolongs nor rewrites the
    /// evidence, until an operator [settles](crate::Idem::settle) the key or the record is gone.
    ///
    /// Only claims look at this; [`Idem::execute`](crate::Idem::execute) does not.
    pub fn refuse_takeover(mut self) -> Self {
        self.refuses_takeover = true;
        self
    }

    /// Whether a claim refuses to take over.
    #[must_use]
    pub fn refuses_takeover(&self) -> bool {
        self.refuses_takeover
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// What identifies the parameters, if anything does.
    #[must_use]
    pub fn fingerprint_value(&self) -> Option<&Fingerprint> {
        self.fingerprint.as_ref()
    }

    /// How long the receipt lives.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidDuration`](crate::ErrorKind::InvalidDuration) if it is zero or too long.
    pub fn retention(&self) -> Result<Retention, Error> {
        match self.retention {
            Asked::Checked(retention) => Ok(retention),
            Asked::Unchecked(retention) => Span::new("retention", retention).map(Retention::For),
        }
    }

    /// How long a call waits for whoever holds the key, if it does.
    #[must_use]
    pub fn wait(&self) -> Option<Duration> {
        self.wait
    }
}
