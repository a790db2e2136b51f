//! The store: how to transact on SQLite.

use std::{fmt, path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use idem_core::{
    BoxFuture, BoxStep, Committed, Cursor, Delays, Durability, Error, Filter, Guarantees, Key,
    Page, Purged, Sharing, Space, Store, runtime,
};

use crate::{
    SqliteBuilder, SqliteTransaction, Synchronous, engine::Engine, list::list, location::Location,
    purge::purge,
};

/// A store in a SQLite database that it shares with the user's own tables. A clone shares its connections.
///
/// Guarantees: a commit survives a crash of the machine ([`Synchronous::Normal`]: of the process); processes
/// of one machine may share the file; its own clock or the one given; while an effect runs whoever wants to
/// write waits, and replays and reads go on (in memory they wait as well); it can list.
///
/// # Who commits
/// A caller that finds the write connection free commits on its own thread, together with the steps that
/// queued up behind it meanwhile. On a current-thread runtime that blocks the runtime for one commit;
/// [`SqliteBuilder::dedicated_writer`] leaves it to a thread. A caller never waits on its own thread for
/// another process's lock.
///
/// So a caller may run its neighbours' effects too, for 5 milliseconds and the rest of the last one.
///
/// An effect must not count on the thread that it runs on. There may be no async runtime on it: with tokio,
/// `Handle::current()` then panics. Task-local and thread-local values may be those of another caller, or none.
/// Take what the effect needs into its closure.
///
/// # Closing
/// [`Store::close`] waits for what is under way and returns when the file is let go; or with
/// [`ErrorKind::Busy`](idem_core::ErrorKind::Busy) after the busy timeout, and then the file is let go when it is called again or the last
/// handle is dropped. Dropping the last handle closes in the background. Each handle that was opened has three
/// threads, asleep most of the time.
///
/// # Forks
/// A child that was forked while the store was open has none of its locks: each call there fails with
/// [`ErrorKind::OtherProcess`](idem_core::ErrorKind::OtherProcess), closing too, and dropping it closes nothing. Nor can
/// the child open that file, see [`SqliteBuilder::open`]. It may open another file if no call of any store was under way
/// at the fork: SQLite has locks of its own that could be held for ever. An effect must not fork and return in both.
///
/// # Reentry
/// An effect may read its own store: it sees what is committed, not what it wrote itself. One that asks it
/// to write, or an in-memory one to read, gets [`ErrorKind::Reentrant`](idem_core::ErrorKind::Reentrant); through another thread,
/// [`ErrorKind::Busy`](idem_core::ErrorKind::Busy) after the busy timeout.
#[derive(Clone)]
pub struct SqliteStore(Arc<Handle>);

struct Handle(Arc<Engine>);

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = &self.engine().config;
        f.debug_struct("SqliteStore")
            .field("location", &config.location)
            .field("options", &config.options)
            .finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens the database at `path` with the default options, and creates what is missing.
    ///
    /// # Errors
    /// See [`SqliteBuilder::open`].
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::builder().open(path).await
    }

    /// Opens a database of its own in memory.
    ///
    /// # Errors
    /// See [`SqliteBuilder::open_in_memory`].
    pub async fn open_in_memory() -> Result<Self, Error> {
        Self::builder().open_in_memory().await
    }

    /// Options to open a store with.
    pub fn builder() -> SqliteBuilder {
        SqliteBuilder::default()
    }

    pub(crate) fn open_at(options: &SqliteBuilder, location: &Location) -> Result<Self, Error> {
        let engine = Arc::new(Engine::open(options, location)?);
        // From here on whatever fails closes what is open.
        let store = Self(Arc::new(Handle(engine)));
        store.engine().start_threads()?;
        Ok(store)
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.0.0
    }

    /// The engine, in the process that opened it.
    fn at_home(&self) -> Result<&Arc<Engine>, Error> {
        self.engine().home.check()?;
        Ok(self.engine())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Closing in a forked child would copy and delete the log that its parent goes on with.
        if self.0.home.leak_elsewhere(&self.0) {
            return;
        }
        // On a thread of its own: this one may be a runtime's, or in the very effect that closing waits for.
        let engine = Arc::clone(&self.0);
        drop(runtime::start("idem-sqlite-close", move || drop(engine.close(None))));
    }
}

#[async_trait]
impl Store for SqliteStore {
    type Transaction = SqliteTransaction;

    async fn transact(
        &self,
        key: &Key,
        step: BoxStep<SqliteTransaction>,
    ) -> Result<Committed, Error> {
        self.at_home()?.transact(key, step).await
    }

    async fn purge(&self, limit: usize) -> Result<Purged, Error> {
        purge(self.at_home()?, limit).await
    }

    async fn value(&self, space: &Space, name: &[u8]) -> Result<Option<Bytes>, Error> {
        let (space, name) = (space.clone(), name.to_vec());
        self.at_home()?.read(move |tables| tables.value(&space, &name)).await
    }

    async fn list(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, Error> {
        let engine = self.at_home()?;
        let now = engine.config.options.clock.now();
        let (filter, after) = (filter.clone(), after.map(Cursor::key).transpose()?);
        engine.read(move |tables| list(tables, &filter, after.as_ref(), limit, now)).await
    }

    async fn close(&self) -> Result<(), Error> {
        let engine = Arc::clone(self.at_home()?);
        engine.check_reentry()?;
        let patience = Some(engine.config.options.busy_timeout);
        runtime::run("idem-sqlite-close", move || engine.close(patience)).await?
    }

    fn guarantees(&self) -> Guarantees {
        let config = &self.engine().config;
        if config.location.is_memory() {
            return Guarantees::new(Durability::Process, Sharing::Process)
                .delays(Delays::Everything);
        }
        let durability = match config.options.synchronous {
            Synchronous::Full => Durability::PowerLoss,
            Synchronous::Normal => Durability::ProcessCrash,
        };
        Guarantees::new(durability, Sharing::Host).delays(Delays::Writes)
    }

    fn detach(&self, task: BoxFuture<()>) {
        runtime::detach(task);
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        runtime::sleep(&*self.engine().config.options.clock, duration)
    }
}
