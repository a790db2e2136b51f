//! The store: how to transact on SQLite.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::Path,
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use idem_core::{
    BoxFuture, Committed, Cursor, Delays, Durability, Error, ErrorKind, Guarantees, Key, Page,
    Purged, Sharing, Space, Step, Store, runtime,
};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::{
    SqliteBuilder, SqliteTransaction, Synchronous,
    checkpoint::Checkpoints,
    failure,
    group::{self, Turn, Wait},
    job::{Call, Job, StepJob},
    queue::{Lead, Queue, Waited},
    reader::Readers,
    reentry,
    schema::{self, Location},
    tables::Tables,
    thread,
    writer::Writer,
};

/// Records removed in one transaction of a purge, so that writers need not wait long.
const PURGE_CHUNK: usize = 500;

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
/// # Closing
/// [`Store::close`] waits for what is under way, up to the busy timeout, and returns when the file is let go.
/// Dropping the last handle closes in the background. Each handle that was opened has three threads, asleep
/// most of the time.
///
/// # Reentry
/// An effect may read its own store: it sees what is committed, not what it wrote itself. One that asks it
/// to write, or an in-memory one to read, gets [`ErrorKind::Reentrant`]; through another thread,
/// [`ErrorKind::Busy`] after the busy timeout.
#[derive(Clone)]
pub struct SqliteStore(Arc<Handle>);

/// How a store was opened.
pub(crate) struct Config {
    pub(crate) location: Location,
    pub(crate) options: SqliteBuilder,
}

struct Handle(Arc<Shared>);

struct Shared {
    config: Arc<Config>,
    queue: Queue<Writer, Job>,
    /// None in memory, where there is one connection.
    readers: Option<Readers>,
    checkpoints: Checkpoints,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = &self.shared().config;
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
        let connection = schema::open(location, options)?;
        let config = Config { location: location.resolve()?, options: options.clone() };
        let config = Arc::new(config);
        let checkpoints = Checkpoints::default();
        let writer = Writer::new(connection, Arc::clone(&config), checkpoints.clone())?;
        let on_file = !config.location.is_memory();
        let shared = Arc::new(Shared {
            queue: Queue::new(writer, options.dedicated_writer),
            readers: on_file.then(|| Readers::new(Arc::clone(&config))),
            checkpoints,
            threads: Mutex::new(Vec::new()),
            config,
        });
        let store = Self(Arc::new(Handle(Arc::clone(&shared))));
        shared.start("idem-sqlite-write", Shared::write)?;
        shared.start("idem-sqlite-watch", Shared::refuse_overdue)?;
        if on_file {
            shared.start("idem-sqlite-log", |shared| shared.checkpoints.work(&shared.config))?;
        }
        Ok(store)
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.0.0
    }
}

impl Shared {
    fn start(self: &Arc<Self>, name: &str, work: fn(&Self)) -> Result<(), Error> {
        let shared = Arc::clone(self);
        let thread = thread::spawn(name, move || work(&shared))?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// The writer thread: commits what no caller commits itself.
    fn write(&self) {
        while let Some(mut lead) = self.queue.lead() {
            // A panic here would be this library's fault; it must not strand those who wait.
            let turns = || while group::turn(&mut lead, Wait::Yes) != Turn::Idle {};
            if catch_unwind(AssertUnwindSafe(turns)).is_err() {
                lead.writer().recover();
            }
        }
    }

    /// The watching thread: refuses what has waited too long, behind a long effect or a foreign lock.
    fn refuse_overdue(&self) {
        let patience = self.config.options.busy_timeout;
        while let Some(job) = self.queue.overdue(patience) {
            job.refuse(failure::busy(patience));
        }
    }

    /// Queues a job, and commits if nobody else does.
    fn submit(&self, job: Job) -> Result<(), Error> {
        if reentry::is_within(&self.config.location) {
            return Err(Error::nothing_done(ErrorKind::Reentrant));
        }
        match self.queue.submit(job) {
            Ok(Some(lead)) => lead_once(lead),
            Ok(None) => {}
            Err(_) => return Err(Error::nothing_done(ErrorKind::Closed)),
        }
        Ok(())
    }

    /// Has the writer thread do something.
    async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Writer) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        let call: Call = Box::new(move |writer| drop(reply.send(writer.and_then(work))));
        self.submit(Job::Call(call))?;
        answer.await.unwrap_or_else(|_| Err(failure::lost()))
    }

    /// Reads on this thread if that goes without waiting, and else on the writer thread.
    async fn read<T: Send + 'static>(
        &self,
        work: impl Fn(Tables<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        if let Some(readers) = &self.readers {
            match readers.read(&work) {
                Err(error) if matches!(error.kind(), ErrorKind::Busy { .. }) => {}
                answer => return answer,
            }
        }
        self.call(move |writer| work(writer.tables())).await
    }

    /// What a step that does not proceed is told, if a reader can tell without waiting.
    fn look(
        &self,
        key: &Key,
        step: &dyn Step<SqliteTransaction>,
    ) -> Option<Result<Committed, Error>> {
        match self.readers.as_ref()?.read(|tables| tables.record(key)) {
            Ok(record) => {
                let now = self.config.options.clock.now();
                let proceeds = step.proceeds(record.as_ref(), now);
                (!proceeds).then(|| Ok(Committed::kept(record, now)))
            }
            Err(error) if matches!(error.kind(), ErrorKind::Busy { .. }) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// Takes no more calls, finishes what is queued and closes everything. Blocks.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if something is still under way after `patience`; the store stays closed to calls.
    fn close(&self, patience: Option<Duration>) -> Result<(), Error> {
        let busy = || failure::busy(patience.unwrap_or_default());
        self.queue.close(patience).map_err(|Waited| busy())?;
        self.checkpoints.close();
        if let Some(readers) = &self.readers {
            readers.close();
        }
        // Held while joining, so that whoever else closes waits for the end as well.
        for thread in self.threads.lock().drain(..) {
            // A thread that panicked has nothing left to close.
            drop(thread.join());
        }
        Ok(())
    }
}

/// Commits one group on this thread; the writer thread goes on with what is left.
fn lead_once(mut lead: Lead<'_, Writer, Job>) {
    let turn = AssertUnwindSafe(|| group::turn(&mut lead, Wait::No));
    if let Err(panic) = catch_unwind(turn) {
        lead.writer().recover();
        resume_unwind(panic);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // On a thread of its own: this one may be a runtime's, or in the very effect that closing waits for.
        let shared = Arc::clone(&self.0);
        drop(thread::spawn("idem-sqlite-close", move || drop(shared.close(None))));
    }
}

#[async_trait]
impl Store for SqliteStore {
    type Transaction = SqliteTransaction;

    async fn transact(
        &self,
        key: &Key,
        step: Box<dyn Step<SqliteTransaction>>,
    ) -> Result<Committed, Error> {
        let shared = self.shared();
        if shared.queue.is_closed() {
            return Err(Error::nothing_done(ErrorKind::Closed));
        }
        // A step without an effect mostly proceeds: looking first would only cost.
        if !step.effectless()
            && let Some(answer) = shared.look(key, &*step)
        {
            return answer;
        }
        let (reply, answer) = oneshot::channel();
        let job = StepJob { key: key.clone(), step, reply, alone: false };
        shared.submit(Job::Step(job))?;
        answer.await.unwrap_or_else(|_| Err(failure::lost()))
    }

    async fn purge(&self, limit: usize) -> Result<Purged, Error> {
        let mut removed = 0;
        while removed < limit {
            let chunk = PURGE_CHUNK.min(limit - removed);
            let purge =
                move |writer: &mut Writer| writer.transact(|tables, now| tables.purge(now, chunk));
            let purged = self.shared().call(purge).await?;
            removed += purged;
            if purged < chunk {
                return Ok(Purged { removed, more: false });
            }
        }
        Ok(Purged { removed, more: true })
    }

    async fn value(&self, space: &Space, name: &[u8]) -> Result<Option<Bytes>, Error> {
        let (space, name) = (space.clone(), name.to_vec());
        self.shared().read(move |tables| tables.value(&space, &name)).await
    }

    async fn list(&self, after: Option<&Cursor>, limit: usize) -> Result<Page, Error> {
        let (after, now) = (after.cloned(), self.shared().config.options.clock.now());
        self.shared().read(move |tables| tables.list(after.as_ref(), limit, now)).await
    }

    async fn close(&self) -> Result<(), Error> {
        if reentry::is_within(&self.shared().config.location) {
            return Err(Error::nothing_done(ErrorKind::Reentrant));
        }
        let shared = Arc::clone(self.shared());
        let patience = Some(shared.config.options.busy_timeout);
        thread::run("idem-sqlite-close", move || shared.close(patience)).await?
    }

    fn guarantees(&self) -> Guarantees {
        let config = &self.shared().config;
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

    async fn sleep(&self, duration: Duration) {
        runtime::sleep(&*self.shared().config.options.clock, duration).await;
    }
}
