//! What is behind a store: the database, the committer, and the ways that a call takes through them.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use bytes::Bytes;
use idem_core::{Clock, Error, ErrorKind, Key, Record, Space};
use parking_lot::{Mutex, RwLock};
use tokio::sync::oneshot;

use crate::{
    SledBuilder, Synchronous,
    commit::{Commit, Verdict},
    committer::Committer,
    database::{Database, Place},
    disk::Disk,
    failure::{self, Trouble, guarded},
    names,
    opening::{self, Opened},
    pending::{Entry, Pending},
    purge::{Purge, Removed},
    queue::{Job, Queue},
    thread,
};

/// The database of one open store, and its committer.
pub(crate) struct Engine {
    pub(crate) options: SledBuilder,
    pub(crate) folder: std::path::PathBuf,
    /// None once it is closed. Locked for as long as the engine is asked something, and never while anybody
    /// else's code runs.
    database: RwLock<Option<Database>>,
    pub(crate) pending: Pending,
    pub(crate) queue: Queue,
    /// Held while closing, so that whoever else closes waits for the end as well.
    committer: Mutex<Option<JoinHandle<Committer>>>,
}

impl Engine {
    /// Starts the committer of an open database.
    pub(crate) fn start(
        options: &SledBuilder,
        opened: Opened,
        wrap: impl FnOnce(Box<dyn Disk>) -> Box<dyn Disk>,
    ) -> Result<Arc<Self>, Error> {
        let Opened { folder, marker, database, files, batches } = opened;
        let engine = Arc::new(Self {
            options: options.clone(),
            folder,
            database: RwLock::new(Some(database)),
            pending: Pending::new(),
            queue: Queue::default(),
            committer: Mutex::new(None),
        });
        let committer = Committer::new(marker, wrap(Box::new(files)), batches);
        let shared = Arc::clone(&engine);
        let thread = thread::start("idem-sled-commit", move || committer.work(&shared))?;
        *engine.committer.lock() = Some(thread);
        Ok(engine)
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.options.clock
    }

    pub(crate) fn synchronous(&self) -> Synchronous {
        self.options.synchronous
    }

    /// Asks the engine for something.
    pub(crate) fn read<T>(
        &self,
        work: impl FnOnce(&Database) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match &*self.database.read() {
            Some(database) => work(database),
            None => Err(failure::closed()),
        }
    }

    /// The committed record of a key, durable or not.
    fn record(&self, key: &[u8]) -> Result<Option<Record>, Error> {
        let found = self.read(|database| ask(|| database.records.get(key)))?;
        found.map(|bytes| Record::from_bytes(&Bytes::copy_from_slice(&bytes))).transpose()
    }

    /// The committed value under a name, durable or not.
    pub(crate) fn value(&self, place: &Place, name: &[u8]) -> Result<Option<Bytes>, Error> {
        let found = self.read(|database| ask(|| database.tree(place)?.get(name)))?;
        Ok(found.map(|bytes| Bytes::copy_from_slice(&bytes)))
    }

    /// The committed record of a key, durable.
    pub(crate) async fn durable_record(&self, key: &Key) -> Result<Option<Record>, Error> {
        let key = key.to_bytes();
        // Before as well, so that no effect runs on what a batch under way is about to replace.
        self.pending.wait(Entry::Record(&key)).await?;
        let record = self.record(&key)?;
        self.pending.wait(Entry::Record(&key)).await?;
        Ok(record)
    }

    /// The committed value under a portable name, durable.
    pub(crate) async fn durable_value(
        &self,
        space: &Space,
        name: &[u8],
    ) -> Result<Option<Bytes>, Error> {
        let name = names::of_value(space, name);
        let value = self.value(&Place::Values, &name)?;
        self.pending.wait(Entry::Value(&name)).await?;
        Ok(value)
    }

    /// The records that follow `after` in the order of their bytes, at most so many, durable.
    pub(crate) async fn records_after(
        &self,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<(Key, Record)>, Error> {
        let records = self.read(|database| {
            let records = match after {
                // The first name that is larger: the key's own bytes are a part of it.
                Some(key) => database.records.range([&*key.to_bytes(), &[0]].concat()..),
                None => database.records.iter(),
            };
            // Ends at the first error, which the engine would give for ever.
            ask(|| records.take(limit).collect::<sled::Result<Vec<_>>>())
        })?;
        self.pending.wait_for_all().await?;
        let parsed = records.into_iter().map(|(key, record)| {
            let record = Record::from_bytes(&Bytes::copy_from_slice(&record))?;
            Ok((names::key(&key)?, record))
        });
        parsed.collect()
    }

    /// Has the committer do a commit.
    pub(crate) async fn commit(
        &self,
        commit: impl FnOnce(oneshot::Sender<Result<Verdict, Error>>) -> Commit,
    ) -> Result<Verdict, Error> {
        let (reply, answer) = oneshot::channel();
        self.push(Job::Commit(Box::new(commit(reply))))?;
        answer.await.unwrap_or_else(|_| Err(failure::lost()))
    }

    /// Has the committer remove some records.
    pub(crate) async fn purge(&self, limit: usize) -> Result<Removed, Error> {
        let (reply, answer) = oneshot::channel();
        self.push(Job::Purge(Purge { now: self.clock().now(), limit, reply }))?;
        answer.await.unwrap_or_else(|_| Err(failure::lost()))
    }

    fn push(&self, job: Job) -> Result<(), Error> {
        self.queue.push(job).map_err(|_| failure::closed())
    }

    /// Takes no more calls, finishes what is queued and lets go of the files. Blocks.
    ///
    /// # Errors
    /// What kept the last batch from being durable; [`ErrorKind::Busy`] if somebody else holds a handle of the
    /// engine for longer than the busy timeout. It is closed all the same.
    pub(crate) fn close(&self) -> Result<(), Error> {
        let mut committer = self.committer.lock();
        self.queue.close();
        let Some(thread) = committer.take() else { return Ok(()) };
        let joined = thread.join();
        let database = self.database.write().take();
        let (Ok(mut committer), Some(database)) = (joined, database) else { return Ok(()) };
        let ended = committer.end(&database, &self.pending);
        let is_let_go = let_go(database, &self.folder, self.options.busy_timeout);
        // The folder's own lock goes last.
        drop(committer);
        ended.map_err(Trouble::nothing_done)?;
        match is_let_go {
            true => Ok(()),
            false => {
                let waited = self.options.busy_timeout;
                Err(Error::nothing_done(ErrorKind::Busy { waited }))
            }
        }
    }
}

fn ask<T>(work: impl FnOnce() -> sled::Result<T>) -> Result<T, Error> {
    guarded(work).map_err(Trouble::nothing_done)
}

/// Drops the engine's handles, and says whether its files are let go.
fn let_go(database: Database, folder: &std::path::Path, patience: Duration) -> bool {
    // On a thread of its own: after some failures the engine waits there for ever. It may panic, too.
    let drop_it = move || drop(catch_unwind(AssertUnwindSafe(|| drop(database))));
    let is_started = thread::start("idem-sled-drop", drop_it).is_ok();
    is_started && opening::wait_until_let_go(folder, patience)
}
