//! Idem's own tables: their making, their version, and what a connection to them needs.

use std::{fmt, time::Duration};

use idem_core::{Error, ErrorKind};
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Row, types::Value};

use crate::{
    SqliteBuilder, Synchronous, failure, location::Location, on_connect, options::Config, sql::Sql,
    tables::Tables, turns,
};

/// The version of the tables that this library makes and knows.
pub(crate) const VERSION: i64 = 2;

/// All of idem's tables and indices begin so; an effect must not write to them.
pub(crate) const PREFIX: &str = "idem_";

/// How many bytes of a log that has started over are kept for reuse.
const LOG_LIMIT: i64 = 64 << 20;

/// Text keys and plain integers, so that the tables read well in the `sqlite3` shell; STRICT, so that no
/// affinity turns `'007'` into 7.
const TABLES: &str = "
CREATE TABLE idem_version (version INTEGER NOT NULL) STRICT;
CREATE TABLE idem_token (last INTEGER NOT NULL) STRICT;
CREATE TABLE idem_records (
    kind TEXT NOT NULL,        -- 'request' or 'event'
    tenant TEXT NOT NULL,      -- of an event: its consumer
    operation TEXT NOT NULL,   -- of an event: ''
    key TEXT NOT NULL,         -- the request key or the event id
    state TEXT NOT NULL,       -- 'completed', 'claimed', or 'ended': a claim that was ended by name
    created_at INTEGER NOT NULL, -- this and all times: milliseconds since 1970-01-01 UTC
    expires_at INTEGER,        -- from then on the row counts as none; NULL: never
    lease_end INTEGER,       -- of a claim: when its lease ends, or ended
    token INTEGER,             -- of a claim
    took_over INTEGER,         -- of a claim: the token of the one that it took over, if it did
    attempt BLOB NOT NULL,     -- a UUID
    fingerprint BLOB,          -- its version, then 32 bytes
    result ANY,                -- of a completed key; text where it is text
    PRIMARY KEY (kind, tenant, operation, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idem_records_expiry ON idem_records (expires_at) WHERE expires_at IS NOT NULL;
CREATE TABLE idem_values (
    kind TEXT NOT NULL,
    tenant TEXT NOT NULL,
    name BLOB NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (kind, tenant, name)
) STRICT, WITHOUT ROWID;
";

/// Makes tables of version 1 those of version 2: these keep a lease that ended for as long from its end, and have a state
/// for one that was ended by name, whose end was its start. The column has another name, so that every statement of a
/// process which still runs the older version fails: it would write by the older rules.
const FROM_1: &str = "
ALTER TABLE idem_records ADD COLUMN took_over INTEGER;
UPDATE idem_records SET
    state = CASE WHEN lease_until = created_at THEN 'ended' ELSE state END,
    expires_at = CASE WHEN max(lease_until, created_at) <= 9223372036854775807 - (expires_at - created_at)
        THEN max(lease_until, created_at) + (expires_at - created_at) END
    WHERE state = 'claimed';
ALTER TABLE idem_records RENAME COLUMN lease_until TO lease_end;
UPDATE idem_version SET version = 2;
";

/// Opens a connection whose database has idem's tables in this library's version.
///
/// What is newer, or no database, is refused before anything is changed.
pub(crate) fn open(location: &Location, options: &SqliteBuilder) -> Result<Connection, Error> {
    let busy_timeout = options.busy_timeout;
    let explain = |error| explain(location, error, busy_timeout);
    let create = OpenFlags::SQLITE_OPEN_CREATE;
    let connection = options.connect(location, create, busy_timeout).map_err(explain)?;
    let found = version(&connection).map_err(explain)?;
    check_version(found, location)?;
    if connection.is_readonly("main").map_err(explain)? {
        return Err(
            location.cannot_open("it cannot be written: give it write permission", "read-only")
        );
    }
    if !location.is_memory() {
        use_wal(&connection, location, busy_timeout)?;
    }
    configure(&connection, options.synchronous).map_err(explain)?;
    if found != Some(VERSION) {
        install(&connection).map_err(|error| match error {
            Failure::Engine(error) => explain_tables(location, error, busy_timeout),
            Failure::Version(error) => error,
        })?;
    }
    Tables { connection: &connection, sql: &Sql::new() }
        .check()
        .map_err(|error| explain_tables(location, error, busy_timeout))?;
    if !location.is_memory() {
        // A recovery may have found commits that no sync has covered yet: copying them syncs them first.
        let copied = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        copied.map_err(explain)?;
    }
    Ok(connection)
}

/// Another connection to a database that was opened before.
///
/// A database in memory went with its connection: a new one would be a silent loss.
pub(crate) fn reopen(config: &Config) -> rusqlite::Result<Connection> {
    if config.location.is_memory() {
        let gone = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_ABORT);
        let message = "an effect broke the only connection to the database in memory";
        return Err(rusqlite::Error::SqliteFailure(gone, Some(message.to_string())));
    }
    let connection = config.connect()?;
    configure(&connection, config.options.synchronous)?;
    Ok(connection)
}

/// What the schema says of idem's own tables, row by row: it is a table like others to who sets the connection so.
pub(crate) type Own = Vec<[Value; 5]>;

pub(crate) fn own(connection: &Connection) -> rusqlite::Result<Own> {
    let sql = "SELECT type, name, tbl_name, rootpage, sql FROM main.sqlite_schema
               WHERE substr(tbl_name, 1, length(?1)) = ?1 ORDER BY type, name, rootpage, sql";
    let mut own = connection.prepare(sql)?;
    let row = |row: &Row<'_>| Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?]);
    own.query_map([PREFIX], row)?.collect()
}

/// Makes idem's tables in the database of `connection` where they are missing, and brings those of an older version of
/// this library to this one's: processes that still run the older version then fail.
///
/// For [`run_in`](crate::run_in) on a database that no store has opened.
///
/// # Errors
/// [`ErrorKind::SchemaNewer`] if a newer version of this library made them; the engine's own.
pub fn create_tables(connection: &mut Connection) -> Result<(), Error> {
    check_connection(connection)?;
    install(connection).map_err(|error| match error {
        Failure::Engine(error) => failure::failed(error),
        Failure::Version(error) => error,
    })
}

/// Sets what a connection that writes must have.
pub(crate) fn configure(connection: &Connection, synchronous: Synchronous) -> rusqlite::Result<()> {
    let value = match synchronous {
        Synchronous::Full => "FULL",
        Synchronous::Normal => "NORMAL",
    };
    connection.pragma_update(None, "synchronous", value)?;
    // On macOS a sync reaches the disk only so; elsewhere this changes nothing.
    connection.pragma_update(None, "fullfsync", true)?;
    connection.pragma_update(None, "checkpoint_fullfsync", true)?;
    // What a long reader made the log grow by is given back once it starts over.
    connection.pragma_update(None, "journal_size_limit", LOG_LIMIT)?;
    connection.pragma_update(None, "foreign_keys", true)
}

/// The version of idem's tables; none if there are none.
fn version(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    let exists = "SELECT 1 FROM main.sqlite_schema WHERE type = 'table' AND name = 'idem_version'";
    if connection.query_row(exists, [], |_| Ok(())).optional()?.is_none() {
        return Ok(None);
    }
    // No row at all is no version that there ever was.
    let version = "SELECT coalesce(max(version), 0) FROM main.idem_version";
    connection.query_row(version, [], |row| row.get(0)).map(Some)
}

/// Refuses tables that a newer version of this library made.
fn check_connection(connection: &Connection) -> Result<(), Error> {
    let found = version(connection).map_err(failure::failed)?;
    check_version(found, path_of(connection))
}

/// Refuses tables that are not of this version.
pub(crate) fn check_current(connection: &Connection) -> Result<(), Error> {
    let (found, location) = (version(connection).map_err(failure::failed)?, path_of(connection));
    check_version(found, location)?;
    match found {
        Some(found) if found < VERSION => {
            let location = location.to_string();
            let problem = format!(
                "its tables have version {found}, and this library needs {VERSION}: call create_tables"
            );
            Err(Error::nothing_done(ErrorKind::CannotOpen { location, problem }))
        }
        _ => Ok(()),
    }
}

fn path_of(connection: &Connection) -> &str {
    connection.path().filter(|path| !path.is_empty()).unwrap_or(":memory:")
}

fn check_version(found: Option<i64>, location: impl fmt::Display) -> Result<(), Error> {
    match found {
        Some(found) if found < 1 => {
            let problem = format!("the tables in {location} have version {found}, which never was");
            Err(failure::damaged(problem))
        }
        Some(found) if found > VERSION => {
            let (location, supported) = (location.to_string(), VERSION);
            Err(Error::nothing_done(ErrorKind::SchemaNewer { location, found, supported }))
        }
        _ => Ok(()),
    }
}

enum Failure {
    Engine(rusqlite::Error),
    Version(Error),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Engine(error)
    }
}

/// Makes the tables, or brings them to this version, unless somebody else did so first.
fn install(connection: &Connection) -> Result<(), Failure> {
    let transaction = turns::begin(connection)?;
    let found = version(&transaction)?;
    check_version(found, transaction.path().unwrap_or(":memory:")).map_err(Failure::Version)?;
    match found {
        None => {
            transaction.execute_batch(TABLES)?;
            transaction.execute("INSERT INTO idem_version (version) VALUES (?1)", [VERSION])?;
            transaction.execute("INSERT INTO idem_token (last) VALUES (0)", [])?;
        }
        Some(1) => transaction.execute_batch(FROM_1)?,
        Some(_) => {}
    }
    transaction.commit()?;
    Ok(())
}

/// Switches the file to its write-ahead log.
///
/// The switch can be refused as busy whatever the busy timeout says, while other processes open the file as
/// well: it is tried again until the timeout.
fn use_wal(
    connection: &Connection,
    location: &Location,
    busy_timeout: Duration,
) -> Result<(), Error> {
    let switch = || {
        connection
            .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))
    };
    // A file that has one needs no lock, and so no turn.
    let mode = connection.pragma_query_value(None, "journal_mode", |row| row.get::<_, String>(0));
    let mode = match mode {
        Ok(mode) if mode.eq_ignore_ascii_case("wal") => return Ok(()),
        _ => turns::take(connection, switch),
    };
    let mode = mode.map_err(|error| explain(location, error, busy_timeout))?;
    if mode.eq_ignore_ascii_case("wal") {
        return Ok(());
    }
    let problem = "its file system has no write-ahead log: put it on a local one";
    Err(location.cannot_open(problem, format!("journal mode {mode}")))
}

/// Why idem's tables are not to be had.
fn explain_tables(location: &Location, error: rusqlite::Error, waited: Duration) -> Error {
    if !failure::is_misfit(&error) {
        return explain(location, error, waited);
    }
    let problem = "it has tables or views named idem_.. that are not this library's, or not all of \
                   them: rename yours, or restore what is missing";
    location.cannot_open(problem, error)
}

/// Why the database is not to be had.
pub(crate) fn explain(location: &Location, error: rusqlite::Error, waited: Duration) -> Error {
    let error = match on_connect::failed(error) {
        Ok(failed) => return failed,
        Err(error) => error,
    };
    let problem = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            return failure::busy(waited, failure::LOCKED, error);
        }
        Some(ErrorCode::NotADatabase) => "it is not a database: give another path",
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            return location.cannot_open(&location.diagnosis(), error);
        }
        Some(ErrorCode::DatabaseCorrupt) => "it is damaged: restore it",
        Some(ErrorCode::DiskFull) => "the disk is full: make room",
        _ => "the engine failed",
    };
    location.cannot_open(problem, error)
}
