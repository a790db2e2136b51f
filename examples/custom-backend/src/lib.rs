//! A store of idem over [redb](https://docs.rs/redb), an embedded database: a whole backend, to copy from.
//!
//! redb has one write transaction at a time. If effects ran in it, a slow one would hold up every writer, and one
//! that asks its own store would wait for itself. So this store is optimistic: an effect runs on an overlay, outside
//! every lock, and redb's transaction holds only the comparison and the writes.

mod attempt;

use std::{io::ErrorKind::StorageFull, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use idem_core::{
    BoxFuture, BoxStep, Certainty, Clock, Committed, Cursor, Durability, Error, ErrorKind, Filter,
    Guarantees, Key, Page, Purged, Record, Sharing, Space, Store, optimistic, runtime,
};
use parking_lot::RwLock;
use redb::{Database, ReadTransaction, ReadableDatabase, WriteTransaction};

use crate::attempt::{Attempts, RECORDS, Tx, VALUES, get};

type Result<T, E = Error> = std::result::Result<T, E>;

/// A store in a redb database. A clone shares it.
///
/// Guarantees: a commit survives a crash of the machine, as far as the database's backend does; one process, as redb
/// opens a file once; the clock that it is given; a slow effect delays nobody; it can list. A call blocks its thread
/// until its own commit and those before it are synced, and a purge looks at every record. Once redb has failed to
/// write it commits nothing more: close the store, make room, and open the database again.
#[derive(Clone, Debug)]
pub struct RedbStore {
    /// None once closed. Locked for each use and never while an effect runs, so closing waits for uses alone.
    database: Arc<RwLock<Option<Database>>>,
    clock: Arc<dyn Clock>,
}

impl RedbStore {
    /// The store in `database`, in tables of its own; `clock` decides what has expired.
    ///
    /// # Errors
    /// The engine's own.
    pub fn new(database: Database, clock: impl Clock) -> Result<Self> {
        let database = Arc::new(RwLock::new(Some(database)));
        let store = Self { database, clock: Arc::new(clock) };
        store.write(|_, writer| {
            writer.open_table(RECORDS).map_err(failed)?;
            writer.open_table(VALUES).map(|_| Some(())).map_err(failed)
        })?;
        Ok(store)
    }

    /// Reads one state of everything.
    fn read<T>(&self, work: impl FnOnce(&ReadTransaction) -> Result<T>) -> Result<T> {
        let database = self.database.read();
        work(&database.as_ref().ok_or_else(closed)?.begin_read().map_err(failed)?)
    }

    /// Commits what `work` writes, or nothing of it if that fails or ends with none. Meanwhile what is read stands.
    fn write<T>(
        &self,
        work: impl FnOnce(&ReadTransaction, &WriteTransaction) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let database = self.database.read();
        let database = database.as_ref().ok_or_else(closed)?;
        // Waits for other commits, never for an effect.
        let writer = database.begin_write().map_err(failed)?;
        let done = work(&database.begin_read().map_err(failed)?, &writer)?;
        if done.is_some() {
            // What was written before a failure may be found committed when the database is opened again.
            writer.commit().map_err(|error| failed(error).with_certainty(Certainty::Unknown))?;
        }
        Ok(done)
    }
}

fn closed() -> Error {
    Error::nothing_done(ErrorKind::Closed)
}

/// The error of a call that did nothing, since the engine failed like this.
fn failed(error: impl Into<redb::Error>) -> Error {
    let error = error.into();
    let kind = match &error {
        redb::Error::Io(error) if error.kind() == StorageFull => ErrorKind::Full,
        redb::Error::Corrupted(problem) => ErrorKind::Damaged { problem: problem.clone() },
        _ => ErrorKind::Store,
    };
    Error::nothing_done(kind).with_source(error)
}

#[async_trait]
impl Store for RedbStore {
    type Transaction = Tx;

    async fn transact(&self, key: &Key, step: BoxStep<Tx>) -> Result<Committed> {
        optimistic(&Attempts(self), key, step).await
    }

    async fn purge(&self, limit: usize) -> Result<Purged> {
        let removed = self.write(|_, writer| {
            let now = self.clock.now();
            let mut records = writer.open_table(RECORDS).map_err(failed)?;
            // What cannot be read stays, for whoever can mend it.
            let is_due = |record: Record| record.is_purgeable(now);
            let due = records.extract_if(|_, record| Record::from_slice(record).is_ok_and(is_due));
            let mut due = due.map_err(failed)?.take(limit);
            let removed = due.try_fold(0, |n, entry| entry.map(|_| n + 1)).map_err(failed)?;
            Ok((removed > 0).then_some(removed))
        })?;
        let removed = removed.unwrap_or(0);
        Ok(Purged::new(removed, removed == limit))
    }

    async fn value(&self, space: &Space, name: &[u8]) -> Result<Option<Bytes>> {
        self.read(|reader| get(reader, VALUES, &space.to_bytes(name)))
    }

    async fn list(&self, filter: &Filter, after: Option<&Cursor>, limit: usize) -> Result<Page> {
        self.read(|reader| {
            let records = reader.open_table(RECORDS).map_err(failed)?;
            let ranges = filter.key_ranges(after)?;
            let ranges = ranges.map(|range| records.range::<&[u8]>(range.bounds()));
            let ranges = ranges.collect::<Result<Vec<_>, _>>().map_err(failed)?;
            let entries = ranges.into_iter().flatten().map(|entry| {
                let (key, record) = entry.map_err(failed)?;
                Ok((Key::from_bytes(key.value())?, Record::from_slice(record.value())))
            });
            Page::collect(entries, filter, limit, self.clock.now())
        })
    }

    async fn close(&self) -> Result<()> {
        // Held to the end: who closes at the same time returns when the file is let go as well.
        let mut database = self.database.write();
        database.take().map_or(Ok(()), |database| database.close().map_err(failed))
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::new(Durability::PowerLoss, Sharing::Process)
    }

    fn detach(&self, task: BoxFuture<()>) {
        runtime::detach_blocking(task);
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        runtime::sleep(&*self.clock, duration)
    }
}
