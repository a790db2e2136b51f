//! What the engine's errors mean. Classified by code, never by text.

use std::{fmt, sync::Arc, time::Duration};

use idem_core::{Certainty, Error, ErrorKind};
use rusqlite::ErrorCode;

use crate::on_connect;

/// The error of a call that did nothing, since the engine failed like this.
pub(crate) fn failed(error: rusqlite::Error) -> Error {
    let error = match on_connect::failed(error) {
        Ok(failed) => return failed,
        Err(error) => error,
    };
    let kind = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            return busy(Duration::ZERO, LOCKED, error);
        }
        Some(ErrorCode::DiskFull) => ErrorKind::Full,
        Some(ErrorCode::DatabaseCorrupt) => damage("the engine finds the file malformed"),
        Some(ErrorCode::NotADatabase) => damage("the file is not a database"),
        _ => ErrorKind::Store,
    };
    Error::nothing_done(kind).with_source(error)
}

/// Who may hold the write lock, and what to do.
pub(crate) const LOCKED: &str = "another process or connection holds the write lock: have it commit sooner, or raise \
                                 `SqliteBuilder::busy_timeout`";

/// Who may be in front of a call of this store, and what to do.
pub(crate) const QUEUED: &str = "effects of other callers, or the write lock of another process or connection, came \
                                 first: keep effects short, or raise `SqliteBuilder::busy_timeout`";

/// What may keep a store from closing, and what to do.
pub(crate) const UNDER_WAY: &str = "an effect, or another process's write lock that a call waits for, is still under \
                                    way: close again when it has ended";

/// The error of a call that waited so long: who may have been in the way, and the engine's own error if there is one.
pub(crate) fn busy(
    waited: Duration,
    why: &'static str,
    error: impl Into<Option<rusqlite::Error>>,
) -> Error {
    let blocked = Blocked { why, error: error.into() };
    Error::nothing_done(ErrorKind::Busy { waited }).with_source(blocked)
}

/// As [`failed`], of a call that waited so long.
pub(crate) fn timed(error: rusqlite::Error, waited: Duration) -> Error {
    if is_busy(&error) { busy(waited, LOCKED, error) } else { failed(error) }
}

/// What was in the way of a call.
#[derive(Debug)]
struct Blocked {
    why: &'static str,
    error: Option<rusqlite::Error>,
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.why)
    }
}

impl std::error::Error for Blocked {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.as_ref().map(|error| error as _)
    }
}

/// The error of a call whose commit failed in a way that may be found committed.
pub(crate) fn unknown(error: &Arc<rusqlite::Error>) -> Error {
    Error::new(ErrorKind::Store, Certainty::Unknown).with_source(Shared(Arc::clone(error)))
}

/// One error of a group, for each of its callers.
#[derive(Debug)]
struct Shared(Arc<rusqlite::Error>);

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Shared {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

pub(crate) fn damaged(problem: impl Into<String>) -> Error {
    Error::nothing_done(ErrorKind::Damaged { problem: problem.into() })
}

fn damage(problem: &str) -> ErrorKind {
    ErrorKind::Damaged { problem: problem.to_string() }
}

pub(crate) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

pub(crate) fn is_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
}

/// The error of a step whose transaction is gone, if the engine ended that because the disk is full: the effect may
/// have swallowed this, and tell of what failed next.
pub(crate) fn ended_when_full(error: Option<Error>) -> Option<Error> {
    let is_own = match &error {
        None => false,
        Some(error) => {
            let engine = error.effect_error::<rusqlite::Error>();
            !matches!(error.kind(), ErrorKind::Effect) || engine.is_some_and(is_full)
        }
    };
    if is_own {
        return error;
    }
    let full = Error::nothing_done(ErrorKind::Full);
    Some(match error {
        Some(error) => full.with_source(error),
        None => full.with_source("the engine ended the transaction when the disk was full"),
    })
}

/// Whether a constraint refused a statement: one of the user's, a reference say.
pub(crate) fn is_refused(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::ConstraintViolation | ErrorCode::AuthorizationForStatementDenied)
    )
}

pub(crate) fn is_interrupt(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted)
}

/// Whether a statement does not fit the tables that there are.
pub(crate) fn is_misfit(error: &rusqlite::Error) -> bool {
    matches!(error, rusqlite::Error::SqlInputError { .. })
        || error.sqlite_error_code() == Some(ErrorCode::Unknown)
}

/// Whether a COMMIT that failed like this has certainly left nothing, once it is rolled back.
///
/// After an I/O error the log may hold the commit all the same, and a recovery may find it.
pub(crate) fn commits_nothing(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::DiskFull
                | ErrorCode::ConstraintViolation
                | ErrorCode::OperationInterrupted
                | ErrorCode::ReadOnly
        )
    )
}

/// The engine's own code for what an error tells of.
#[cfg(test)]
pub(crate) fn engine_code(error: &Error) -> Option<ErrorCode> {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    let engine = causes.filter_map(|cause| {
        let shared = cause.downcast_ref().map(|Shared(error)| &**error);
        cause.downcast_ref::<rusqlite::Error>().or(shared)
    });
    engine.last()?.sqlite_error_code()
}
