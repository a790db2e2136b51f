//! What is applied and can be seen, but is not durable yet: whoever is shown it waits until it is.

use std::collections::HashMap;

use idem_core::Error;
use idem_core::locks::Mutex;
use tokio::sync::watch;

use crate::failure::Trouble;

/// What an entry of a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry<'n> {
    /// The record of a key.
    Record(&'n [u8]),
    /// The portable value of that name.
    Value(&'n [u8]),
}

/// The entries of the batches that are not durable yet.
pub(crate) struct Pending {
    batches: Mutex<Batches>,
    progress: watch::Sender<Progress>,
}

#[derive(Default)]
struct Batches {
    /// The number of the last batch, of those that changed nothing too.
    last: u64,
    records: HashMap<Box<[u8]>, Mark>,
    values: HashMap<Box<[u8]>, Mark>,
}

/// The batches that an entry belongs to; no batch has the number 0.
#[derive(Clone, Copy, Default)]
struct Mark {
    /// The last that may change it.
    begun: u64,
    /// The last that has changed it.
    applied: u64,
}

impl Mark {
    fn number(self) -> u64 {
        self.begun.max(self.applied)
    }
}

/// How far batches are durable.
#[derive(Clone, Default)]
struct Progress {
    durable: u64,
    failed: Option<Trouble>,
}

impl Batches {
    fn marks<'n>(&mut self, entry: Entry<'n>) -> (&mut HashMap<Box<[u8]>, Mark>, &'n [u8]) {
        match entry {
            Entry::Record(key) => (&mut self.records, key),
            Entry::Value(name) => (&mut self.values, name),
        }
    }

    fn number(&mut self, entry: Entry<'_>) -> Option<u64> {
        let (marks, name) = self.marks(entry);
        marks.get(name).map(|mark| mark.number())
    }

    fn newest(&self) -> Option<u64> {
        self.records.values().chain(self.values.values()).map(|mark| mark.number()).max()
    }
}

impl Pending {
    pub(crate) fn new() -> Self {
        Self { batches: Mutex::default(), progress: watch::Sender::default() }
    }

    /// Says what a batch is about to change, before anybody can see it changed, and gives it its number.
    pub(crate) fn begin<'n>(&self, entries: impl Iterator<Item = Entry<'n>>) -> u64 {
        let mut batches = self.batches.lock();
        batches.last += 1;
        let number = batches.last;
        for entry in entries {
            let (marks, name) = batches.marks(entry);
            match marks.get_mut(name) {
                Some(mark) => mark.begun = number,
                None => drop(marks.insert(name.into(), Mark { begun: number, applied: 0 })),
            }
        }
        number
    }

    /// The batch of that number is applied and has changed these: of its others nobody need wait for it.
    pub(crate) fn applied<'n>(
        &self,
        number: u64,
        changed: impl Iterator<Item = Entry<'n>>,
        unchanged: impl Iterator<Item = Entry<'n>>,
    ) {
        let mut batches = self.batches.lock();
        for entry in changed {
            let (marks, name) = batches.marks(entry);
            if let Some(mark) = marks.get_mut(name) {
                mark.applied = number;
            }
        }
        for entry in unchanged {
            let (marks, name) = batches.marks(entry);
            if let Some(mark) = marks.get_mut(name) {
                mark.begun = 0;
                if mark.applied == 0 {
                    marks.remove(name);
                }
            }
        }
    }

    /// All batches up to that one are durable, or they changed nothing.
    pub(crate) fn end(&self, number: u64) {
        let mut batches = self.batches.lock();
        batches.records.retain(|_, mark| mark.number() > number);
        batches.values.retain(|_, mark| mark.number() > number);
        drop(batches);
        self.progress.send_modify(|progress| progress.durable = progress.durable.max(number));
    }

    /// The batch that is under way will never be known to be durable: its entries stay.
    pub(crate) fn fail(&self, trouble: Trouble) {
        self.progress.send_modify(|progress| {
            progress.failed.get_or_insert(trouble);
        });
    }

    /// As [`Pending::fail`], if the engine must write no more after this.
    pub(crate) fn note(&self, trouble: &Trouble) {
        if trouble.is_fatal() {
            self.fail(trouble.clone());
        }
    }

    /// Returns when nothing can become durable any more.
    pub(crate) async fn wait_for_failure(&self) -> Trouble {
        let mut progress = self.progress.subscribe();
        let failed = progress.wait_for(|now| now.failed.is_some()).await;
        let failed = failed.ok().and_then(|now| now.failed.clone());
        // It cannot be gone: this borrows it.
        failed.unwrap_or_else(|| Trouble::Panicked("the store is gone".to_string()))
    }

    /// Why nothing can become durable any more.
    pub(crate) fn failure(&self) -> Option<Trouble> {
        self.progress.borrow().failed.clone()
    }

    /// Returns when what was seen of the entry is durable.
    ///
    /// # Errors
    /// Unknown, if that will never be known.
    pub(crate) async fn wait(&self, entry: Entry<'_>) -> Result<(), Error> {
        let number = self.batches.lock().number(entry);
        self.wait_for(number).await
    }

    /// Returns when all that was seen is durable.
    ///
    /// # Errors
    /// As [`Pending::wait`].
    pub(crate) async fn wait_for_all(&self) -> Result<(), Error> {
        let number = self.batches.lock().newest();
        self.wait_for(number).await
    }

    async fn wait_for(&self, number: Option<u64>) -> Result<(), Error> {
        let Some(number) = number else { return Ok(()) };
        let mut progress = self.progress.subscribe();
        let is_told = |now: &Progress| now.durable >= number || now.failed.is_some();
        let now = progress.wait_for(is_told).await;
        let now = now.map_err(|_| idem_core::runtime::lost())?;
        match &now.failed {
            Some(trouble) if now.durable < number => Err(trouble.clone().unknown()),
            _ => Ok(()),
        }
    }
}
