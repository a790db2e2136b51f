//! The store as core's optimistic loop sees it.

use std::sync::Arc;

use idem_core::{Applied, Change, Error, Key, Look, Optimistic};

use crate::{
    SledTransaction,
    commit::{Commit, Verdict},
    engine::Engine,
};

/// Private, so that no effect can begin a transaction of its own.
pub(crate) struct Attempts<'s>(pub(crate) &'s Arc<Engine>);

impl Attempts<'_> {
    async fn send(
        &self,
        key: &Key,
        seen: &Look,
        transaction: &SledTransaction,
        change: Option<Change>,
    ) -> Result<Verdict, Error> {
        let writes = if change.is_some() { transaction.writes() } else { Vec::new() };
        let (key, seen, reads) = (key.to_bytes(), seen.clone(), transaction.reads());
        self.0.commit(move |reply| Commit { key, seen, reads, writes, change, reply }).await
    }
}

impl Optimistic for Attempts<'_> {
    type Transaction = SledTransaction;

    async fn look(&self, key: &Key) -> Result<Look, Error> {
        let record = self.0.durable_record(key).await?;
        Ok(Look { record, now: self.0.clock().now() })
    }

    fn begin(&self, key: &Key) -> SledTransaction {
        SledTransaction::new(self.0, key.space())
    }

    async fn commit(
        &self,
        key: &Key,
        seen: &Look,
        transaction: &SledTransaction,
        change: Change,
    ) -> Result<Applied, Error> {
        Ok(match self.send(key, seen, transaction, Some(change)).await? {
            Verdict::Written(after) => Applied::Committed { after, now: seen.now },
            Verdict::Stale | Verdict::Unchanged => Applied::Stale,
        })
    }

    async fn is_unchanged(
        &self,
        key: &Key,
        seen: &Look,
        transaction: &SledTransaction,
    ) -> Result<bool, Error> {
        Ok(matches!(self.send(key, seen, transaction, None).await?, Verdict::Unchanged))
    }
}
