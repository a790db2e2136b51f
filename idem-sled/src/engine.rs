//! What is behind a store: the database, the committer, and the ways that a call takes through them.

use std::{
    future::poll_fn,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use idem_core::locks::{Mutex, RwLock};
use idem_core::{
    Clock, Cursor, Error, ErrorKind, Filter, HomeProcess, HotValues, Key, Page, Record, Space,
    SystemClock, runtime,
};
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
    pieces::Kind,
    purge::{Purge, Removed},
    queue::{Job, Queue},
};

/// The database of one open store, and its committer.
pub(crate) struct Engine {
    pub(crate) home: HomeProcess,
    pub(crate) options: SledBuilder,
    pub(crate) folder: PathBuf,
    /// None once it is closed. Locked for as long as the engine is asked something, and never while anybody
    /// else's code runs.
    database: RwLock<Option<Database>>,
    pub(crate) pending: Pending,
    pub(crate) queue: Queue,
    pub(crate) hot_values: Arc<HotValues>,
    /// Where the committer comes back when it has ended. Held while closing, so that whoever else closes waits for
    /// the end as well.
    committer: Mutex<Option<mpsc::Receiver<Committer>>>,
    closed: AtomicBool,
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
            home: HomeProcess::here(),
            options: options.clone(),
            folder,
            database: RwLock::new(Some(database)),
            pending: Pending::new(),
            queue: Queue::default(),
            hot_values: Arc::default(),
            committer: Mutex::new(None),
            closed: AtomicBool::new(false),
        });
        let committer = Committer::new(marker, wrap(Box::new(files)), batches);
        let shared = Arc::clone(&engine);
        let (back, end) = mpsc::channel();
        let work = move || drop(back.send(committer.work(&shared)));
        runtime::start("idem-sled-commit", work)?;
        *engine.committer.lock() = Some(end);
        Ok(engine)
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.options.clock
    }

    pub(crate) fn synchronous(&self) -> Synchronous {
        self.options.synchronous
    }

    /// Asks the engine for something, for a caller.
    pub(crate) fn read<T>(
        &self,
        work: impl FnOnce(&Database) -> sled::Result<T>,
    ) -> Result<T, Error> {
        if self.closed.load(Ordering::Acquire) {
            return Err(failure::closed());
        }
        self.with(|database| {
            guarded(|| work(database)).map_err(|trouble| {
                // A read can make the engine write: it splits pages.
                self.pending.note(&trouble);
                trouble.nothing_done()
            })
        })
    }

    /// Does something with the database, if it is still there.
    pub(crate) fn with<T>(
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
        let found = self.read(|database| database.whole(Kind::Record, key))?;
        found.map(|stored| names::record(key, &stored)).transpose()
    }

    /// The committed value under a name, durable or not.
    pub(crate) fn value(&self, place: &Place, name: &[u8]) -> Result<Option<Bytes>, Error> {
        let found = self.read(|database| database.get(place, name))?;
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
        let name = space.to_bytes(name);
        let value = self.value(&Place::Values, &name)?;
        self.pending.wait(Entry::Value(&name)).await?;
        Ok(value)
    }

    /// The page after that cursor, in the order of the bytes of keys, durable.
    pub(crate) async fn page(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, Error> {
        let ranges = filter.key_ranges(after)?;
        let now = self.clock().now();
        let page = self.read(|database| {
            let mut trouble = None;
            let records = &database.records;
            let found = ranges.flat_map(|range| records.range::<&[u8], _>(range.bounds()));
            let whole = found.filter_map(|entry| database.whole_record(entry).transpose());
            // Ends at the first error, which the engine would give for ever.
            let found = whole.map_while(|entry| entry.map_err(|error| trouble = Some(error)).ok());
            let entries =
                found.map(|(name, stored)| Ok((names::key(&name)?, names::record(&name, &stored))));
            let page = Page::collect(entries, filter, limit, now);
            trouble.map_or(Ok(page), Err)
        })?;
        self.pending.wait_for_all().await?;
        page
    }

    /// Has the committer do a commit.
    pub(crate) async fn commit(
        &self,
        commit: impl FnOnce(oneshot::Sender<Result<Verdict, Error>>) -> Commit,
    ) -> Result<Verdict, Error> {
        let (reply, answer) = oneshot::channel();
        self.push(Job::Commit(Box::new(commit(reply))))?;
        self.answer(answer).await
    }

    /// Has the committer remove some records.
    pub(crate) async fn purge(&self, limit: usize) -> Result<Removed, Error> {
        let (reply, answer) = oneshot::channel();
        self.push(Job::Purge(Purge { now: self.clock().now(), limit, reply }))?;
        self.answer(answer).await
    }

    /// What the committer answers; or that it is unknown, if something has failed since and the committer waits
    /// for the engine for ever.
    async fn answer<T>(&self, mut answer: oneshot::Receiver<Result<T, Error>>) -> Result<T, Error> {
        let failure = pin!(self.pending.wait_for_failure());
        match first_of(Pin::new(&mut answer), failure).await {
            Ok(answer) => answer.unwrap_or_else(|_| Err(runtime::lost())),
            Err(trouble) => {
                let patience = runtime::sleep(&SystemClock, self.options.busy_timeout);
                match first_of(Pin::new(&mut answer), patience).await {
                    Ok(answer) => answer.unwrap_or_else(|_| Err(runtime::lost())),
                    Err(()) => Err(trouble.unknown()),
                }
            }
        }
    }

    fn push(&self, job: Job) -> Result<(), Error> {
        self.queue.push(job).map_err(|_| failure::closed())
    }

    /// Takes no more calls, finishes what is queued and lets go of the files. Blocks.
    ///
    /// # Errors
    /// What kept the last batch from being durable; an error if somebody else holds a handle of the
    /// engine for longer than the busy timeout. It is closed all the same.
    pub(crate) fn close(&self) -> Result<(), Error> {
        let mut committer = self.committer.lock();
        self.queue.close();
        let ended = committer.take().map(|end| self.end(&end));
        self.closed.store(true, Ordering::Release);
        ended.unwrap_or(Ok(()))
    }

    fn end(&self, committer: &mpsc::Receiver<Committer>) -> Result<(), Error> {
        let held = || {
            let problem = "the store is closed, but a handle that `SledStore::db` gave, or a child that was forked while it was open, \
                           holds the folder: drop it, or let the child end";
            Error::nothing_done(ErrorKind::Store).with_source(problem)
        };
        let mut committer = self.wait_for(committer)?;
        let Some(database) = self.database.write().take() else { return Ok(()) };
        if let Some(trouble) = self.pending.failure().filter(Trouble::is_engines) {
            mem::forget(database);
            return Err(trouble.nothing_done());
        }
        let ended = committer.end(&database, &self.pending);
        let is_let_go = let_go(database, &self.folder, self.options.busy_timeout);
        // The folder's own lock goes last.
        drop(committer);
        ended.map_err(Trouble::nothing_done)?;
        if is_let_go { Ok(()) } else { Err(held()) }
    }

    /// Waits for the committer to end; not for ever, once something has failed.
    fn wait_for(&self, committer: &mpsc::Receiver<Committer>) -> Result<Committer, Error> {
        loop {
            let failed = self.pending.failure();
            match (committer.recv_timeout(self.options.busy_timeout), failed) {
                (Ok(committer), _) => return Ok(committer),
                (Err(RecvTimeoutError::Timeout), None) => {}
                (Err(_), Some(trouble)) => return Err(trouble.nothing_done()),
                (Err(RecvTimeoutError::Disconnected), None) => return Err(runtime::lost()),
            }
        }
    }
}

/// What the first gives, or else what the second gives before it.
async fn first_of<A: Future + Unpin, B: Future + Unpin>(
    mut first: A,
    mut second: B,
) -> Result<A::Output, B::Output> {
    poll_fn(|context| match Pin::new(&mut first).poll(context) {
        Poll::Ready(output) => Poll::Ready(Ok(output)),
        Poll::Pending => Pin::new(&mut second).poll(context).map(Err),
    })
    .await
}

/// Drops the engine's handles, and says whether its files are let go.
fn let_go(database: Database, folder: &Path, patience: Duration) -> bool {
    // On a thread of its own: after some failures the engine waits there for ever. It may panic, too.
    let drop_it = move || drop(catch_unwind(AssertUnwindSafe(|| drop(database))));
    let is_started = runtime::start("idem-sled-drop", drop_it).is_ok();
    is_started && opening::wait_until_let_go(folder, patience)
}
