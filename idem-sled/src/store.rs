//! The store: how to transact on sled.

use std::{fmt, path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use idem_core::{
    BoxFuture, BoxStep, Committed, Cursor, Durability, Error, Filter, Guarantees, Key, Page,
    Purged, Sharing, Space, Store, optimistic, runtime,
};

use crate::{
    SledBuilder, SledTransaction, Synchronous, attempts::Attempts, disk::Disk, engine::Engine,
    opening::Opened,
};

/// Records removed in one batch of a purge, so that others need not wait long.
const PURGE_CHUNK: usize = 500;

/// A store in a sled database that it shares with the user's own trees. A clone shares it.
///
/// Guarantees: a commit survives a crash of the machine ([`Synchronous::Flush`]: of the process); one process,
/// and in it one open store and its clones; its own clock or the one given; a slow effect delays nobody; it can
/// list. Its calls need no runtime.
///
/// # Who commits
/// An effect runs on its caller's thread, outside every lock, and a thread of the store commits what it did,
/// together with what others did meanwhile. A replay waits only if its receipt is not durable yet.
///
/// # Many callers of one value
/// If callers race for one value, each loser waits for its turn before it runs its effect again, so that a commit costs
/// about two runs however many there are. A caller takes the next turn when the one before is committed, before it is
/// durable. It also takes it after 5 milliseconds without a commit, and 0.5 more for each caller before it in the line:
/// so a slow effect holds up those who want its values for that long, and nobody else.
///
/// # When the disk fails
/// If a batch cannot be written or synced, its callers are told that it is unknown whether their keys completed,
/// and so is whoever asks for one of those keys. Other receipts are replayed as far as the engine can still read
/// them, and nothing more is committed by this store, also when there is room again: make room, and start the process
/// again. After a failure of the engine's own, such as a full disk, it never lets go of its files in this process, so
/// that opening them there says that somebody has them open; another process can open them.
///
/// # Closing
/// [`Store::close`] waits for the commits that are queued and returns when the files are let go; an effect that
/// still runs then finds the store closed. If somebody holds a handle that [`SledStore::db`] gave, it returns an
/// error after the busy timeout: the store is closed, and the files are let go with that handle.
/// Dropping the last handle closes in the background.
///
/// # Forks
/// In a child that was forked while the store was open each call fails with
/// [`ErrorKind::OtherProcess`](idem_core::ErrorKind::OtherProcess), closing too, and dropping it closes nothing. Nor can
/// a child of a process that has opened a folder open any: the engine would wait for threads that are not there. Such a
/// child keeps the folder locked until it ends or starts another program: until then the folder cannot be opened again,
/// and [`Store::close`] says so after the busy timeout.
#[derive(Clone)]
pub struct SledStore(Arc<Handle>);

struct Handle(Arc<Engine>);

impl fmt::Debug for SledStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SledStore")
            .field("folder", &self.engine().folder)
            .field("options", &self.engine().options)
            .finish_non_exhaustive()
    }
}

impl SledStore {
    /// Opens the store in the folder at `path` with the default options, and creates what is missing.
    ///
    /// # Errors
    /// See [`SledBuilder::open`].
    ///
    /// # Cancel safety
    /// See [`SledBuilder::open`].
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::builder().open(path).await
    }

    /// Options to open a store with.
    pub fn builder() -> SledBuilder {
        SledBuilder::default()
    }

    /// The engine's handle of the database, to read your trees outside effects, or to write to them.
    ///
    /// What you write beside the store is seen by effects, and compared at their commits. It is durable when you
    /// have flushed it and a later commit of the store, or its end, has synced it; what you read may not be
    /// durable yet. Leave the trees alone whose names begin with `idem.`, and never call `flush_async`: several
    /// at once wait for each other for ever. Inside a transaction of the engine, call neither the engine nor the
    /// store: its lock is the process's. Use no handle in a forked child.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`](idem_core::ErrorKind::Closed); [`ErrorKind::OtherProcess`](idem_core::ErrorKind::OtherProcess)
    /// in a forked child.
    pub fn db(&self) -> Result<sled::Db, Error> {
        self.at_home()?.read(|database| Ok(database.db.clone()))
    }

    pub(crate) fn start(options: &SledBuilder, opened: Opened) -> Result<Self, Error> {
        Self::start_with(options, opened, |disk| disk)
    }

    /// As [`SledStore::start`], with something between the store and its disk.
    pub(crate) fn start_with(
        options: &SledBuilder,
        opened: Opened,
        wrap: impl FnOnce(Box<dyn Disk>) -> Box<dyn Disk>,
    ) -> Result<Self, Error> {
        Ok(Self(Arc::new(Handle(Engine::start(options, opened, wrap)?))))
    }

    fn engine(&self) -> &Arc<Engine> {
        &self.0.0
    }

    /// The engine, in the process that opened it.
    pub(crate) fn at_home(&self) -> Result<&Arc<Engine>, Error> {
        self.engine().home.check()?;
        Ok(self.engine())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // A forked child has neither the committer nor the engine's threads: what they would end hangs there.
        if self.0.home.leak_elsewhere(&self.0) {
            return;
        }
        // On a thread of its own: this one may be a runtime's, or in the very effect that closing waits for.
        let engine = Arc::clone(&self.0);
        drop(runtime::start("idem-sled-close", move || engine.close()));
    }
}

#[async_trait]
impl Store for SledStore {
    type Transaction = SledTransaction;

    async fn transact(
        &self,
        key: &Key,
        step: BoxStep<SledTransaction>,
    ) -> Result<Committed, Error> {
        optimistic(&Attempts::new(self.at_home()?), key, step).await
    }

    async fn purge(&self, limit: usize) -> Result<Purged, Error> {
        let engine = self.at_home()?;
        let mut count = 0;
        while count < limit {
            let removed = engine.purge(PURGE_CHUNK.min(limit - count)).await?;
            count += removed.count;
            if removed.all {
                return Ok(Purged::new(count, false));
            }
        }
        Ok(Purged::new(count, true))
    }

    async fn value(&self, space: &Space, name: &[u8]) -> Result<Option<Bytes>, Error> {
        self.at_home()?.durable_value(space, name).await
    }

    async fn list(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, Error> {
        self.at_home()?.page(filter, after, limit).await
    }

    async fn close(&self) -> Result<(), Error> {
        let engine = Arc::clone(self.at_home()?);
        runtime::run("idem-sled-close", move || engine.close()).await?
    }

    fn guarantees(&self) -> Guarantees {
        let durability = match self.engine().synchronous() {
            Synchronous::Full => Durability::PowerLoss,
            Synchronous::Flush => Durability::ProcessCrash,
        };
        Guarantees::new(durability, Sharing::Process)
    }

    fn detach(&self, task: BoxFuture<()>) {
        runtime::detach(task);
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        runtime::sleep(self.engine().clock(), duration)
    }
}
