//! What an effect writes through: SQL, and the portable part.

use std::{
    cell::{Cell, OnceCell},
    fmt,
};

use bytes::Bytes;
use idem_core::{Error, ErrorKind, Space, Transaction};
use rusqlite::{CachedStatement, Connection, Params, Result, Row, Statement};

use crate::{
    failure::{self, failed},
    guard::{Guard, Mode},
    schema::{self, Own},
    sql::Sql,
    tables::Tables,
};

/// The store's transaction, as an effect sees it.
///
/// Its methods are [`rusqlite::Connection`]'s. What they write is committed together with the receipt, or
/// not at all. The effect cannot end the transaction: `BEGIN`, `COMMIT`, `ROLLBACK`, savepoints, `ATTACH`,
/// `DETACH` and pragmas that outlive it are refused, and so are temporary tables, views and triggers, which
/// would outlive it as well, and writes to tables whose names begin with `idem_`. If it gets the
/// engine to end the transaction nevertheless (`INSERT OR ROLLBACK`, `RAISE(ROLLBACK)`), nothing of it is
/// kept, and its caller gets an error whatever the effect returns.
///
/// Foreign keys are enforced. A violation of a deferred one fails the commit, and this effect alone.
pub struct SqliteTransaction {
    pub(crate) connection: Connection,
    pub(crate) guard: Guard,
    pub(crate) sql: Sql,
    /// The effect space of the key that is running.
    pub(crate) space: Option<Space>,
    /// What the schema said of the store's own tables before an effect had the bare connection, if one had: it may have
    /// changed that, and the connection's settings.
    pub(crate) exposed: OnceCell<rusqlite::Result<Own>>,
    /// An effect was told that the disk is full, since the transaction began. It may have swallowed that.
    pub(crate) was_full: Cell<bool>,
}

impl fmt::Debug for SqliteTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteTransaction").field("space", &self.space).finish_non_exhaustive()
    }
}

impl SqliteTransaction {
    /// Runs one statement and returns how many rows it changed; see [`Connection::execute`].
    ///
    /// # Errors
    /// The engine's own.
    pub fn execute<P: Params>(&self, sql: &str, params: P) -> Result<usize> {
        self.told(self.connection.execute(sql, params))
    }

    /// Runs several statements without parameters; see [`Connection::execute_batch`].
    ///
    /// # Errors
    /// The engine's own.
    pub fn execute_batch(&self, sql: &str) -> Result<()> {
        self.told(self.connection.execute_batch(sql))
    }

    /// Runs a query and maps its first row; see [`Connection::query_row`].
    ///
    /// # Errors
    /// The engine's own; [`rusqlite::Error::QueryReturnedNoRows`] if there is none.
    pub fn query_row<T, P, F>(&self, sql: &str, params: P, map: F) -> Result<T>
    where
        P: Params,
        F: FnOnce(&Row<'_>) -> Result<T>,
    {
        self.told(self.connection.query_row(sql, params, map))
    }

    /// Prepares a statement; see [`Connection::prepare`].
    ///
    /// # Errors
    /// The engine's own.
    pub fn prepare(&self, sql: &str) -> Result<Statement<'_>> {
        self.told(self.connection.prepare(sql))
    }

    /// Prepares a statement, or takes it from the cache; see [`Connection::prepare_cached`].
    ///
    /// # Errors
    /// The engine's own.
    pub fn prepare_cached(&self, sql: &str) -> Result<CachedStatement<'_>> {
        self.told(self.connection.prepare_cached(sql))
    }

    /// How many rows the last statement changed.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.connection.changes()
    }

    /// The row id of the last insert.
    #[must_use]
    pub fn last_insert_rowid(&self) -> i64 {
        self.connection.last_insert_rowid()
    }

    /// The bare connection, for what has no method here.
    ///
    /// It is the store's only write connection, and other effects use it as well. Statements through it are
    /// guarded like all others. Its limits, its configuration and its busy timeout are set back after the
    /// effect; what else it offers besides statements is not, and is yours to leave as it was. An effect
    /// that has finished must leave no statement open, nor forget one without dropping it: a statement that is forgotten
    /// keeps the log from being shortened, and together with an interrupt the file locked, until the process ends.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        self.exposed.get_or_init(|| schema::own(&self.connection));
        &self.connection
    }

    /// What an effect is told: of a refused statement also what was refused.
    fn told<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| {
            self.was_full.set(self.was_full.get() || failure::is_full(&error));
            self.guard.explain(error)
        })
    }

    pub(crate) fn tables(&self) -> Tables<'_> {
        Tables { connection: &self.connection, sql: &self.sql }
    }

    /// Does something to the effect space in the store's own mode.
    fn portable<T>(
        &self,
        work: impl FnOnce(Tables<'_>, &Space) -> std::result::Result<T, Error>,
    ) -> std::result::Result<T, Error> {
        let space = self.space.as_ref().expect("an effect runs for a key");
        let worked = self.guard.within(Mode::Store, || work(self.tables(), space));
        worked.map_err(|error| {
            self.was_full.set(self.was_full.get() || matches!(error.kind(), ErrorKind::Full));
            error.of_transaction()
        })
    }
}

impl Transaction for SqliteTransaction {
    fn get(&mut self, name: &[u8]) -> std::result::Result<Option<Bytes>, Error> {
        self.portable(|tables, space| tables.value(space, name))
    }

    fn put(&mut self, name: &[u8], value: &[u8]) -> std::result::Result<(), Error> {
        self.portable(|tables, space| tables.put(space, name, value).map_err(failed))
    }

    fn delete(&mut self, name: &[u8]) -> std::result::Result<(), Error> {
        self.portable(|tables, space| tables.delete(space, name).map_err(failed))
    }
}
