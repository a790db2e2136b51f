//! By hand on sled: one thread writes for all callers, who are threads too, and flushes once for a batch.
//!
//! A call looks the key up, and compares the fingerprint. If there is none it hands its work over and waits. The
//! thread takes what is waiting, up to 64 calls, and commits it in one transaction, as the side with a flush for
//! each operation does it; then it answers.

use std::{
    iter,
    path::Path,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender, SyncSender},
    },
    thread,
};

use idem_core::{BoxError, Outcome, consumer::Marked};

use super::sled::{Before, Database, Work, answer, marked};
use crate::{
    Load, Order, Placed, Sample, Side,
    side::Stored,
    threads::{self, Caller},
};

const LARGEST: usize = 64;

pub(crate) fn open(folder: &Path) -> Result<Box<dyn Side>, BoxError> {
    Ok(Box::new(Sled(Database::open(folder)?)))
}

struct Sled(Database);

impl Side for Sled {
    fn run(&mut self, load: &Arc<Load>) -> Result<Sample, BoxError> {
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            let writer = scope.spawn(|| write_for_all(&self.0, receiver));
            // Each caller has a sender: the thread ends with the last of them.
            let caller = Session { database: self.0.clone(), sender };
            let sample = threads::run(load, 1, || Ok(caller.clone()));
            drop(caller);
            writer.join().unwrap_or_else(|_| Err("the thread that writes panicked".into()))?;
            sample
        })
    }

    fn stored(&mut self, _: &Load) -> Result<Stored, BoxError> {
        Ok(self.0.count())
    }
}

/// Work, and where its answer goes.
type Handed = (Work, SyncSender<Before>);

fn write_for_all(database: &Database, receiver: Receiver<Handed>) -> Result<(), BoxError> {
    while let Ok(first) = receiver.recv() {
        let waiting = iter::once(first).chain(receiver.try_iter());
        let (work, replies): (Vec<_>, Vec<_>) = waiting.take(LARGEST).unzip();
        for (reply, before) in replies.iter().zip(database.commit(&work)?) {
            // A caller that failed waits no more.
            let _ = reply.send(before);
        }
    }
    Ok(())
}

/// One caller.
#[derive(Clone)]
struct Session {
    database: Database,
    sender: Sender<Handed>,
}

impl Session {
    fn work(&self, work: Work) -> Result<Before, BoxError> {
        if let Some(before) = self.database.look(&work.key)? {
            return Ok(Some(before));
        }
        let (reply, answers) = mpsc::sync_channel(1);
        self.sender.send((work, reply)).map_err(|_| "the thread that writes has ended")?;
        Ok(answers.recv()?)
    }
}

impl Caller for Session {
    fn place(&mut self, order: &Order) -> Result<Outcome<Placed>, BoxError> {
        answer(order, self.work(Work::place(order)?)?)
    }

    fn mark(&mut self, order: &Order) -> Result<Marked, BoxError> {
        Ok(marked(self.work(Work::mark(order))?))
    }
}
