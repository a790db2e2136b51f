//! A store that is watched: how many steps it was asked for.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use idem_core::{
    BoxFuture, BoxStep, Committed, Cursor, Error, Guarantees, Key, Page, Purged, Space, Store,
};

use crate::callers::until;

/// Counts the steps that the store behind it has answered.
#[derive(Debug)]
pub(crate) struct Watched<S> {
    store: S,
    steps: Steps,
}

/// How many steps were answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Steps(Arc<AtomicUsize>);

impl Steps {
    pub(crate) fn answered(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Waits until so many were answered.
    pub(crate) async fn reach(&self, count: usize) {
        until(&format!("{count} steps to be answered"), || self.answered() >= count).await;
    }
}

impl<S> Watched<S> {
    pub(crate) fn new(store: S) -> (Self, Steps) {
        let steps = Steps::default();
        (Self { store, steps: steps.clone() }, steps)
    }
}

#[async_trait]
impl<S: Store> Store for Watched<S> {
    type Transaction = S::Transaction;

    async fn transact(
        &self,
        key: &Key,
        step: BoxStep<Self::Transaction>,
    ) -> Result<Committed, Error> {
        let answer = self.store.transact(key, step).await;
        self.steps.0.fetch_add(1, Ordering::SeqCst);
        answer
    }

    async fn purge(&self, limit: usize) -> Result<Purged, Error> {
        self.store.purge(limit).await
    }

    async fn value(&self, space: &Space, name: &[u8]) -> Result<Option<Bytes>, Error> {
        self.store.value(space, name).await
    }

    async fn list(&self, after: Option<&Cursor>, limit: usize) -> Result<Page, Error> {
        self.store.list(after, limit).await
    }

    async fn close(&self) -> Result<(), Error> {
        self.store.close().await
    }

    fn guarantees(&self) -> Guarantees {
        self.store.guarantees()
    }

    fn detach(&self, task: BoxFuture<()>) {
        self.store.detach(task);
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        self.store.sleep(duration)
    }
}
