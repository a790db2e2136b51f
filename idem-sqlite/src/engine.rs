//! What is behind a store: its connections, its threads, and the ways that a call takes through them.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use idem_core::locks::Mutex;
use idem_core::{BoxStep, Committed, Error, ErrorKind, HomeProcess, Key, Step, runtime};
use tokio::sync::oneshot;

use crate::{
    SqliteBuilder, SqliteTransaction,
    checkpoint::Checkpoints,
    failure,
    group::{self, Turn, Wait},
    job::{Call, Job, StepJob},
    location::Location,
    novelty::Novelty,
    options::Config,
    places::OpenPlace,
    queue::{Lead, Queue, Waited},
    reader::Readers,
    reentry, schema,
    tables::Tables,
    turns::Turns,
    writer::Writer,
};

/// The connections and threads of one open store.
pub(crate) struct Engine {
    pub(crate) config: Arc<Config>,
    queue: Queue<Writer, Job>,
    /// None in memory, where there is one connection.
    readers: Option<Readers>,
    novelty: Novelty,
    checkpoints: Checkpoints,
    threads: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) home: HomeProcess,
    /// After the connections: they are closed before it.
    place: Mutex<Option<OpenPlace>>,
}

impl Engine {
    /// Opens the connections; the threads are started apart.
    pub(crate) fn open(options: &SqliteBuilder, location: &Location) -> Result<Self, Error> {
        let mut place = OpenPlace::enter(location, options.busy_timeout)?;
        let connection = schema::open(location, options)?;
        if let Some(place) = &mut place {
            place.opened();
        }
        let config = Config { location: location.resolve()?, options: options.clone() };
        let config = Arc::new(config);
        let checkpoints = Checkpoints::default();
        let writer = Writer::new(connection, Arc::clone(&config), checkpoints.clone())?;
        let on_file = !config.location.is_memory();
        Ok(Self {
            queue: Queue::new(writer, options.dedicated_writer),
            readers: on_file.then(|| Readers::new(Arc::clone(&config))),
            novelty: Novelty::default(),
            checkpoints,
            threads: Mutex::new(Vec::new()),
            home: HomeProcess::here(),
            place: Mutex::new(place),
            config,
        })
    }

    pub(crate) fn start_threads(self: &Arc<Self>) -> Result<(), Error> {
        self.start("idem-sqlite-write", Self::write)?;
        self.start("idem-sqlite-watch", Self::refuse_overdue)?;
        if self.readers.is_some() {
            self.start("idem-sqlite-log", |engine| engine.checkpoints.work(&engine.config))?;
        }
        Ok(())
    }

    fn start(self: &Arc<Self>, name: &str, work: fn(&Self)) -> Result<(), Error> {
        let engine = Arc::clone(self);
        let thread = runtime::start(name, move || work(&engine))?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// Runs a step: on a reader if it does not proceed, else in the next group.
    pub(crate) async fn transact(
        &self,
        key: &Key,
        step: BoxStep<SqliteTransaction>,
    ) -> Result<Committed, Error> {
        if self.queue.is_closed() {
            return Err(Error::nothing_done(ErrorKind::Closed));
        }
        let (reply, answer) = oneshot::channel();
        let job = StepJob { key: key.clone(), step, reply, alone: false };
        let answer = async { answer.await.unwrap_or_else(|_| Err(runtime::lost())) };
        let job = match self.is_look_a_waste(&*job.step) {
            true => match self.try_lead(job) {
                Ok(()) => return self.noted(answer.await),
                Err(job) => job,
            },
            false => job,
        };
        if let Some(answer) = self.look(key, &*job.step) {
            return self.noted(answer);
        }
        self.submit(Job::Step(job))?;
        self.noted(answer.await)
    }

    /// Takes note of whether the key was new.
    fn noted(&self, answer: Result<Committed, Error>) -> Result<Committed, Error> {
        self.novelty.saw(answer.as_ref().is_ok_and(|committed| committed.ran));
        answer
    }

    /// Whether the step likely runs, so that it may as well go to the writer at once, if that is free.
    fn is_look_a_waste(&self, step: &dyn Step<SqliteTransaction>) -> bool {
        // One without an effect mostly proceeds. One that would not even proceed on a new key is a read, and
        // takes no write lock.
        step.effectless()
            || (self.novelty.is_likely() && step.proceeds(None, self.config.options.clock.now()))
    }

    pub(crate) fn check_reentry(&self) -> Result<(), Error> {
        if reentry::is_within(&self.config.location) {
            return Err(Error::nothing_done(ErrorKind::Reentrant));
        }
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
            job.refuse(failure::busy(patience, failure::QUEUED, None));
        }
    }

    /// Queues a job, and commits if nobody else does.
    fn submit(&self, job: Job) -> Result<(), Error> {
        self.check_reentry()?;
        match self.queue.submit(job) {
            // Others' effects must not run where all timers are: the writer thread goes on with what is queued.
            Ok(Some(lead)) if runtime::is_background() => drop(lead),
            Ok(Some(lead)) => self.lead_once(lead),
            Ok(None) => {}
            Err(_) => return Err(Error::nothing_done(ErrorKind::Closed)),
        }
        Ok(())
    }

    /// Commits a step at once if nobody else writes; else gives it back.
    fn try_lead(&self, job: StepJob) -> Result<(), StepJob> {
        if self.check_reentry().is_err() || runtime::is_background() {
            return Err(job);
        }
        match self.queue.lead_with(Job::Step(job)) {
            Ok(lead) => self.lead_once(lead),
            Err(Job::Step(job)) => return Err(job),
            Err(Job::Call(_)) => unreachable!("the job that comes back is the one that was given"),
        }
        Ok(())
    }

    /// Has the writer thread do something.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Writer) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        let call: Call = Box::new(move |writer| drop(reply.send(writer.and_then(work))));
        self.submit(Job::Call(call))?;
        answer.await.unwrap_or_else(|_| Err(runtime::lost()))
    }

    /// Reads on this thread if that goes without waiting, and else on the writer thread.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        work: impl Fn(Tables<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        if let Some(readers) = &self.readers {
            match readers.read(&work) {
                Err(error) if matches!(error.kind(), ErrorKind::Busy { .. }) => {}
                answer => return answer,
            }
        }
        self.call(move |writer| writer.read(work)).await
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

    /// Commits one group on this thread; the writer thread goes on with what is left.
    fn lead_once(&self, mut lead: Lead<'_, Writer, Job>) {
        let look = |job: &StepJob| self.look(&job.key, &*job.step);
        let turn = AssertUnwindSafe(|| group::turn(&mut lead, Wait::No(&look)));
        if let Err(panic) = catch_unwind(turn) {
            lead.writer().recover();
            resume_unwind(panic);
        }
    }

    /// Takes no more calls, finishes what is queued and closes everything. Blocks.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if something is still under way after `patience`; the store stays closed to calls.
    pub(crate) fn close(&self, patience: Option<Duration>) -> Result<(), Error> {
        let busy = || failure::busy(patience.unwrap_or_default(), failure::UNDER_WAY, None);
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
        Turns::at(&self.config.location).close();
        // No connection is open any more.
        *self.place.lock() = None;
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod faults;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
