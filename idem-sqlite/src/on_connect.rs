//! What the user does with each connection before the store uses it.

use std::{
    any::Any,
    error::Error as StdError,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use idem_core::{Error, ErrorKind};
use rusqlite::Connection;

use crate::{failure, location::Location};

pub(crate) type OnConnect = Arc<dyn Fn(&Connection) -> rusqlite::Result<()> + Send + Sync>;

/// Sets back what would make the store's own statements fail or not be undone. The store sets the rest by itself.
const RESET: &str = "PRAGMA query_only = OFF;
                     PRAGMA writable_schema = OFF;
                     PRAGMA ignore_check_constraints = OFF;
                     PRAGMA locking_mode = NORMAL;";

/// In memory there is no log: without a journal nothing could be rolled back.
const RESET_IN_MEMORY: &str = "PRAGMA journal_mode = MEMORY;";

/// Does with a connection what the user wants, if anything.
pub(crate) fn run(
    on_connect: Option<&OnConnect>,
    connection: &Connection,
    location: &Location,
) -> rusqlite::Result<()> {
    let Some(on_connect) = on_connect else { return Ok(()) };
    let (problem, source) = match catch_unwind(AssertUnwindSafe(|| on_connect(connection))) {
        Ok(Ok(())) if connection.is_autocommit() => return reset(connection, location),
        Ok(Ok(())) => ("`on_connect` left a transaction open: let it commit".to_string(), None),
        // Another connection is in the way, and asking again may help.
        Ok(Err(error)) if failure::is_busy(&error) => return Err(error),
        Ok(Err(error)) => (format!("`on_connect` failed: {error}"), Some(error)),
        Err(payload) => (format!("`on_connect` panicked: {}", message(payload)), None),
    };
    let failed = Failed { location: location.to_string(), problem, source };
    // The one error of the engine's crate that carries another.
    Err(rusqlite::Error::ToSqlConversionFailure(Box::new(failed)))
}

fn reset(connection: &Connection, location: &Location) -> rusqlite::Result<()> {
    connection.execute_batch(RESET)?;
    if location.is_memory() { connection.execute_batch(RESET_IN_MEMORY) } else { Ok(()) }
}

fn message(payload: Box<dyn Any + Send>) -> String {
    let message = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(message), _) => (*message).to_string(),
        (None, Some(message)) => message.clone(),
        (None, None) => "no message".to_string(),
    };
    // Its destructor is the user's code and may panic in turn.
    std::mem::forget(payload);
    message
}

/// Why the user's part failed, on its way through the errors of the engine.
#[derive(Debug)]
struct Failed {
    location: String,
    problem: String,
    source: Option<rusqlite::Error>,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl StdError for Failed {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|error| error as _)
    }
}

/// The error of a call that needed a connection with which the user's part failed.
///
/// # Errors
/// The error itself, if it is another one.
pub(crate) fn failed(error: rusqlite::Error) -> Result<Error, rusqlite::Error> {
    let rusqlite::Error::ToSqlConversionFailure(carried) = error else { return Err(error) };
    let Failed { location, problem, source } =
        *carried.downcast::<Failed>().map_err(rusqlite::Error::ToSqlConversionFailure)?;
    let failed = Error::nothing_done(ErrorKind::CannotOpen { location, problem });
    Ok(match source {
        Some(source) => failed.with_source(source),
        None => failed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SqliteBuilder, schema};

    #[test]
    fn what_the_store_needs_is_set_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::file(&folder.path().join("store.db")).unwrap();
        let weaken = |connection: &Connection| {
            connection.execute_batch(
                "PRAGMA synchronous = OFF; PRAGMA fullfsync = OFF; PRAGMA checkpoint_fullfsync = OFF;
                 PRAGMA foreign_keys = OFF; PRAGMA query_only = ON; PRAGMA writable_schema = ON;
                 PRAGMA ignore_check_constraints = ON; PRAGMA locking_mode = EXCLUSIVE; PRAGMA busy_timeout = 1",
            )
        };
        let options = SqliteBuilder::default().on_connect(weaken);
        let connection = schema::open(&location, &options).unwrap();
        let pragma = |name: &str| -> String {
            let value = |row: &rusqlite::Row<'_>| row.get::<_, rusqlite::types::Value>(0);
            format!("{:?}", connection.pragma_query_value(None, name, value).unwrap())
        };
        for (name, value) in [
            ("synchronous", "Integer(2)"),
            ("fullfsync", "Integer(1)"),
            ("checkpoint_fullfsync", "Integer(1)"),
            ("foreign_keys", "Integer(1)"),
            ("query_only", "Integer(0)"),
            ("writable_schema", "Integer(0)"),
            ("ignore_check_constraints", "Integer(0)"),
            ("busy_timeout", "Integer(5000)"),
            ("journal_mode", "Text(\"wal\")"),
            ("locking_mode", "Text(\"normal\")"),
        ] {
            assert_eq!(pragma(name), value, "{name}");
        }
    }
}
