//! The store: how to transact on a Redis server.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use idem_core::{
    BoxFuture, BoxStep, ClockSource, Committed, Cursor, Durability, Error, ErrorKind, Filter,
    Guarantees, Key, Page, Purged, Record, Sharing, Space, State, Step, Store, SystemClock,
    Timestamp, optimistic, runtime,
};

use crate::{
    Hazard, RedisBuilder, RedisTransaction,
    attempt::{Assumption, Call},
    background,
    inner::Inner,
    reentry::{self, Marked},
    server, sweep,
};

/// A store on a Redis server or cluster. A clone shares the connection.
///
/// Guarantees: what a commit survives is what the server is configured for, see [`RedisStore::check`]; all who
/// reach the server share the data, and go by its clock; a slow effect delays nobody but who waits for its
/// thread; effects may run again; it can list. With
/// [`speculative`](RedisBuilder::speculative) a receipt's life counts from the commit.
///
/// If callers of one store and its clones race for one value, each loser waits for its turn before it runs its effect
/// again, so that a commit costs about as many runs however many there are. A caller takes the turn after 5
/// milliseconds without a commit, and 0.5 more for each caller before it in the line: so a slow effect holds up those
/// who want its values for that long, and nobody else.
///
/// Closing waits for calls that are under way, for a response timeout at most: then it fails with
/// [`ErrorKind::Busy`], and the store is closed all the same.
///
/// Its calls need a tokio runtime with timers and I/O (`enable_all`): outside one they fail, in one without timers the
/// driver panics. The connection lives in the runtime of the call that
/// opened it; when that runtime ends, another call opens another. An effect that asks a Redis store is
/// answered with [`ErrorKind::Reentrant`](idem_core::ErrorKind::Reentrant).
///
/// In a child that was forked since, each call fails with [`ErrorKind::OtherProcess`], since replies on a shared socket
/// would go to either process; dropping the store leaves the socket to the parent. Nor may the child go on with a
/// runtime of its parent's: start a runtime there, and open a store in it.
#[derive(Clone)]
pub struct RedisStore(Arc<Inner>);

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").finish_non_exhaustive()
    }
}

impl RedisStore {
    pub(crate) fn new(inner: Inner) -> Self {
        Self(Arc::new(inner))
    }

    /// Opens a store with the options that there are unless told; see [`RedisBuilder::open`].
    ///
    /// # Errors
    /// As [`RedisBuilder::open`].
    ///
    /// # Cancel safety
    /// Dropping the future opens nothing.
    pub async fn open(url: &str) -> Result<Self, Error> {
        Self::builder().open(url).await
    }

    /// Options to open a store with.
    pub fn builder() -> RedisBuilder {
        RedisBuilder::default()
    }

    /// What endangers receipts on this server, as it is configured now; in a cluster, on any primary.
    ///
    /// Besides, a primary that fails can lose writes that it acknowledged, since replicas follow it with a delay
    /// (the Redis docs, "Replication"): that is no setting, and not listed.
    ///
    /// # Errors
    /// The server's own.
    ///
    /// # Cancel safety
    /// It changes nothing.
    pub async fn check(&self) -> Result<Vec<Hazard>, Error> {
        let _open = self.0.enter()?;
        server::hazards(&self.0.link).await
    }
}

impl Inner {
    /// The record that a step may be tried on before anything is read.
    fn assume(&self, step: &dyn Step<RedisTransaction>) -> Option<Assumption> {
        let record = step.expected().cloned();
        let is_new = record.is_none() && self.speculative;
        if !step.effectless() && !is_new {
            return None;
        }
        let proceeds = |at| step.proceeds(record.as_ref(), at);
        // The time of the commit is not known yet: on a record that ends, the step may be bound to its life.
        let now = self.estimated_now();
        let end = record.as_ref().and_then(ends_at);
        let now = end.map_or(now, |end| now.min(before(end)));
        if !proceeds(now) {
            return None;
        }
        let live_until = end.filter(|end| !proceeds(*end));
        Some(Assumption { record, now, live_until })
    }
}

/// When a record stops being live.
fn ends_at(record: &Record) -> Option<Timestamp> {
    match record.state {
        State::Claimed { until, .. } => Some(until),
        State::Completed { expires_at, .. } => expires_at,
    }
}

fn before(end: Timestamp) -> Timestamp {
    Timestamp::from_millis(end.as_millis().saturating_sub(1))
}

#[async_trait]
impl Store for RedisStore {
    type Transaction = RedisTransaction;

    async fn transact(
        &self,
        key: &Key,
        step: BoxStep<RedisTransaction>,
    ) -> Result<Committed, Error> {
        let _open = self.0.enter()?;
        let call = Call::new(&self.0, key, self.0.assume(&*step));
        let step = Box::new(Marked(step));
        call.end(optimistic(&call, key, step).await)
    }

    async fn purge(&self, limit: usize) -> Result<Purged, Error> {
        let _open = self.0.enter()?;
        sweep::purge(&self.0, limit).await
    }

    async fn value(&self, space: &Space, name: &[u8]) -> Result<Option<Bytes>, Error> {
        let _open = self.0.enter()?;
        let name = self.0.prefix.value(space, name);
        Ok(self.0.look_patiently(&name, &[]).await?.record)
    }

    async fn list(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, Error> {
        let _open = self.0.enter()?;
        sweep::list(&self.0, filter, after, limit).await
    }

    async fn close(&self) -> Result<(), Error> {
        self.0.link.check_process()?;
        reentry::check()?;
        self.0.closed.store(true, Ordering::Release);
        let waited = self.0.link.timeouts().response;
        // Whoever is under way holds it. An effect may wait for this very call: not for ever, then.
        let ended = match self.0.calls.try_write() {
            Ok(_) => true,
            Err(_) => tokio::time::timeout(waited, self.0.calls.write()).await.is_ok(),
        };
        self.0.link.disconnect();
        if !ended {
            return Err(Error::nothing_done(ErrorKind::Busy { waited }));
        }
        Ok(())
    }

    fn guarantees(&self) -> Guarantees {
        let clock = if self.0.clock.is_some() { ClockSource::Local } else { ClockSource::Server };
        Guarantees::new(Durability::AsServer, Sharing::Network)
            .clock(clock)
            .speculative(self.0.speculative)
    }

    fn detach(&self, task: BoxFuture<()>) {
        background::detach(task);
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        match &self.0.clock {
            Some(clock) => runtime::sleep(&**clock, duration),
            None => runtime::sleep(&SystemClock, duration),
        }
    }
}
