//! One type for every store, so that a program can choose it at run time.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;

use crate::{
    BoxStep, Change, Committed, Cursor, Error, Filter, Guarantees, Key, Page, Purged, Record,
    Space, Step, Store, Timestamp, Transaction, time::BoxFuture,
};

/// Any store, with the portable transaction.
pub type DynStore = dyn Store<Transaction = dyn Transaction>;

/// Makes a store one of [`DynStore`]: an `Arc` of the store alone is not, since its transaction is its own.
#[must_use]
pub fn erase<S>(store: S) -> Arc<DynStore>
where
    S: Store + 'static,
    S::Transaction: Sized,
{
    Arc::new(Erased(store))
}

struct Erased<S>(S);

/// Hands a native transaction to a step that knows only the portable part.
struct Portable(BoxStep<dyn Transaction>);

impl<Tx: Transaction + 'static> Step<Tx> for Portable {
    fn proceeds(&self, record: Option<&Record>, now: Timestamp) -> bool {
        self.0.proceeds(record, now)
    }

    fn effectless(&self) -> bool {
        self.0.effectless()
    }

    fn expected(&self) -> Option<&Record> {
        self.0.expected()
    }

    fn run(
        &mut self,
        tx: &mut Tx,
        record: Option<&Record>,
        now: Timestamp,
    ) -> Result<Change, Error> {
        self.0.run(tx, record, now)
    }
}

#[async_trait]
impl<S> Store for Erased<S>
where
    S: Store,
    S::Transaction: Sized,
{
    type Transaction = dyn Transaction;

    async fn transact(
        &self,
        key: &Key,
        step: BoxStep<dyn Transaction>,
    ) -> Result<Committed, Error> {
        self.0.transact(key, Box::new(Portable(step))).await
    }

    async fn purge(&self, limit: usize) -> Result<Purged, Error> {
        self.0.purge(limit).await
    }

    async fn value(&self, space: &Space, name: &[u8]) -> Result<Option<Bytes>, Error> {
        self.0.value(space, name).await
    }

    async fn list(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, Error> {
        self.0.list(filter, after, limit).await
    }

    async fn close(&self) -> Result<(), Error> {
        self.0.close().await
    }

    fn guarantees(&self) -> Guarantees {
        self.0.guarantees()
    }

    fn detach(&self, task: BoxFuture<()>) {
        self.0.detach(task);
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        self.0.sleep(duration)
    }
}
