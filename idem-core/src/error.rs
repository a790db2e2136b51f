//! One error type: what went wrong, how far it got, and the cause.

use std::{error::Error as StdError, fmt, time::Duration};

use crate::{FingerprintError, Timestamp, Token};

/// Any error, as a source.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// What a caller may conclude about its own call: what the store holds of it.
///
/// Of what a handler does outside the store it says nothing. A retry of the same key is safe in every case:
/// that is what the key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Certainty {
    /// The store holds nothing of this call, neither effect nor receipt, and will not later. Of earlier calls
    /// with the same key it says nothing: after an unknown, only an outcome for that key settles it.
    NothingDone,
    /// The key is completed: its effect and its receipt are committed.
    Done,
    /// The store cannot tell. The same key, asked again, will.
    Unknown,
}

/// The part of a key, or the name of a setting, that an error is about.
pub type Field = &'static str;

/// What went wrong.
///
/// | kinds | who is to act | of an HTTP service |
/// | --- | --- | --- |
/// | `InvalidKey`, `InvalidDuration`, `InvalidFingerprint` | whoever sent the request | 400 |
/// | `Effect`, `Work`, `Panicked` | whoever wrote the effect: its own error is the source | yours to say |
/// | `InProgress` | whoever asks: again, later | 409 or 425 |
/// | `LeaseLost` | whoever held the lease: the key is another's now, or free | 409 or 500 |
/// | `Busy`, `Contended`, `Unreachable`, `ReadOnly` | nobody: ask again | 503 |
/// | `Full`, `Denied`, `Closed`, `CannotOpen`, `SchemaNewer`, `Damaged`, `Store` | the operator | 500 or 503 |
/// | the others, among them `OtherProcess` | whoever wrote the program | 500 |
#[derive(Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A part of a key is not acceptable.
    InvalidKey {
        /// Which part.
        field: Field,
        /// The length of the value in bytes.
        length: usize,
        /// What is wrong with it and what to do.
        problem: &'static str,
    },
    /// A retention, a lease or an interval is zero or too long.
    InvalidDuration {
        /// Which setting.
        field: Field,
        /// What was asked for.
        duration: Duration,
        /// What is wrong with it and what to do.
        problem: &'static str,
    },
    /// The request's parameters have no fingerprint.
    InvalidFingerprint(FingerprintError),
    /// A setting of a store, a URL or a call is not acceptable.
    InvalidSetting {
        /// Which setting.
        field: Field,
        /// What is wrong with it and what to do.
        problem: String,
    },
    /// The effect returned an error; see [`Error::effect_error`].
    Effect,
    /// Work outside the store failed: a consumer's handler, or what was run with a lease. Nothing is recorded
    /// as done; see [`Error::effect_error`].
    Work,
    /// The effect panicked, with this message.
    Panicked(String),
    /// The effect's result is longer than the limit.
    ResultTooLarge {
        /// Its length in bytes.
        length: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The effect's result would not read back as what it was.
    ResultUnreadable,
    /// The stored result does not decode as the type that was asked for.
    ResultUndecodable {
        /// Its length in bytes.
        length: usize,
    },
    /// The effect ended the store's transaction, or tried to; or it left it in a state that cannot commit.
    TransactionEnded,
    /// An effect asked its own store, or one of its kind, for something that its transaction, or the thread
    /// that it runs on, stands in the way of.
    Reentrant,
    /// The key is held by a live lease until then.
    InProgress {
        /// When the lease ends, unless it is renewed; by the store's clock.
        until: Timestamp,
        /// How long to wait before asking again: until the lease ends, if nothing happens before.
        retry_after: Duration,
    },
    /// The lease is not held any more: it ended, was taken over, completed or released.
    LeaseLost {
        /// The token of the lease.
        token: Token,
    },
    /// The store was busy for the whole time that it may wait.
    Busy {
        /// How long the call waited.
        waited: Duration,
    },
    /// Other callers, or the effect itself by a call of its own, changed what it read each time it ran.
    Contended {
        /// How often the effect ran.
        attempts: u32,
    },
    /// The effect asked for a value that its transaction does not have yet. It is fetched, and the effect runs
    /// again: pass this error on.
    NotYetRead,
    /// The effect asked for values that it had not asked for before, each time it ran.
    TooManyReads {
        /// How often it ran.
        rounds: u32,
    },
    /// What one call sends is more bytes than the store takes at once.
    TooLarge {
        /// How many bytes it would be.
        bytes: usize,
        /// The limit, if it is known.
        limit: Option<usize>,
    },
    /// What one call reads and writes is more values than the store takes at once.
    TooManyValues {
        /// How many it would be.
        values: usize,
        /// The limit.
        limit: usize,
    },
    /// The store has no room left.
    Full,
    /// No server answered in time, or none could be reached.
    Unreachable {
        /// How long the call tried.
        waited: Duration,
    },
    /// The server takes no writes: it is a replica, or was made read-only.
    ReadOnly,
    /// The server refuses these credentials, or what they may do is too little.
    Denied,
    /// The store was closed.
    Closed,
    /// The store was opened by another process, from which this one was forked.
    OtherProcess {
        /// The id of the process that opened it.
        opened_in: u32,
    },
    /// The store cannot be opened.
    CannotOpen {
        /// Where it was looked for.
        location: String,
        /// What is wrong and what to do.
        problem: String,
    },
    /// What is stored was made by a newer version of this library.
    SchemaNewer {
        /// Where it is.
        location: String,
        /// The version found.
        found: i64,
        /// The newest version that this library knows.
        supported: i64,
    },
    /// What is stored cannot be what this library wrote.
    Damaged {
        /// What does not make sense.
        problem: String,
    },
    /// The store does not offer what was asked for; see [`crate::Guarantees`].
    Unsupported(&'static str),
    /// The store broke a rule of the [`crate::Store`] trait.
    Contract(&'static str),
    /// The store failed in a way of its own; the source says how.
    Store,
}

/// An error of this library: a kind, a certainty and, where there is one, a source.
///
/// The certainty says what the store holds of the call; see [`Certainty`].
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    certainty: Certainty,
    source: Option<BoxError>,
    of_transaction: bool,
}

impl Error {
    /// An error of a call of which the store holds nothing, and will not later.
    #[must_use]
    pub fn nothing_done(kind: ErrorKind) -> Self {
        Self::new(kind, Certainty::NothingDone)
    }

    /// An error of a call, and what is certain of it.
    #[must_use]
    pub fn new(kind: ErrorKind, certainty: Certainty) -> Self {
        Self(Box::new(Inner { kind, certainty, source: None, of_transaction: false }))
    }

    /// The same error as a transaction's own, as its methods return it to an effect.
    ///
    /// If the effect passes it on, its caller gets this error and not [`ErrorKind::Effect`].
    #[must_use]
    pub fn of_transaction(mut self) -> Self {
        self.0.of_transaction = true;
        self
    }

    /// The same error with its cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The same error, and what is certain of its call.
    #[must_use]
    pub fn with_certainty(mut self, certainty: Certainty) -> Self {
        self.0.certainty = certainty;
        self
    }

    /// What went wrong.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// What the store holds of this call.
    #[must_use]
    pub fn certainty(&self) -> Certainty {
        self.0.certainty
    }

    /// This error and what caused it, in one line: its own text does not hold the words of an effect or a handler.
    pub fn with_causes(&self) -> impl fmt::Display + '_ {
        fmt::from_fn(move |f| {
            let mut told = self.to_string();
            f.write_str(&told)?;
            let mut cause = self.source();
            while let Some(error) = cause {
                let text = error.to_string();
                // Who wraps an error often shows it as well.
                if text != told {
                    write!(f, ": {text}")?;
                }
                (told, cause) = (text, error.source());
            }
            Ok(())
        })
    }

    /// The error that the effect, or the work outside the store, returned, if this is that and it was an `E`.
    #[must_use]
    pub fn effect_error<E: StdError + 'static>(&self) -> Option<&E> {
        match (&self.0.kind, &self.0.source) {
            (ErrorKind::Effect | ErrorKind::Work, Some(source)) => source.downcast_ref(),
            _ => None,
        }
    }

    /// As [`Error::effect_error`], by value.
    ///
    /// # Errors
    /// The error itself, if it is no effect's error or not an `E`.
    pub fn into_effect_error<E: StdError + 'static>(mut self) -> Result<E, Self> {
        if !matches!(self.0.kind, ErrorKind::Effect | ErrorKind::Work) {
            return Err(self);
        }
        match self.0.source.take().map(|source| source.downcast::<E>()) {
            Some(Ok(error)) => Ok(*error),
            Some(Err(source)) => Err(self.with_source(source)),
            None => Err(self),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.kind {
            ErrorKind::InvalidKey { field, length, problem } => {
                write!(f, "invalid {field} of {length} bytes: {problem}")
            }
            ErrorKind::InvalidDuration { field, duration, problem } => {
                write!(f, "invalid {field} of {duration:?}: {problem}")
            }
            ErrorKind::InvalidFingerprint(error) => write!(f, "no fingerprint: {error}"),
            ErrorKind::InvalidSetting { field, problem } => write!(f, "invalid {field}: {problem}"),
            ErrorKind::Effect => f.write_str("the effect failed and was rolled back"),
            ErrorKind::Work => {
                f.write_str("the work failed: nothing is recorded as done, and it may be asked for again")
            }
            ErrorKind::Panicked(message) => {
                write!(f, "the effect panicked and was rolled back: {message}")
            }
            ErrorKind::ResultTooLarge { length, limit } => write!(
                f,
                "the effect's result of {length} bytes is over the limit of {limit} bytes: store \
                 it through the transaction and return a reference to it, or raise the limit"
            ),
            ErrorKind::ResultUnreadable => f.write_str(
                "the effect's result would not read back as what it was: return a value that \
                 survives JSON",
            ),
            ErrorKind::ResultUndecodable { length } => write!(
                f,
                "the stored result of {length} bytes does not decode as the type asked for: ask \
                 for the type that was stored, or read the receipt's bytes"
            ),
            ErrorKind::TransactionEnded => f.write_str(
                "the effect ended the store's transaction, or left it unable to commit: leave \
                 transaction control to the store",
            ),
            ErrorKind::Reentrant => f.write_str(
                "an effect asked its own store for what its transaction stands in the way of: use \
                 the transaction, or call before or after the effect",
            ),
            ErrorKind::InProgress { until, .. } => {
                write!(f, "the key is held by a live lease until {until}: ask again then")
            }
            ErrorKind::LeaseLost { token } => write!(
                f,
                "the lease with the token {token} is not held any more, and nothing was changed: claim the key \
                 again to see what became of it"
            ),
            ErrorKind::Busy { waited } if waited.is_zero() => {
                f.write_str("another writer was in the way: try again")
            }
            ErrorKind::Busy { waited } => write!(
                f,
                "the store was busy, or not ready, for {waited:?}: try again, keep effects short, or raise its \
                 timeout"
            ),
            ErrorKind::Contended { attempts } => write!(
                f,
                "what the effect read was changed by other calls, {attempts} times in a row: try again, \
                 and let the effect touch nothing but its transaction"
            ),
            ErrorKind::NotYetRead => {
                f.write_str("the value is fetched and the effect runs again: pass this error on")
            }
            ErrorKind::TooManyReads { rounds } => write!(
                f,
                "the effect asked for other values each of the {rounds} times it ran: let it read the same \
                 names, and less of them"
            ),
            ErrorKind::TooLarge { bytes, limit: Some(limit) } => write!(
                f,
                "the call would send {bytes} bytes, and the store takes {limit} at once: write less"
            ),
            ErrorKind::TooLarge { bytes, limit: None } => write!(
                f,
                "the call would send {bytes} bytes, and the store does not take so many at once: write less, \
                 or raise its limit"
            ),
            ErrorKind::TooManyValues { values, limit } => write!(
                f,
                "the call would read and write {values} values, and the store takes {limit} at once: use less"
            ),
            ErrorKind::Full => f.write_str("the store is full: make room, then try again"),
            ErrorKind::Unreachable { waited } => write!(
                f,
                "no server of the right kind answered within {waited:?}: see that it runs and can be reached, \
                 and try again"
            ),
            ErrorKind::ReadOnly => {
                f.write_str("the server takes no writes: name its primary, or wait for the failover")
            }
            ErrorKind::Denied => f.write_str(
                "the server refuses the credentials, or lets them do too little: see user, password and \
                 permissions",
            ),
            ErrorKind::Closed => f.write_str("the store was closed: open it again"),
            ErrorKind::OtherProcess { opened_in } => write!(
                f,
                "the store was opened by process {opened_in}, and this is process {}: open a store of this \
                 process's own after the fork",
                std::process::id()
            ),
            ErrorKind::CannotOpen { location, problem } => {
                write!(f, "cannot open {location}: {problem}")
            }
            ErrorKind::SchemaNewer { location, found, supported } => write!(
                f,
                "what is stored in {location} has version {found}, this library knows {supported} \
                 at most: update the library"
            ),
            ErrorKind::Damaged { problem } => write!(f, "the stored data is damaged: {problem}"),
            ErrorKind::Unsupported(what) => write!(f, "this store cannot {what}"),
            ErrorKind::Contract(rule) => write!(f, "the store broke its contract: {rule}"),
            ErrorKind::Store => f.write_str("the store failed"),
        }?;
        match self.0.certainty {
            Certainty::NothingDone => Ok(()),
            Certainty::Done => f.write_str(" (the key is completed)"),
            Certainty::Unknown => {
                f.write_str(" (it is unknown whether the key completed: ask the same key again)")
            }
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("certainty", &self.0.certainty)
            .field("source", &self.0.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match (&self.0.source, &self.0.kind) {
            (Some(source), _) => Some(source.as_ref()),
            (None, ErrorKind::InvalidFingerprint(error)) => Some(error),
            _ => None,
        }
    }
}

impl From<FingerprintError> for Error {
    fn from(error: FingerprintError) -> Self {
        Self::nothing_done(ErrorKind::InvalidFingerprint(error))
    }
}

/// What an effect fails with: made by `?` from any error.
///
/// It is no `std::error::Error` itself, so that it can be made from every one of them. Its own type comes
/// back to the caller through [`Error::effect_error`].
#[derive(Debug)]
pub struct EffectError(BoxError);

impl<E: Into<BoxError>> From<E> for EffectError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl From<EffectError> for Error {
    fn from(error: EffectError) -> Self {
        match error.0.downcast::<Self>() {
            Ok(error) if error.0.of_transaction => *error,
            Ok(error) => Self::nothing_done(ErrorKind::Effect).with_source(*error),
            Err(error) => Self::nothing_done(ErrorKind::Effect).with_source(error),
        }
    }
}

#[cfg(test)]
mod tests;
