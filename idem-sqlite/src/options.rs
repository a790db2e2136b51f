//! How a store is opened.

use std::{fmt, path::Path, sync::Arc, time::Duration};

use idem_core::{Clock, Error, ErrorKind, Span, SystemClock};
use rusqlite::{Connection, OpenFlags};

use crate::{
    SqliteStore,
    location::Location,
    on_connect::{self, OnConnect},
};

/// When a commit is written through to the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Synchronous {
    /// At every commit: it survives a crash of the machine.
    #[default]
    Full,
    /// At checkpoints: a commit survives a crash of the process; the last ones may be lost with the machine,
    /// and the database stays sound.
    Normal,
}

/// Options for opening a [`SqliteStore`]. Made by [`SqliteStore::builder`].
#[derive(Clone)]
#[must_use = "options do nothing until something is opened"]
pub struct SqliteBuilder {
    pub(crate) synchronous: Synchronous,
    pub(crate) busy_timeout: Duration,
    pub(crate) dedicated_writer: bool,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) on_connect: Option<OnConnect>,
}

impl fmt::Debug for SqliteBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteBuilder")
            .field("synchronous", &self.synchronous)
            .field("busy_timeout", &self.busy_timeout)
            .field("dedicated_writer", &self.dedicated_writer)
            .finish_non_exhaustive()
    }
}

impl Default for SqliteBuilder {
    fn default() -> Self {
        Self {
            synchronous: Synchronous::default(),
            busy_timeout: Duration::from_secs(5),
            dedicated_writer: false,
            clock: Arc::new(SystemClock),
            on_connect: None,
        }
    }
}

impl SqliteBuilder {
    /// When a commit is written through. [`Synchronous::Full`] unless told. All who share the file should
    /// agree: a receipt is as durable as whoever wrote it made it.
    pub fn synchronous(mut self, synchronous: Synchronous) -> Self {
        self.synchronous = synchronous;
        self
    }

    /// How long a call waits for its turn to write: for another process's lock, and behind another caller's
    /// effect. Stores of several processes take turns, so allow for one effect of each or more. 5 seconds unless told; between 1 millisecond and 24 days.
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = timeout;
        self
    }

    /// Commits on a thread of its own, always, instead of on the thread of whichever caller finds the
    /// connection free. Costs a lone caller two thread switches a call; on a current-thread runtime it
    /// keeps a commit from blocking the other tasks.
    pub fn dedicated_writer(mut self, dedicated: bool) -> Self {
        self.dedicated_writer = dedicated;
        self
    }

    /// The clock that decides. The system's unless told.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Prepares each connection that the store opens, also those that it opens later: for functions, collations and
    /// pragmas of your own, or a key of an encrypted database.
    ///
    /// It runs before the store uses the connection, on any thread, and must not wait. What the store needs it sets
    /// afterwards: the write-ahead log, the locking mode, syncs, foreign keys, its busy timeout, its hooks and its
    /// authorizer. The bindings have functions and collations behind features of their own: name `rusqlite` in your
    /// `Cargo.toml` with those that you need.
    ///
    /// A later call replaces an earlier one. If it returns an error, panics or leaves a transaction open, whoever needs
    /// the connection gets [`ErrorKind::CannotOpen`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use idem_core::{Idem, Key, Request};
    /// use idem_sqlite::{SqliteStore, rusqlite::functions::FunctionFlags};
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("orders.db");
    /// let builder = SqliteStore::builder().on_connect(|connection| {
    ///     let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    ///     connection.create_scalar_function("with_tax", 1, flags, |args| {
    ///         Ok(args.get::<i64>(0)? * 119 / 100)
    ///     })
    /// });
    /// let idem = Idem::new(builder.open(&path).await?);
    /// let request = Request::new(Key::new("north", "web-order", "intent-a")?);
    /// let outcome = idem
    ///     .execute(&request, |tx| {
    ///         let gross: i64 = tx.query_row("SELECT with_tax(100)", [], |row| row.get(0))?;
    ///         Ok(gross)
    ///     })
    ///     .await?;
    /// assert_eq!(outcome.result(), Some(119));
    /// # Ok(()) }
    /// ```
    pub fn on_connect(
        mut self,
        on_connect: impl Fn(&Connection) -> rusqlite::Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.on_connect = Some(Arc::new(on_connect));
        self
    }

    /// Opens the database at `path`, and creates it and idem's tables where they are missing.
    ///
    /// Several handles and several processes may open the same file, at the same time too. The path
    /// `:memory:` is no file: see [`SqliteBuilder::open_in_memory`].
    ///
    /// A process that was forked while a store had the file open cannot open it: close it before the fork, open it only
    /// after, or have the child start another program.
    ///
    /// # Errors
    /// [`ErrorKind::CannotOpen`], naming the path, if there is no database to be had there, or a store
    /// had it open when this process was forked;
    /// [`ErrorKind::SchemaNewer`] if a newer version of this library made the tables, which stay untouched;
    /// [`ErrorKind::Busy`] if another process held the file for the whole timeout;
    /// [`ErrorKind::InvalidSetting`] or [`ErrorKind::InvalidDuration`] for a bad option.
    pub async fn open(self, path: impl AsRef<Path>) -> Result<SqliteStore, Error> {
        let location = Location::file(path.as_ref())?;
        self.open_at(location).await
    }

    /// Opens a database of its own in memory: one connection, nothing survives the store, and while an
    /// effect runs every other call waits.
    ///
    /// # Errors
    /// As [`SqliteBuilder::open`], but for the file.
    pub async fn open_in_memory(self) -> Result<SqliteStore, Error> {
        self.open_at(Location::memory()).await
    }

    async fn open_at(self, location: Location) -> Result<SqliteStore, Error> {
        self.check()?;
        // Opening waits for the disk and for other processes: not on the caller's thread.
        idem_core::runtime::run("idem-sqlite-open", move || SqliteStore::open_at(&self, &location))
            .await?
    }

    /// A connection as the user wants it, which waits so long for locks.
    pub(crate) fn connect(
        &self,
        location: &Location,
        more: OpenFlags,
        patience: Duration,
    ) -> rusqlite::Result<Connection> {
        let connection = location.connect(more)?;
        connection.busy_timeout(patience)?;
        on_connect::run(self.on_connect.as_ref(), &connection, location)?;
        connection.busy_timeout(patience)?;
        Ok(connection)
    }

    fn check(&self) -> Result<(), Error> {
        let field = "busy timeout";
        let millis = Span::new(field, self.busy_timeout)?.as_millis();
        if i32::try_from(millis).is_ok() {
            return Ok(());
        }
        let problem = "the engine takes 24 days at most: give less";
        Err(Error::nothing_done(ErrorKind::InvalidDuration {
            field,
            duration: self.busy_timeout,
            problem,
        }))
    }
}

/// How a store was opened.
pub(crate) struct Config {
    pub(crate) location: Location,
    pub(crate) options: SqliteBuilder,
}

impl Config {
    /// A connection to a database that exists: one that was moved away must not come back empty.
    ///
    /// It waits for nobody.
    pub(crate) fn connect(&self) -> rusqlite::Result<Connection> {
        self.options.connect(&self.location, OpenFlags::empty(), Duration::ZERO)
    }
}
