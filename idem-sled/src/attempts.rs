//! The store as core's optimistic loop sees it.

use std::sync::Arc;

use idem_core::{Applied, Change, Contender, Error, Key, Look, Optimistic};

use crate::{
    SledTransaction,
    commit::{Commit, Verdict},
    engine::Engine,
};

/// One call's attempts. Private, so that no effect can begin a transaction of its own.
pub(crate) struct Attempts<'s> {
    engine: &'s Arc<Engine>,
    contender: Contender<'s>,
}

impl<'s> Attempts<'s> {
    pub(crate) fn new(engine: &'s Arc<Engine>) -> Self {
        Self { engine, contender: Contender::new(&engine.hot_values) }
    }

    async fn send(
        &self,
        key: &Key,
        seen: &Look,
        transaction: &SledTransaction,
        change: Option<Change>,
    ) -> Result<Verdict, Error> {
        let writes = if change.is_some() { transaction.writes() } else { Vec::new() };
        let (key, seen, reads) = (key.to_bytes(), seen.clone(), transaction.reads());
        let turn = self.contender.give_turn();
        let commit = move |reply| Commit { key, seen, reads, writes, change, turn, reply };
        let verdict = self.engine.commit(commit).await?;
        if matches!(verdict, Verdict::Stale) {
            self.note_what_changed(transaction)?;
        }
        Ok(verdict)
    }

    /// Notes over which value the race was lost, if it was over one.
    fn note_what_changed(&self, transaction: &SledTransaction) -> Result<(), Error> {
        for (place, name, seen) in transaction.reads() {
            if self.engine.value(&place, &name)? != seen {
                self.contender.lost(&(place, name));
                return Ok(());
            }
        }
        Ok(())
    }
}

impl Optimistic for Attempts<'_> {
    type Transaction = SledTransaction;

    async fn look(&self, key: &Key) -> Result<Look, Error> {
        let record = self.engine.durable_record(key).await?;
        Ok(Look { record, now: self.engine.clock().now() })
    }

    fn begin(&self, key: &Key) -> SledTransaction {
        SledTransaction::new(self.engine, key.space())
    }

    async fn commit(
        &self,
        key: &Key,
        seen: &Look,
        transaction: &SledTransaction,
        change: Change,
    ) -> Result<Applied, Error> {
        let reads = || transaction.reads().into_iter().map(|(place, name, _)| (place, name));
        if self.contender.must_wait(reads) {
            return Ok(Applied::Stale);
        }
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
        self.contender.back_off(attempt).await;
    }
}
