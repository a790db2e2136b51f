//! A request in a transaction that the caller already has.

use std::{
    sync::LazyLock,
    time::{Duration, Instant},
};

use idem_core::{
    Certainty, Clock, Committed, EffectError, Error, ErrorKind, Execute, Idem, Key, Outcome,
    Record, Request, Step, SystemClock, decode_result, encode_result, run_step,
};
use rusqlite::{Connection, MAIN_DB, Transaction, TransactionState};
use serde::{Serialize, de::DeserializeOwned};

use crate::{SqliteStore, failure, schema, sql::Sql, tables::Tables, turns};

/// One set of texts for all: nothing is guarded on a connection that is not the store's.
static SQL: LazyLock<Sql> = LazyLock::new(Sql::new);

/// Who may be in the way of a transaction that begins, and what to do.
const LOCKED: &str = "another process or connection holds the write lock: have it commit sooner, or raise this \
                      connection's busy timeout";

/// Who may be in the way of a transaction that has begun, and what to do.
const OVERTAKEN: &str = "another connection writes, or has written since this transaction read: roll it back, and begin \
                         it by `idem_sqlite::begin_immediate`";

/// Begins a transaction that has the write lock, for [`run_in`].
///
/// Waits for the lock as long as the connection's busy timeout says, in turn with the stores that share the file. By
/// `BEGIN IMMEDIATE` the engine would wait as long, but a store that writes without a pause could keep the lock from it.
///
/// A connection with a busy handler of its own, or without a busy timeout, waits in the way it does by itself.
///
/// # Errors
/// [`ErrorKind::Busy`] if others have the lock until the timeout; the engine's own.
pub fn begin_immediate(connection: &mut Connection) -> Result<Transaction<'_>, Error> {
    let start = Instant::now();
    turns::begin(connection).map_err(|error| match failure::is_busy(&error) {
        true => failure::busy(start.elapsed(), LOCKED, error),
        false => failure::failed(error),
    })
}

/// Runs a request inside a transaction that the caller has, as [`Idem::execute`] does inside the store's.
///
/// The answer holds once the caller commits, at the caller's durability; if the caller rolls back, nothing
/// has happened. The database must have idem's tables: a [`SqliteStore`] that was opened on it has made
/// them, or [`create_tables`](crate::create_tables).
///
/// The effect borrows and runs at most once. If it returns an error or panics, what it wrote is undone and the
/// transaction goes on. No authorizer keeps it from ending the transaction: if it does, this returns
/// [`ErrorKind::TransactionEnded`] as unknown, there is no receipt, and what it wrote until then has gone the
/// way that it sent the transaction.
///
/// It takes the write lock, also for a replay; a result may be 1 MiB long.
///
/// The connection must not cross a fork: use it in the process that opened it alone. Nothing here notices.
///
/// # Errors
/// As [`Idem::execute`]. [`ErrorKind::Busy`] if another connection has written since this transaction first
/// read: begin it with [`begin_immediate`]. [`ErrorKind::CannotOpen`] if idem's tables are missing.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use idem_core::{Key, Outcome, Request};
/// use rusqlite::Connection;
/// let mut connection = Connection::open_in_memory()?;
/// idem_sqlite::create_tables(&mut connection)?;
/// connection.execute_batch("CREATE TABLE orders (quantity INTEGER)")?;
///
/// let request = Request::new(Key::new("north", "web-order", "intent-a")?);
/// let transaction = idem_sqlite::begin_immediate(&mut connection)?;
/// let outcome = idem_sqlite::run_in(&transaction, &request, |transaction| {
///     transaction.execute("INSERT INTO orders VALUES (3)", [])?;
///     Ok(transaction.last_insert_rowid())
/// })?;
/// transaction.commit()?;
/// assert_eq!(outcome, Outcome::Created(1));
/// # Ok(()) }
/// ```
pub fn run_in<T, F>(
    transaction: &Transaction<'_>,
    request: &Request,
    effect: F,
) -> Result<Outcome<T>, Error>
where
    T: Serialize + DeserializeOwned,
    F: FnOnce(&Transaction<'_>) -> Result<T, EffectError>,
{
    run_in_at(transaction, request, &SystemClock, effect)
}

/// As [`run_in`], on a clock of the caller's.
///
/// # Errors
/// As [`run_in`].
pub fn run_in_at<T, F>(
    transaction: &Transaction<'_>,
    request: &Request,
    clock: &dyn Clock,
    effect: F,
) -> Result<Outcome<T>, Error>
where
    T: Serialize + DeserializeOwned,
    F: FnOnce(&Transaction<'_>) -> Result<T, EffectError>,
{
    let mut effect = Some(effect);
    let once = move |transaction: &mut &Transaction<'_>| {
        let effect = effect.take().expect("a borrowed step runs once");
        encode_result(&effect(transaction)?)
    };
    let limit = Idem::<SqliteStore>::RESULT_LIMIT;
    let mut step = Execute::new(request, limit, once)?;
    let committed = run(transaction, request, clock, &mut step)?;
    Outcome::of(&committed, request.fingerprint_value())?.try_map(|stored| decode_result(&stored))
}

fn run<'t, 'c>(
    transaction: &'t Transaction<'c>,
    request: &Request,
    clock: &dyn Clock,
    step: &mut dyn Step<&'t Transaction<'c>>,
) -> Result<Committed, Error> {
    let (key, sql) = (request.key(), &*SQL);
    if transaction.is_autocommit() {
        // It is over: what is written now would be committed at once.
        return Err(Error::nothing_done(ErrorKind::TransactionEnded));
    }
    lock(transaction)?;
    let tables = Tables { connection: transaction, sql };
    let before = tables.record(key)?;
    let now = clock.now();
    if !step.proceeds(before.as_ref(), now) {
        return Ok(Committed::kept(before, now));
    }
    own(transaction, &sql.savepoint)?;
    let mut lent = transaction;
    let ran = run_step(step, &mut lent, before.as_ref(), now)
        .and_then(|change| change.stamp(before.as_ref(), now, || tables.next_token(now)));
    if transaction.is_autocommit() {
        // Written now, the receipt would be committed at once.
        return Err(ended(ran.err()));
    }
    let ran = ran.and_then(|after| match tables.record(key)? == before {
        true => Ok(after),
        // The effect has run its own key.
        false => Err(Error::nothing_done(ErrorKind::Reentrant)),
    });
    match ran.and_then(|after| keep(tables, key, before.as_ref(), after)) {
        Ok(after) => Ok(Committed::ran(before, after, now)),
        Err(error) => match undo(transaction) {
            Ok(()) => Err(error),
            Err(_) => Err(ended(Some(error))),
        },
    }
}

/// Writes the record as a part of the step's savepoint; if that is gone, the record is not written either.
fn keep(
    tables: Tables<'_>,
    key: &Key,
    before: Option<&Record>,
    after: Option<Record>,
) -> Result<Option<Record>, Error> {
    let connection = tables.connection;
    own(connection, "SAVEPOINT idem_receipt")?;
    let written = tables.set_record(key, before, after.as_ref()).map_err(failure::failed);
    // Takes the inner savepoint with it.
    if let Err(error) = written.and_then(|()| own(connection, &tables.sql.release)) {
        own(connection, "ROLLBACK TO idem_receipt")?;
        own(connection, "RELEASE idem_receipt")?;
        return Err(error);
    }
    Ok(after)
}

/// Undoes the step; fails if its savepoint is gone.
fn undo(connection: &Connection) -> Result<(), Error> {
    own(connection, &SQL.rollback_to)?;
    own(connection, &SQL.release)
}

/// The effect has ended the transaction, and may have begun another: what it did is out of our hands.
fn ended(source: Option<Error>) -> Error {
    let ended = Error::new(ErrorKind::TransactionEnded, Certainty::Unknown);
    match source {
        Some(source) => ended.with_source(source),
        None => ended,
    }
}

/// Takes the write lock, so that the time is read after it, and checks the tables.
fn lock(transaction: &Transaction<'_>) -> Result<(), Error> {
    let missing = |error: rusqlite::Error| {
        if failure::is_busy(&error) {
            return failure::busy(Duration::ZERO, OVERTAKEN, error);
        }
        if !failure::is_misfit(&error) {
            return failure::failed(error);
        }
        let location = transaction.path().unwrap_or(":memory:").to_string();
        let problem = "it has no tables of idem: call create_tables first".to_string();
        Error::nothing_done(ErrorKind::CannotOpen { location, problem }).with_source(error)
    };
    // Changes nothing, and is a write all the same.
    let lock = "UPDATE main.idem_version SET version = version WHERE 0";
    let lock = || own_with(transaction, lock);
    // One that has the lock must not wait for its turn, nor can one that has read: what it saw would be stale.
    let locked = match transaction.transaction_state(Some(MAIN_DB)).map_err(failure::failed)? {
        TransactionState::None => turns::take(transaction, lock),
        _ => lock(),
    };
    locked.map_err(missing)?;
    schema::check_current(transaction)
}

fn own(connection: &Connection, sql: &str) -> Result<(), Error> {
    own_with(connection, sql).map_err(failure::failed)
}

fn own_with(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.raw_execute().map(drop)
}
