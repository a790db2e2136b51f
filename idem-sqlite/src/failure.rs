//! What the engine's errors mean. Classified by code, never by text.

use std::{fmt, sync::Arc, time::Duration};

use idem_core::{Certainty, Error, ErrorKind};
use rusqlite::ErrorCode;

/// The error of a call that did nothing, since the engine failed like this.
pub(crate) fn failed(error: rusqlite::Error) -> Error {
    let kind = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            ErrorKind::Busy { waited: Duration::ZERO }
        }
        Some(ErrorCode::DiskFull) => ErrorKind::Full,
        Some(ErrorCode::DatabaseCorrupt) => damage("the engine finds the file malformed"),
        Some(ErrorCode::NotADatabase) => damage("the file is not a database"),
        _ => ErrorKind::Store,
    };
    Error::nothing_done(kind).with_source(error)
}

/// The error of a call that waited so long for a lock.
pub(crate) fn busy(waited: Duration) -> Error {
    Error::nothing_done(ErrorKind::Busy { waited })
}

/// As [`failed`], of a call that waited so long.
pub(crate) fn timed(error: rusqlite::Error, waited: Duration) -> Error {
    if is_busy(&error) { busy(waited).with_source(error) } else { failed(error) }
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
