//! A store that is watched and disturbed: how many steps it has answered, and some of its answers are lost.

use std::{
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use idem_core::{
    BoxFuture, BoxStep, Certainty, Committed, Cursor, Error, ErrorKind, Filter, Guarantees, Key,
    Page, Purged, Space, Store,
};

use crate::callers::until;

/// Counts the steps that the store behind it has answered, and disturbs them as it is told to.
#[derive(Debug)]
pub(crate) struct Watched<S> {
    store: S,
    steps: Steps,
}

/// When a planned failure happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fails {
    Before,
    /// After it was committed what was asked for.
    After,
    /// It is not carried out, and never answered.
    Never,
}

/// How many steps go well, and how the one that comes then fails.
pub(crate) type Fault = (usize, fn() -> Error, Fails);

/// The steps of a watched store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Steps(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    answered: AtomicUsize,
    to_fail: AtomicUsize,
    to_lose: AtomicUsize,
    planned: Mutex<Vec<Fault>>,
    failed: AtomicUsize,
}

impl Counts {
    /// How the next step fails, if it was planned so.
    fn planned(&self) -> Option<Fault> {
        let mut planned = self.planned.lock().expect("no test panics meanwhile");
        match planned.first_mut() {
            Some((0, ..)) => Some(planned.remove(0)),
            Some((good, ..)) => {
                *good -= 1;
                None
            }
            None => None,
        }
    }
}

impl Steps {
    /// How many were answered, whatever with.
    pub(crate) fn answered(&self) -> usize {
        self.0.answered.load(Ordering::SeqCst)
    }

    /// The next ones, so many, are not carried out: the store cannot be reached.
    pub(crate) fn fail(&self, count: usize) {
        self.0.to_fail.store(count, Ordering::SeqCst);
    }

    /// Of the next ones, so many, the answer is lost after they were carried out.
    pub(crate) fn lose(&self, count: usize) {
        self.0.to_lose.store(count, Ordering::SeqCst);
    }

    /// From now on they fail like this, one fault after the other.
    pub(crate) fn plan(&self, faults: &[Fault]) {
        *self.0.planned.lock().expect("no test panics meanwhile") = faults.to_vec();
    }

    /// How many have failed as planned.
    pub(crate) fn failed(&self) -> usize {
        self.0.failed.load(Ordering::SeqCst)
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

fn take_one(count: &AtomicUsize) -> bool {
    let less = |count: usize| count.checked_sub(1);
    count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok()
}

fn unreachable(certainty: Certainty) -> Error {
    Error::new(ErrorKind::Unreachable { waited: Duration::ZERO }, certainty)
}

#[async_trait]
impl<S: Store> Store for Watched<S> {
    type Transaction = S::Transaction;

    async fn transact(
        &self,
        key: &Key,
        step: BoxStep<Self::Transaction>,
    ) -> Result<Committed, Error> {
        let counts = &self.steps.0;
        if let Some((_, error, fails)) = counts.planned() {
            if fails == Fails::After {
                self.store.transact(key, step).await.expect("it fails when it is done");
            }
            counts.failed.fetch_add(1, Ordering::SeqCst);
            if fails == Fails::Never {
                return pending().await;
            }
            counts.answered.fetch_add(1, Ordering::SeqCst);
            return Err(error());
        }
        let answer = if take_one(&counts.to_fail) {
            Err(unreachable(Certainty::NothingDone))
        } else if take_one(&counts.to_lose) {
            drop(self.store.transact(key, step).await);
            Err(unreachable(Certainty::Unknown))
        } else {
            self.store.transact(key, step).await
        };
        counts.answered.fetch_add(1, Ordering::SeqCst);
        answer
    }

    async fn purge(&self, limit: usize) -> Result<Purged, Error> {
        self.store.purge(limit).await
    }

    async fn value(&self, space: &Space, name: &[u8]) -> Result<Option<Bytes>, Error> {
        self.store.value(space, name).await
    }

    async fn list(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, Error> {
        self.store.list(filter, after, limit).await
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
