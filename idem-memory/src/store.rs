//! The store: how to transact in memory.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use idem_core::{
    Applied, BoxFuture, BoxStep, Change, Clock, Committed, Cursor, Durability, Error, ErrorKind,
    Filter, Guarantees, HomeProcess, Key, Look, Optimistic, Overlay, Page, Purged, Sharing, Space,
    Store, SystemClock, Timestamp, Token, Values, optimistic, runtime,
};

use crate::{
    MemoryTransaction,
    shards::{Locked, Shards},
    sync::{AtomicBool, Mutex, Ordering},
};

/// A store in memory. A clone shares the data.
///
/// Guarantees: nothing survives the process; one process; its own clock or the one given; a slow effect
/// delays nobody; it can list. Closing waits for the commits that are under way; an effect that still runs
/// then finds the store closed. Its calls need no runtime. In a child that was forked since, each call fails with
/// [`ErrorKind::OtherProcess`]: what it wrote there its parent would never see.
#[derive(Clone)]
pub struct MemoryStore(Arc<Inner>);

struct Inner {
    home: HomeProcess,
    shards: Shards,
    clock: Box<dyn Clock>,
    last_token: Mutex<Option<Token>>,
    closed: AtomicBool,
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// An empty store without a bound.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Options to make a store with.
    pub fn builder() -> MemoryBuilder {
        MemoryBuilder::default()
    }
}

/// Options for a [`MemoryStore`]. Made by [`MemoryStore::builder`].
#[must_use = "options do nothing until a store is built"]
pub struct MemoryBuilder {
    capacity: Option<usize>,
    clock: Box<dyn Clock>,
}

impl Default for MemoryBuilder {
    fn default() -> Self {
        Self { capacity: None, clock: Box::new(SystemClock) }
    }
}

impl fmt::Debug for MemoryBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBuilder").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

impl MemoryBuilder {
    /// How many entries the store holds at most: records and values of effects together. Without a bound
    /// unless told.
    ///
    /// What does not fit, after what has expired is removed, is refused with [`ErrorKind::Full`], and nothing
    /// of it is kept. What is live is never evicted.
    pub fn capacity(mut self, entries: usize) -> Self {
        self.capacity = Some(entries);
        self
    }

    /// The clock that decides. The system's unless told.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Box::new(clock);
        self
    }

    /// An empty store.
    #[must_use]
    pub fn build(self) -> MemoryStore {
        MemoryStore(Arc::new(Inner {
            home: HomeProcess::here(),
            shards: Shards::new(self.capacity),
            clock: self.clock,
            last_token: Mutex::new(None),
            closed: AtomicBool::new(false),
        }))
    }
}

impl Inner {
    fn check_open(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::nothing_done(ErrorKind::Closed));
        }
        Ok(())
    }

    fn value(&self, space: &Space, name: &[u8]) -> Result<Option<Bytes>, Error> {
        self.check_open()?;
        Ok(self.shards.value(space, name))
    }

    fn next_token(&self, now: Timestamp) -> Result<Token, Error> {
        let mut last = self.last_token.lock();
        let next = Token::next(*last, now)?;
        *last = Some(next);
        Ok(next)
    }

    /// Applies the change if nothing that it rests on has changed.
    fn apply(
        &self,
        key: &Key,
        seen: &Look,
        overlay: &Overlay<InSpace>,
        change: Change,
    ) -> Result<Applied, Error> {
        let read = overlay.reads().map(|(name, _)| name);
        let written = overlay.writes().map(|(name, _)| name);
        let space = &overlay.committed().space;
        let mut section = self.shards.lock(key, space, read.chain(written));
        // Under the lock, so that closing, which takes the locks as well, waits for what is under way.
        self.check_open()?;
        if !is_unchanged(&mut section, key, seen, overlay) {
            return Ok(Applied::Stale);
        }
        // Under the lock as well: a token of an attempt that lost its race must not come after the winner's.
        let token = || self.next_token(seen.now);
        let after = change.stamp(seen.record.as_ref(), seen.now, token)?;
        let writes: Vec<_> = overlay.writes().collect();
        section.apply(key, after.clone(), space, writes.iter().copied())?;
        Ok(Applied::Committed { after, now: seen.now })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.home.is_here() {
            // Another thread may have been changing them at the fork.
            self.shards.leak();
        }
    }
}

fn is_unchanged(
    section: &mut Locked<'_>,
    key: &Key,
    seen: &Look,
    overlay: &Overlay<InSpace>,
) -> bool {
    let space = &overlay.committed().space;
    section.record(key) == seen.record.as_ref()
        && overlay.reads().all(|(name, value)| section.value(space, name) == value)
}

/// The committed values of one space.
pub(crate) struct InSpace {
    store: Arc<Inner>,
    space: Space,
}

impl Values for InSpace {
    fn value(&self, name: &[u8]) -> Result<Option<Bytes>, Error> {
        self.store.value(&self.space, name)
    }
}

/// The store as [`optimistic`] sees it; private, so that no effect can begin a transaction of its own.
struct Attempts<'s>(&'s Arc<Inner>);

impl Optimistic for Attempts<'_> {
    type Transaction = MemoryTransaction;

    async fn look(&self, key: &Key) -> Result<Look, Error> {
        self.0.check_open()?;
        let record = self.0.shards.record(key);
        Ok(Look { record, now: self.0.clock.now() })
    }

    fn begin(&self, key: &Key) -> MemoryTransaction {
        MemoryTransaction(Overlay::new(InSpace { store: Arc::clone(self.0), space: key.space() }))
    }

    async fn commit(
        &self,
        key: &Key,
        seen: &Look,
        MemoryTransaction(overlay): &MemoryTransaction,
        change: Change,
    ) -> Result<Applied, Error> {
        match self.0.apply(key, seen, overlay, change.clone()) {
            Err(error) if matches!(error.kind(), ErrorKind::Full) => {
                // What has expired may go; what is live never does.
                self.0.shards.purge(seen.now, usize::MAX);
                self.0.apply(key, seen, overlay, change)
            }
            applied => applied,
        }
    }

    async fn is_unchanged(
        &self,
        key: &Key,
        seen: &Look,
        MemoryTransaction(overlay): &MemoryTransaction,
    ) -> Result<bool, Error> {
        let names = overlay.reads().map(|(name, _)| name);
        let mut section = self.0.shards.lock(key, &overlay.committed().space, names);
        Ok(is_unchanged(&mut section, key, seen, overlay))
    }
}

#[async_trait]
impl Store for MemoryStore {
    type Transaction = MemoryTransaction;

    async fn transact(
        &self,
        key: &Key,
        step: BoxStep<MemoryTransaction>,
    ) -> Result<Committed, Error> {
        self.0.home.check()?;
        optimistic(&Attempts(&self.0), key, step).await
    }

    async fn purge(&self, limit: usize) -> Result<Purged, Error> {
        self.0.home.check()?;
        self.0.check_open()?;
        let removed = self.0.shards.purge(self.0.clock.now(), limit);
        Ok(Purged::new(removed, removed == limit))
    }

    async fn value(&self, space: &Space, name: &[u8]) -> Result<Option<Bytes>, Error> {
        self.0.home.check()?;
        self.0.value(space, name)
    }

    async fn list(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, Error> {
        self.0.home.check()?;
        self.0.check_open()?;
        let now = self.0.clock.now();
        let after = after.map(Cursor::key).transpose()?;
        Ok(self.0.shards.page(filter, after.as_ref(), limit, now))
    }

    async fn close(&self) -> Result<(), Error> {
        self.0.home.check()?;
        self.0.closed.store(true, Ordering::Release);
        self.0.shards.wait();
        Ok(())
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::new(Durability::Process, Sharing::Process)
    }

    fn detach(&self, task: BoxFuture<()>) {
        runtime::detach(task);
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        runtime::sleep(&*self.0.clock, duration)
    }
}
