//! A small store that keeps every rule, and a switch that makes it break one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, atomic::Ordering},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bytes::Bytes;
use idem_core::{
    BoxFuture, BoxStep, Change, Committed, Cursor, Durability, Error, ErrorKind, Filter,
    Guarantees, Key, Kind, Look, MISREAD_LIMIT, Page, Purged, RACE_LIMIT, Record, Sharing, Space,
    Step, Store, Timestamp, Token, Transaction, run_step, runtime,
};
use tokio::{runtime::Handle, task::yield_now};

use crate::{
    engine::{Engine, Part, lock},
    faults::Fault,
    pages,
    transaction::Tx,
};

/// A space and a name in it.
type ValueName = (Vec<u8>, Bytes);

/// A handle on a store: it looks, runs the step on a workspace of its own, and commits if nothing that it saw
/// has changed.
pub(crate) struct Reference {
    pub(crate) engine: Arc<Engine>,
    /// What a handle that caches has seen last, of each key and of each value.
    records: Mutex<HashMap<Vec<u8>, Option<Record>>>,
    values: Mutex<HashMap<ValueName, Option<Bytes>>>,
}

/// What a call has tried.
struct Tries {
    called_at: Timestamp,
    races: u32,
    misreads: u32,
    /// What a run that was not committed leaves to the next.
    writes: Vec<(Bytes, Option<Bytes>)>,
}

/// What an attempt rests on.
struct Attempt {
    seen: Look,
    /// Whether the record is what the step expects, and was not looked at.
    is_blind: bool,
    tx: Tx,
}

impl Reference {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine, records: Mutex::default(), values: Mutex::default() }
    }

    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.engine.has(fault)
    }

    fn begin(&self, key: &Key, step: &dyn Step<Tx>, tries: &Tries) -> Result<Attempt, Error> {
        let mut seen = self.engine.look(key)?;
        let scope = self.engine.scope(key);
        if self.has(Fault::RecordsCached) {
            seen.record = lock(&self.records).entry(scope).or_insert(seen.record).clone();
        } else if self.has(Fault::CachedBeforeCommit)
            && let Some(cached) = lock(&self.records).get(&scope)
        {
            seen.record = cached.clone();
        }
        let is_blind = step.effectless()
            && match step.expected() {
                Some(_) => self.has(Fault::HolderBelieved),
                None => self.has(Fault::FreedomBelieved),
            };
        if is_blind {
            seen.record = step.expected().cloned();
        }
        if self.has(Fault::NowOncePerCall) {
            seen.now = tries.called_at;
        }
        let tx = Tx::new(Arc::clone(&self.engine), self.engine.space(&key.space()));
        Ok(Attempt { seen, is_blind, tx })
    }

    /// One attempt of a call; none if another caller came first.
    async fn attempt(
        &self,
        key: &Key,
        step: &mut BoxStep<Tx>,
        tries: &mut Tries,
    ) -> Result<Option<Committed>, Error> {
        let token = self.has(Fault::TokenBeforeLook).then(|| self.engine.take_token());
        if let Some(token) = token {
            // Not all as long, so that who took the smaller token may look later, also where callers are few.
            for _ in 0..=token.as_u64() % 4 {
                yield_now().await;
            }
            self.engine.is_overtaken(key, token).await;
        }
        let mut attempt = self.begin(key, &**step, tries)?;
        let Attempt { seen, tx, .. } = &mut attempt;
        tx.token = token;
        let is_asked = tries.races == 1 || !self.has(Fault::NotAskedAgain);
        let is_expected = match step.expected() {
            Some(claim) => {
                !self.has(Fault::ExpectedOrNothing) || seen.record.as_ref() == Some(claim)
            }
            None => {
                !self.has(Fault::AbsentOrNothing) || !step.effectless() || seen.record.is_none()
            }
        };
        let proceeds = is_expected && (!is_asked || step.proceeds(seen.record.as_ref(), seen.now));
        if !proceeds || self.stands_in_the_way(seen) {
            if self.has(Fault::MarkedBeforeHandler)
                && key.kind() == Kind::Event
                && seen.record.is_none()
            {
                self.mark(key, seen);
            }
            if self.has(Fault::DuplicateRuns) {
                drop(run_step(&mut **step, tx, seen.record.as_ref(), seen.now));
            }
            return Ok(Some(self.kept(key, attempt.seen)));
        }
        for (name, value) in tries.writes.drain(..) {
            match value {
                Some(value) => tx.put(&name, &value)?,
                None => tx.delete(&name)?,
            }
        }
        if self.has(Fault::PlaceholderBeforeEffect) && !step.effectless() {
            self.hold_place(key, seen);
        }
        let ran = {
            let held = self.has(Fault::LockHeldWhileAnEffectRuns);
            let _held = held.then(|| lock(&self.engine.one_at_a_time));
            let record = seen.record.as_ref().filter(|_| !self.has(Fault::RunSeesNoRecord));
            let is_late = self.has(Fault::RunSeesTheTimeOfOpening);
            let now = if is_late { self.engine.opened_at } else { seen.now };
            run_step(&mut **step, tx, record, now)
        };
        tx.hide();
        match ran {
            Ok(_) if tx.is_ended && !self.has(Fault::EndNotNoticed) => {
                Err(Error::nothing_done(ErrorKind::TransactionEnded))
            }
            Ok(change) => self.finish(key, step, attempt, change, tries).await,
            Err(error) => self.fail(key, attempt, error, tries).map(|()| None),
        }
    }

    /// Commits what an attempt asks for.
    async fn finish(
        &self,
        key: &Key,
        step: &mut BoxStep<Tx>,
        attempt: Attempt,
        change: Change,
        tries: &mut Tries,
    ) -> Result<Option<Committed>, Error> {
        let Attempt { seen, .. } = &attempt;
        if self.has(Fault::CachedBeforeCommit) && matches!(change, Change::Complete { .. }) {
            let after = change.clone().stamp(seen.record.as_ref(), seen.now, || Ok(Token::MAX))?;
            lock(&self.records).insert(self.engine.scope(key), after);
        }
        let needs_a_race = matches!(
            self.engine.fault,
            Some(
                Fault::RecordNotCompared
                    | Fault::ReadsNotCompared
                    | Fault::NotAskedAgain
                    | Fault::LoserToldItWon
                    | Fault::LoserToldAnError
            )
        );
        if needs_a_race {
            // As any engine that is not in this process: others go on between the look and the commit.
            yield_now().await;
        }
        if self.has(Fault::AckedBeforeCommit) && key.kind() == Kind::Event && !step.effectless() {
            let after = change.stamp(seen.record.as_ref(), seen.now, || Ok(Token::MAX))?;
            return Ok(Some(self.ran(attempt.seen, after)));
        }
        let committed = self.commit(key, &attempt, change.clone()).await?;
        lock(&self.records).remove(&self.engine.scope(key));
        if let Some(after) = committed {
            if self.has(Fault::RecordsCached) {
                lock(&self.records).insert(self.engine.scope(key), after.clone());
            }
            if self.has(Fault::RunsAgainAfterCommit) && !step.effectless() {
                let mut again = self.begin(key, &**step, tries)?;
                drop(run_step(&mut **step, &mut again.tx, seen.record.as_ref(), seen.now)?);
                self.engine.disk().apply(again.tx.space(), again.tx.overlay.writes());
            }
            return Ok(Some(self.ran(attempt.seen, after)));
        }
        match self.engine.fault {
            Some(Fault::LoserToldItWon) => {
                let token = || Ok(self.engine.take_token());
                let after = change.stamp(seen.record.as_ref(), seen.now, token)?;
                Ok(Some(self.ran(attempt.seen, after)))
            }
            Some(Fault::LoserToldAnError) => {
                Err(Error::nothing_done(ErrorKind::Contended { attempts: tries.races }))
            }
            Some(Fault::RunsShareWrites) => {
                tries.writes = attempt.tx.written();
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// Commits, if nothing has changed, and returns the new record.
    async fn commit(
        &self,
        key: &Key,
        Attempt { seen, is_blind, tx }: &Attempt,
        change: Change,
    ) -> Result<Option<Option<Record>>, Error> {
        let (first, second) = match self.engine.fault {
            Some(Fault::EffectBeforeReceipt | Fault::EffectThenReceiptLocked) => {
                (Part::Writes, Part::Record)
            }
            Some(Fault::ReceiptBeforeEffect | Fault::ReceiptThenEffectLocked) => {
                (Part::Record, Part::Writes)
            }
            _ => return self.engine.commit(key, seen, tx, change, Part::All, *is_blind),
        };
        let is_locked =
            self.has(Fault::EffectThenReceiptLocked) || self.has(Fault::ReceiptThenEffectLocked);
        if is_locked {
            return self.commit_in_two(key, seen, tx, change, [first, second]);
        }
        let after = self.engine.commit(key, seen, tx, change.clone(), first, *is_blind)?;
        if after.is_some() {
            yield_now().await;
            let second = self.engine.commit(key, seen, tx, change, second, true)?;
            return Ok(if first == Part::Record { after } else { second });
        }
        Ok(None)
    }

    /// Commits in two transactions, which no other step comes between and no cancellation: only a look does, or a crash.
    fn commit_in_two(
        &self,
        key: &Key,
        seen: &Look,
        tx: &Tx,
        change: Change,
        [first, second]: [Part; 2],
    ) -> Result<Option<Option<Record>>, Error> {
        let _locked = lock(&self.engine.one_at_a_time);
        let after = self.engine.commit(key, seen, tx, change.clone(), first, false)?;
        if after.is_none() {
            return Ok(None);
        }
        self.engine.lets_others_in();
        let second = self.engine.commit(key, seen, tx, change, second, true)?;
        Ok(if first == Part::Record { after } else { second })
    }

    /// The step's error, if what it read was one state; otherwise it runs again.
    fn fail(
        &self,
        key: &Key,
        Attempt { seen, tx, .. }: Attempt,
        error: Error,
        tries: &mut Tries,
    ) -> Result<(), Error> {
        let is_one_state = match self.engine.fault {
            Some(Fault::ReadsComparedOneByOne) => self.engine.is_unchanged_one_by_one(&tx),
            _ => self.engine.is_unchanged(&self.engine.disk(), key, &seen, &tx),
        };
        if is_one_state || self.has(Fault::MisreadBelieved) {
            self.roll_back(key, &tx, &error, &seen);
            return Err(match self.engine.fault {
                Some(Fault::EffectErrorHidden) => Error::nothing_done(ErrorKind::Store),
                _ => error,
            });
        }
        tries.misreads += 1;
        if tries.misreads < MISREAD_LIMIT {
            return Ok(());
        }
        let kind = ErrorKind::Contended { attempts: tries.misreads };
        Err(Error::nothing_done(kind).with_source(error))
    }
}

#[async_trait]
impl Store for Reference {
    type Transaction = Tx;

    async fn transact(&self, key: &Key, mut step: BoxStep<Tx>) -> Result<Committed, Error> {
        let called_at = self.engine.now();
        if self.has(Fault::AlwaysBusy) {
            return Err(Error::nothing_done(ErrorKind::Busy { waited: Duration::ZERO }));
        }
        let mut tries = Tries { called_at, races: 0, misreads: 0, writes: Vec::new() };
        let is_counted = self.has(Fault::CloseWaitsForItself);
        let _counted = if is_counted { Some(self.engine.calls.read().await) } else { None };
        if self.has(Fault::DroppedCallKeepsItsLock) {
            self.engine.lock_key(key).await?;
        }
        while tries.races < RACE_LIMIT {
            tries.races += 1;
            let committed = self.attempt(key, &mut step, &mut tries).await.transpose();
            if let Some(committed) = committed {
                lock(&self.engine.busy).remove(&self.engine.scope(key));
                return committed;
            }
            yield_now().await;
        }
        Err(Error::nothing_done(ErrorKind::Contended { attempts: RACE_LIMIT }))
    }

    async fn purge(&self, limit: usize) -> Result<Purged, Error> {
        pages::purge(&self.engine, limit).await
    }

    async fn value(&self, space: &Space, name: &[u8]) -> Result<Option<Bytes>, Error> {
        if !self.has(Fault::ReadsAfterClose) {
            self.engine.check_open()?;
        }
        let space = self.engine.space(space);
        let value = self.engine.disk().value(&space, name);
        if !self.has(Fault::ValuesCached) {
            return Ok(value);
        }
        let place = (space, Bytes::copy_from_slice(name));
        Ok(lock(&self.values).entry(place).or_insert(value).clone())
    }

    async fn list(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, Error> {
        pages::list(&self.engine, filter, after, limit)
    }

    async fn close(&self) -> Result<(), Error> {
        let was_closed = self.engine.closed.load(Ordering::SeqCst);
        if was_closed && self.has(Fault::ClosingTwiceFails) {
            return Err(Error::nothing_done(ErrorKind::Closed));
        }
        if self.has(Fault::CloseWaitsForItself) {
            drop(self.engine.calls.write().await);
        }
        // Under the lock, so that what is under way comes first.
        let _disk = self.engine.disk();
        self.engine.closed.store(!self.has(Fault::ClosingIsIgnored), Ordering::SeqCst);
        Ok(())
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::new(Durability::Process, Sharing::Process)
    }

    fn detach(&self, task: BoxFuture<()>) {
        let callers = Handle::try_current();
        match (self.engine.fault, callers) {
            (Some(Fault::DetachedTaskDropped), _) => {}
            (Some(Fault::DetachNeedsARuntime), callers) => drop(callers.unwrap().spawn(task)),
            (Some(Fault::DetachedInTheCallersRuntime), Ok(callers)) => drop(callers.spawn(task)),
            _ => runtime::detach(task),
        }
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        let clock = self.engine.clock.clone();
        match self.engine.fault {
            Some(Fault::SleepEndsEarly) => {
                let early = duration.saturating_sub(Duration::from_millis(1));
                runtime::sleep(&clock, early)
            }
            Some(Fault::SleepOverflows) => {
                assert!(Instant::now().checked_add(duration).is_some(), "overflow");
                runtime::sleep(&clock, duration)
            }
            Some(Fault::SleepCountsFromItsFirstPoll) => {
                Box::pin(async move { runtime::sleep(&clock, duration).await })
            }
            _ => runtime::sleep(&clock, duration),
        }
    }
}
