//! The store as core's optimistic loop sees it.

use std::{
    future::poll_fn,
    hash::{BuildHasher, RandomState},
    sync::Arc,
    task::Poll,
};

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

    async fn back_off(&self, attempt: u32) {
        // Whoever won the race is applied already, and the committer is busy making it durable: some turns for
        // the other tasks, and never as many as another loser takes.
        let most = u64::from(attempt.min(16));
        let mut turns = 1 + RandomState::new().hash_one(attempt) % most;
        poll_fn(|context| {
            if turns == 0 {
                return Poll::Ready(());
            }
            turns -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}
