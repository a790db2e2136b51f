//! What the engine's errors and panics mean. Classified by kind, never by text.

use std::{
    any::Any,
    fmt, io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use idem_core::{Certainty, Error, ErrorKind};

/// How the engine, or the disk under it, failed. A clone is for each of a batch's callers.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// The engine says so.
    Engine(sled::Error),
    /// A file could not be written through.
    Disk(Arc<io::Error>),
    /// The engine panicked, as it does on some damage.
    Panicked(String),
}

impl Trouble {
    /// The error of a call that did nothing.
    pub(crate) fn nothing_done(self) -> Error {
        self.with(Certainty::NothingDone)
    }

    /// The error of a call that may be found committed.
    pub(crate) fn unknown(self) -> Error {
        self.with(Certainty::Unknown)
    }

    /// Whether the engine must write no more: after some failed writes its next flush waits for ever.
    pub(crate) fn is_fatal(&self) -> bool {
        use sled::Error::{CollectionNotFound, Corruption, Unsupported};
        !matches!(self, Self::Engine(Corruption { .. } | CollectionNotFound(_) | Unsupported(_)))
    }

    /// Whether the engine may wait for ever when it is dropped, and hold up every other database of the process
    /// meanwhile: after a failure of its own, not after one of the store's sync.
    pub(crate) fn is_engines(&self) -> bool {
        self.is_fatal() && !matches!(self, Self::Disk(_))
    }

    fn with(self, certainty: Certainty) -> Error {
        Error::new(self.kind(), certainty).with_source(self)
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Self::Engine(sled::Error::Io(error)) => kind_of(error),
            Self::Disk(error) => kind_of(error),
            Self::Engine(sled::Error::Corruption { .. }) => damage("the engine cannot read it"),
            Self::Engine(_) => ErrorKind::Store,
            Self::Panicked(_) => damage("the engine panicked over it"),
        }
    }
}

fn kind_of(error: &io::Error) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            ErrorKind::Full
        }
        _ => ErrorKind::Store,
    }
}

fn damage(problem: &str) -> ErrorKind {
    ErrorKind::Damaged { problem: problem.to_string() }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine(error) => error.fmt(f),
            Self::Disk(error) => error.fmt(f),
            Self::Panicked(message) => write!(f, "the engine panicked: {message}"),
        }
    }
}

impl std::error::Error for Trouble {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Engine(error) => Some(error),
            Self::Disk(error) => Some(error),
            Self::Panicked(_) => None,
        }
    }
}

impl From<sled::Error> for Trouble {
    fn from(error: sled::Error) -> Self {
        Self::Engine(error)
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Disk(Arc::new(error))
    }
}

/// Asks the engine for something, and turns its panic into an error.
pub(crate) fn guarded<T, E: Into<Trouble>>(
    work: impl FnOnce() -> Result<T, E>,
) -> Result<T, Trouble> {
    // What a panic leaves behind in the engine is seen by the engine alone, and its locks do not poison.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => done.map_err(Into::into),
        Err(payload) => Err(Trouble::Panicked(message(&*payload))),
    }
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_string());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "no message".to_string())
}

pub(crate) fn closed() -> Error {
    Error::nothing_done(ErrorKind::Closed)
}
