//! The write connection: beginning, running one step, committing.

use std::{
    cell::{Cell, OnceCell},
    sync::Arc,
    time::Duration,
};

use idem_core::{Change, Committed, Error, ErrorKind, Key, Record, Timestamp, run_step};
use rusqlite::{Connection, ErrorCode};

use crate::{
    SqliteTransaction,
    checkpoint::Checkpoints,
    failure::{self, failed, is_refused},
    guard::{Guard, Mode, Settings},
    job::StepJob,
    options::Config,
    reentry,
    schema::{self, Own},
    sql::Sql,
    tables::Tables,
    turns::Turns,
};

/// Statements kept prepared: the store's own and those of effects.
const STATEMENTS: usize = 128;

/// The write connection of a store.
pub(crate) struct Writer {
    transaction: SqliteTransaction,
    settings: Settings,
    config: Arc<Config>,
    checkpoints: Checkpoints,
    turns: Turns,
    /// The connection is no good any more: open another one first.
    broken: bool,
    /// Takes the place of the next commit.
    #[cfg(test)]
    fault: Option<disturb::Fault>,
}

/// The transaction cannot go on, and nothing of it may be kept; with the step's error, if it had one.
pub(crate) struct Died(pub(crate) Option<Error>);

/// How a commit failed.
pub(crate) enum CommitFailure {
    /// Nothing is kept.
    Nothing(Error),
    /// It may be found committed.
    Unknown(rusqlite::Error),
}

impl Writer {
    /// A writer on a connection that has idem's tables.
    pub(crate) fn new(
        connection: Connection,
        config: Arc<Config>,
        checkpoints: Checkpoints,
    ) -> Result<Self, Error> {
        let (transaction, settings) = guard(connection, &checkpoints).map_err(failed)?;
        Ok(Self {
            transaction,
            settings,
            turns: Turns::at(&config.location),
            config,
            checkpoints,
            broken: false,
            #[cfg(test)]
            fault: None,
        })
    }

    pub(crate) fn tables(&self) -> Tables<'_> {
        self.transaction.tables()
    }

    pub(crate) fn busy_timeout(&self) -> Duration {
        self.config.options.busy_timeout
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.config.options.clock.now()
    }

    /// Takes the write lock, and waits for it as long as `patience`.
    pub(crate) fn begin(&mut self, patience: Duration) -> Result<(), rusqlite::Error> {
        let begun = self.try_begin(patience);
        if begun.is_err() {
            // What failed may have the lock all the same: an interrupt can come when it is done.
            self.recover();
        }
        begun
    }

    fn try_begin(&mut self, patience: Duration) -> rusqlite::Result<()> {
        if self.broken {
            self.reopen()?;
        }
        // Whatever a failure or a panic may have left.
        self.end()?;
        self.transaction.was_full.set(false);
        self.connection().busy_timeout(Duration::ZERO)?;
        let tables = self.transaction.tables();
        let begin = || tables.prepare(&tables.sql.begin)?.raw_execute().map(drop);
        self.turns.take(patience, begin)?;
        // A COMMIT can be busy too.
        self.connection().busy_timeout(patience)
    }

    /// Reads what is committed.
    pub(crate) fn read<T>(
        &self,
        work: impl FnOnce(Tables<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        // Not what a transaction wrote that could not be ended.
        self.end().map_err(failed)?;
        work(self.tables())
    }

    /// Runs one step in the open transaction. With a savepoint its own failure leaves the transaction as it
    /// was; without one the transaction cannot go on.
    pub(crate) fn run(
        &mut self,
        job: &mut StepJob,
        in_savepoint: bool,
    ) -> Result<Result<Committed, Error>, Died> {
        let before = match self.tables().record(&job.key) {
            Ok(before) => before,
            Err(error) if self.is_alive() && in_savepoint => return Ok(Err(error)),
            Err(error) => return Err(Died(Some(error))),
        };
        let now = self.now();
        if !job.step.proceeds(before.as_ref(), now) {
            return Ok(Ok(Committed::kept(before, now)));
        }
        if in_savepoint {
            self.or_died(&self.transaction.sql.savepoint)?;
        }
        let change = self.run_guarded(job, before.as_ref(), now);
        if !self.is_alive() {
            let error = change.err();
            return Err(Died(match self.transaction.was_full.get() {
                true => failure::ended_when_full(error),
                false => error,
            }));
        }
        if self.connection().is_busy() {
            // A statement that was left open fails every later commit, and only its owner can close it.
            self.broken = true;
            return Err(Died(change.err()));
        }
        let after = change.and_then(|change| self.write(&job.key, change, before.as_ref(), now));
        match after {
            Ok(after) if self.is_alive() => {
                if in_savepoint {
                    self.or_died(&self.transaction.sql.release)?;
                }
                Ok(Ok(Committed::ran(before, after, now)))
            }
            Err(error) if self.is_alive() && in_savepoint => {
                self.or_died(&self.transaction.sql.rollback_to)?;
                self.or_died(&self.transaction.sql.release)?;
                Ok(Err(error))
            }
            after => Err(Died(after.err())),
        }
    }

    fn run_guarded(
        &mut self,
        job: &mut StepJob,
        before: Option<&Record>,
        now: Timestamp,
    ) -> Result<Change, Error> {
        let guard = self.transaction.guard.clone();
        drop(guard.take_refusal());
        let transaction = &mut self.transaction;
        transaction.space = Some(job.key.space());
        let change = reentry::within(&self.config.location, || {
            guard.within(Mode::Effect, || run_step(&mut *job.step, transaction, before, now))
        });
        // Before anything else runs on the connection: not even the rest of its group may notice.
        let exposed = self.transaction.exposed.take();
        if exposed.is_some() {
            self.restore_settings();
        }
        // Of a statement on the bare connection its error does not say what was refused.
        let change = change.map_err(|error| explain(error, &guard));
        if guard.take_defied() {
            let ended = Error::nothing_done(ErrorKind::TransactionEnded);
            return Err(match (change, guard.take_refusal()) {
                (Err(error), _) => ended.with_source(error),
                (Ok(_), Some(refusal)) => ended.with_source(refusal),
                (Ok(_), None) => ended,
            });
        }
        let has_trigger = guard.take_trigger();
        // An effect that has failed is rolled back.
        let change = change?;
        let problem = self.harm(exposed, has_trigger)?;
        match problem {
            Some(problem) => Err(Error::nothing_done(ErrorKind::Effect).with_source(problem)),
            None => Ok(change),
        }
    }

    /// What an effect has done to the store's own tables, or would have the store do.
    fn harm(
        &self,
        exposed: Option<rusqlite::Result<Own>>,
        has_trigger: bool,
    ) -> Result<Option<&'static str>, Error> {
        if let Some(before) = exposed
            && before.map_err(failed)? != schema::own(self.connection()).map_err(failed)?
        {
            return Ok(Some("the effect has changed idem's own tables in the schema"));
        }
        match if has_trigger { self.tables().check() } else { Ok(()) } {
            Err(error) if is_refused(&error) => Ok(Some(
                "the effect has made a trigger that writes to idem's tables when the store does",
            )),
            checked => checked.map(|()| None).map_err(failed),
        }
    }

    fn write(
        &self,
        key: &Key,
        change: Change,
        before: Option<&Record>,
        now: Timestamp,
    ) -> Result<Option<Record>, Error> {
        let tables = self.tables();
        let after = change.stamp(before, now, || tables.next_token(now))?;
        if after.as_ref() != before {
            tables.set_record(key, before, after.as_ref()).map_err(failed)?;
        }
        Ok(after)
    }

    /// Commits the open transaction; whatever comes of it, it is over.
    pub(crate) fn commit(&mut self) -> Result<(), CommitFailure> {
        let Err(error) = self.run_commit() else { return Ok(()) };
        let was_open = self.is_alive();
        self.rollback();
        // In memory there is no log in which a recovery may find it.
        let is_nowhere = was_open && self.config.location.is_memory();
        if !is_nowhere && !failure::commits_nothing(&error) {
            self.broken = !self.config.location.is_memory();
            return Err(CommitFailure::Unknown(error));
        }
        if !was_open && failure::is_interrupt(&error) {
            // That it undoes no COMMIT, and so came when that was done, is said nowhere: so it is not told as done.
            return Err(CommitFailure::Unknown(error));
        }
        Err(CommitFailure::Nothing(match error.sqlite_error_code() {
            // What it misses may be what did not fit.
            Some(ErrorCode::ConstraintViolation) if self.transaction.was_full.get() => {
                Error::nothing_done(ErrorKind::Full).with_source(error)
            }
            // Only what the effects wrote can violate a constraint as late as this.
            Some(ErrorCode::ConstraintViolation) => {
                Error::nothing_done(ErrorKind::Effect).with_source(error)
            }
            _ => failed(error),
        }))
    }

    fn run_commit(&mut self) -> rusqlite::Result<()> {
        #[cfg(test)]
        if let Some(fault) = self.fault.take() {
            return fault(self);
        }
        self.run_own_commit()
    }

    fn run_own_commit(&self) -> rusqlite::Result<()> {
        let guard = &self.transaction.guard;
        guard.within(Mode::Commit, || self.run_own(&self.transaction.sql.commit))
    }

    /// After a turn that broke something: lets go of the lock, on another connection if need be.
    pub(crate) fn recover(&mut self) {
        self.rollback();
        if self.broken {
            // If it cannot be had now, the next call asks for it again and is told why not.
            drop(self.reopen());
        }
    }

    /// Ends the open transaction, if there is one, and keeps nothing of it.
    pub(crate) fn rollback(&mut self) {
        if self.end().is_err() && self.is_alive() {
            // In memory there is no other connection: this one is asked again before it is used again.
            self.broken |= !self.config.location.is_memory();
        }
    }

    fn end(&self) -> rusqlite::Result<()> {
        if self.is_alive() { self.run_own(&self.transaction.sql.rollback) } else { Ok(()) }
    }

    /// Sets back what an effect may have changed on the connection itself.
    fn restore_settings(&mut self) {
        self.connection().set_prepared_statement_cache_capacity(STATEMENTS);
        if self.settings.restore(self.connection()).is_err() {
            self.broken = true;
        }
    }

    /// Runs `work` in a transaction of its own.
    pub(crate) fn transact<T>(
        &mut self,
        work: impl FnOnce(Tables<'_>, Timestamp) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let timeout = self.busy_timeout();
        self.begin(timeout).map_err(|error| failure::timed(error, timeout))?;
        let settled = match work(self.tables(), self.now()) {
            Ok(value) => match self.commit() {
                Ok(()) => Ok(value),
                Err(CommitFailure::Nothing(error)) => Err(error),
                Err(CommitFailure::Unknown(error)) => Err(failure::unknown(&Arc::new(error))),
            },
            Err(error) => Err(error),
        };
        self.recover();
        settled
    }

    fn reopen(&mut self) -> rusqlite::Result<()> {
        let connection = schema::reopen(&self.config)?;
        let (transaction, settings) = guard(connection, &self.checkpoints)?;
        self.transaction = transaction;
        self.settings = settings;
        self.broken = false;
        Ok(())
    }

    /// Whether a transaction is open.
    fn is_alive(&self) -> bool {
        !self.connection().is_autocommit()
    }

    fn connection(&self) -> &Connection {
        &self.transaction.connection
    }

    fn run_own(&self, sql: &str) -> rusqlite::Result<()> {
        self.tables().prepare(sql)?.raw_execute().map(drop)
    }

    fn or_died(&self, sql: &str) -> Result<(), Died> {
        self.run_own(sql).map_err(|error| Died(Some(failed(error))))
    }
}

fn guard(
    mut connection: Connection,
    checkpoints: &Checkpoints,
) -> rusqlite::Result<(SqliteTransaction, Settings)> {
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    checkpoints.watch(&mut connection)?;
    let settings = Settings::of(&connection)?;
    let guard = Guard::install(&mut connection)?;
    let (sql, exposed, was_full) = (Sql::new(), OnceCell::new(), Cell::new(false));
    let transaction = SqliteTransaction { connection, guard, sql, space: None, exposed, was_full };
    Ok((transaction, settings))
}

/// An effect's error, which also says what was refused if a statement was.
fn explain(error: Error, guard: &Guard) -> Error {
    if !matches!(error.kind(), ErrorKind::Effect) {
        return error;
    }
    let certainty = error.certainty();
    match error.into_effect_error::<rusqlite::Error>() {
        Ok(engine) => Error::new(ErrorKind::Effect, certainty).with_source(guard.explain(engine)),
        Err(error) => error,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod disturb;
