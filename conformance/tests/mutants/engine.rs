//! What the handles of one place share: the data, the clock, and whether it is closed.

use std::{
    cell::Cell,
    collections::{BTreeMap, HashSet},
    ops::Bound,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use idem_core::{
    Certainty, Change, Clock, Error, ErrorKind, Key, Kind, Look, ManualClock, Phase, Record, Space,
    State, Timestamp, Token,
};
use tokio::{sync::RwLock, task::yield_now};

use crate::{
    faults::Fault,
    patience::Patience,
    scope,
    stored::{stamped, value_written, written},
    transaction::Tx,
};

/// What survives the closing of an engine.
#[derive(Default)]
pub(crate) struct Disk {
    pub(crate) records: BTreeMap<Vec<u8>, (Key, Record)>,
    values: BTreeMap<(Vec<u8>, Bytes), Bytes>,
    pub(crate) last_token: Option<Token>,
    /// The largest that a claim was committed with.
    largest_held: Option<Token>,
    pub(crate) refuses_receipts: bool,
    fault: Option<Fault>,
}

impl Disk {
    pub(crate) fn value(&self, space: &[u8], name: &[u8]) -> Option<Bytes> {
        self.values.get(&scope::value(self.fault, space, name)).cloned()
    }

    pub(crate) fn set_value(&mut self, space: &[u8], name: &Bytes, value: Option<&Bytes>) {
        let place = scope::value(self.fault, space, name);
        match value {
            Some(value) => self.values.insert(place, value_written(self.fault, value)),
            None => self.values.remove(&place),
        };
    }

    pub(crate) fn apply<'a>(
        &mut self,
        space: &[u8],
        writes: impl Iterator<Item = (&'a Bytes, Option<&'a Bytes>)>,
    ) {
        writes.for_each(|(name, value)| self.set_value(space, name, value));
    }

    pub(crate) fn clear_values(&mut self) {
        self.values.clear();
    }

    /// The records after that scope, in order.
    pub(crate) fn after(&self, scope: Option<&[u8]>) -> impl Iterator<Item = &(Key, Record)> {
        let after = scope.map_or(Bound::Unbounded, Bound::Excluded);
        self.records.range::<[u8], _>((after, Bound::Unbounded)).map(|(_, record)| record)
    }

    /// What opening finds again.
    fn recover(&mut self, fault: Option<Fault>) {
        self.fault = fault;
        let is_claim = |record: &Record| matches!(record.state, State::Claimed { .. });
        self.records.retain(|_, (key, record)| match fault {
            Some(Fault::ReceiptsNotDurable) => is_claim(record),
            Some(Fault::LeasesNotDurable) => !is_claim(record),
            Some(Fault::MarksNotDurable) => key.kind() != Kind::Event,
            _ => true,
        });
        match fault {
            Some(Fault::EffectsNotDurable) => self.values.clear(),
            Some(Fault::TokensNotDurable) => self.last_token = None,
            _ => {}
        }
    }
}

/// Which part of a change is committed at once.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Part {
    All,
    Writes,
    Record,
}

/// A place that is open.
pub(crate) struct Engine {
    disk: Arc<Mutex<Disk>>,
    pub(crate) clock: ManualClock,
    pub(crate) fault: Option<Fault>,
    pub(crate) opened_at: Timestamp,
    pub(crate) closed: AtomicBool,
    pub(crate) poisoned: AtomicBool,
    /// What a clock that is asked now and then showed last.
    coarse: Mutex<Timestamp>,
    /// Writes of a step that failed, in a buffer that all steps share.
    pub(crate) leaked: Mutex<Vec<(Bytes, Option<Bytes>)>>,
    /// What is locked by a call.
    pub(crate) busy: Mutex<HashSet<Vec<u8>>>,
    pub(crate) one_at_a_time: Mutex<()>,
    /// What a call holds, and a closing that waits for all calls takes.
    pub(crate) calls: RwLock<()>,
    /// How often anybody was at the disk.
    seen: AtomicUsize,
    /// How often a key was free for who had its token already.
    found_free: AtomicUsize,
    /// How many purges have looked, where that is not all at once.
    purges: AtomicUsize,
    patience: Patience,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    pub(crate) fn open(disk: Arc<Mutex<Disk>>, clock: ManualClock, fault: Option<Fault>) -> Self {
        lock(&disk).recover(fault);
        let opened_at = clock.now();
        Self {
            disk,
            clock,
            fault,
            opened_at,
            closed: AtomicBool::new(false),
            poisoned: AtomicBool::new(false),
            coarse: Mutex::new(opened_at),
            leaked: Mutex::default(),
            busy: Mutex::default(),
            one_at_a_time: Mutex::default(),
            calls: RwLock::default(),
            seen: AtomicUsize::new(0),
            found_free: AtomicUsize::new(0),
            purges: AtomicUsize::new(0),
            patience: Patience::default(),
        }
    }

    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    pub(crate) fn disk(&self) -> MutexGuard<'_, Disk> {
        self.seen.fetch_add(1, Ordering::SeqCst);
        lock(&self.disk)
    }

    /// Lets others get at the disk, for a whole look and what leads to it, as an engine does that takes its time.
    pub(crate) fn lets_others_in(&self) {
        let before = self.seen.load(Ordering::SeqCst);
        self.patience.blocks_until(|| self.seen.load(Ordering::SeqCst) > before + 5);
    }

    pub(crate) fn scope(&self, key: &Key) -> Vec<u8> {
        scope::scope(self.fault, key)
    }

    pub(crate) fn space(&self, space: &Space) -> Vec<u8> {
        scope::space(self.fault, space)
    }

    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.poisoned.load(Ordering::SeqCst) {
            return Err(Error::nothing_done(ErrorKind::Store).with_source("a lock is poisoned"));
        }
        if self.closed.load(Ordering::SeqCst) {
            let is_untyped = self.has(Fault::ClosedIsUntyped);
            let kind = if is_untyped { ErrorKind::Store } else { ErrorKind::Closed };
            return Err(Error::nothing_done(kind));
        }
        Ok(())
    }

    pub(crate) fn now(&self) -> Timestamp {
        let now = self.clock.now();
        if !self.has(Fault::ClockAskedNowAndThen) {
            return now;
        }
        let mut coarse = lock(&self.coarse);
        if now.as_millis().abs_diff(coarse.as_millis()) >= 1000 {
            *coarse = now;
        }
        *coarse
    }

    /// The key's record and the time, the record read first.
    pub(crate) fn look(&self, key: &Key) -> Result<Look, Error> {
        self.check_open()?;
        let record = self.disk().records.get(&self.scope(key)).map(|(_, record)| record.clone());
        let now = self.now();
        Ok(Look { record: self.seen(record, now), now })
    }

    /// What a read shows of a record.
    fn seen(&self, record: Option<Record>, now: Timestamp) -> Option<Record> {
        record.filter(|record| match (self.fault, &record.state) {
            (Some(Fault::ReadsHideTheEnded), _) => record.phase(now) == Phase::Live,
            (Some(Fault::ExpiresEarly), _) => {
                record.gone_at().is_none_or(|at| now.as_millis() < at.as_millis() - 1)
            }
            (Some(Fault::EmptyResultIsNone), State::Completed { result, .. }) => !result.is_empty(),
            _ => true,
        })
    }

    pub(crate) fn is_unchanged(&self, disk: &Disk, key: &Key, seen: &Look, tx: &Tx) -> bool {
        let record = disk.records.get(&self.scope(key)).map(|(_, record)| record.clone());
        let is_same = self.is_same(self.seen(record, seen.now).as_ref(), seen.record.as_ref());
        let space = tx.space();
        is_same
            && tx.overlay.reads().all(|(name, value)| {
                self.has(Fault::ReadsNotCompared)
                    || self.has(Fault::AbsenceNotCompared) && value.is_none()
                    || self.has(Fault::DeletionNotCompared) && disk.value(space, name).is_none()
                    || self.has(Fault::OnlyWrittenCompared)
                        && tx.overlay.writes().all(|(written, _)| written != name)
                    || disk.value(space, name).as_ref() == value
            })
    }

    /// Whether what a step read is there, as an engine tells that asks for one value after the other, each when it is
    /// what was read if it comes to that.
    pub(crate) fn is_unchanged_one_by_one(&self, tx: &Tx) -> bool {
        tx.overlay.reads().all(|(name, value)| {
            let is_there = || self.disk().value(tx.space(), name).as_ref() == value;
            // What has been there is never taken away in the case at hand.
            if value.is_some() { self.patience.blocks_until(is_there) } else { is_there() }
        })
    }

    /// Whether a record is the one that was seen.
    fn is_same(&self, record: Option<&Record>, seen: Option<&Record>) -> bool {
        match self.fault {
            Some(Fault::RecordNotCompared) => true,
            Some(Fault::AttemptComparedAlone) => {
                record.map(|record| record.attempt) == seen.map(|seen| seen.attempt)
            }
            Some(Fault::TokenComparedAlone) => match record.and_then(token_of) {
                Some(token) => Some(token) == seen.and_then(token_of),
                None => record == seen,
            },
            _ => record == seen,
        }
    }

    /// Writes what a step asked for and what it wrote, if what it rests on is unchanged; returns the new record.
    pub(crate) fn commit(
        &self,
        key: &Key,
        seen: &Look,
        tx: &Tx,
        change: Change,
        part: Part,
        is_blind: bool,
    ) -> Result<Option<Option<Record>>, Error> {
        let mut disk = self.disk();
        // Under the lock, so that nothing is written after the closing.
        if !self.has(Fault::CommitsAfterClose) && !self.has(Fault::LostAfterClose) {
            self.check_open()?;
        }
        if !is_blind && !self.is_unchanged(&disk, key, seen, tx) {
            return Ok(None);
        }
        let now = if self.has(Fault::StampsAtCommit) { self.now() } else { seen.now };
        let with_writes = part != Part::Record
            && (!self.has(Fault::WritesOnlyWithReceipt)
                || matches!(change, Change::Complete { .. }));
        let wildcard = matches!(change, Change::Remove) && self.has(Fault::RemovesByPattern);
        let last = Cell::new(disk.last_token);
        let token = || {
            let token = tx.token.unwrap_or_else(|| self.token(&disk, last.get(), now, key));
            last.set(last.get().max(Some(token)));
            token
        };
        let after = stamped(self.fault, change, seen.record.as_ref(), now, token)?;
        let is_receipt = |record: &Record| matches!(record.state, State::Completed { .. });
        let is_refused = disk.refuses_receipts && after.as_ref().is_some_and(is_receipt);
        if is_refused && part != Part::Writes && !self.has(Fault::RefusalSwallowed) {
            let is_vague = self.has(Fault::RefusalIsVague);
            let certainty = if is_vague { Certainty::Unknown } else { Certainty::NothingDone };
            return Err(Error::new(ErrorKind::Full, certainty));
        }
        disk.last_token = last.get();
        disk.largest_held = disk.largest_held.max(after.as_ref().and_then(token_of));
        if self.has(Fault::LostAfterClose) && self.closed.load(Ordering::SeqCst) {
            return Ok(Some(after));
        }
        if part != Part::Writes && !is_refused {
            let scope = self.scope(key);
            if wildcard {
                disk.records.retain(|_, (other, _)| !is_like(key, other));
            }
            match &after {
                Some(record) => {
                    let record = written(self.fault, record.clone());
                    disk.records.insert(scope, (key.clone(), record));
                }
                None => drop(disk.records.remove(&scope)),
            }
        }
        if with_writes {
            self.write(&mut disk, tx);
        }
        Ok(Some(after))
    }

    fn write(&self, disk: &mut Disk, tx: &Tx) {
        let space = tx.space();
        disk.apply(space, lock(&self.leaked).drain(..).collect::<Vec<_>>().iter().map(as_refs));
        let most = match self.fault {
            Some(Fault::LastWriteLost) => tx.overlay.writes().count().saturating_sub(1).max(1),
            Some(Fault::WritesCutAtAHundred) => 100,
            _ => usize::MAX,
        };
        if self.has(Fault::ValuesDeletedByPattern) && tx.deleted.contains(&b"%"[..]) {
            disk.clear_values();
        }
        disk.apply(space, tx.overlay.writes().take(most));
        if self.has(Fault::PutAfterDeleteLost) {
            disk.apply(space, tx.deleted.iter().map(|name| (name, None)));
        }
    }

    /// A token that is given out whatever becomes of it.
    pub(crate) fn take_token(&self) -> Token {
        let mut disk = self.disk();
        let token = next(disk.last_token, self.now());
        disk.last_token = Some(token);
        token
    }

    /// Every other time that a key is free, waits until a larger token has held one; in vain if there is nobody else.
    pub(crate) async fn is_overtaken(&self, key: &Key, token: Token) {
        let scope = self.scope(key);
        let is_free = |disk: &Disk| !disk.records.contains_key(&scope);
        if !is_free(&self.disk())
            || self.found_free.fetch_add(1, Ordering::SeqCst).is_multiple_of(2)
        {
            return;
        }
        self.patience.until(|| self.disk().largest_held > Some(token)).await;
    }

    /// Waits between the two halves of a purge until somebody has been at what was due, or another purge has looked.
    pub(crate) async fn purge_is_overtaken(&self, due: &[Vec<u8>], now: Timestamp) {
        let number = self.purges.fetch_add(1, Ordering::SeqCst) + 1;
        let is_taken = |disk: &Disk| {
            let is_due = |scope| disk.records.get(scope).is_some_and(|(_, r)| r.is_purgeable(now));
            !due.iter().all(is_due)
        };
        let by_a_caller = self.has(Fault::PurgeRemovesWhatItSaw);
        let joined = || self.purges.load(Ordering::SeqCst) > number;
        self.patience.until(|| if by_a_caller { is_taken(&self.disk()) } else { joined() }).await;
    }

    /// Locks a key for one call in a way that a dropped call does not undo.
    pub(crate) async fn lock_key(&self, key: &Key) -> Result<(), Error> {
        for _ in 0..10_000 {
            if lock(&self.busy).insert(self.scope(key)) {
                yield_now().await;
                return Ok(());
            }
            yield_now().await;
        }
        Err(Error::nothing_done(ErrorKind::Busy { waited: Duration::ZERO }))
    }

    fn token(&self, disk: &Disk, last: Option<Token>, now: Timestamp, key: &Key) -> Token {
        match self.fault {
            Some(Fault::TokenFromRecord) => {
                let record = disk.records.get(&self.scope(key));
                next(record.and_then(|(_, record)| token_of(record)), now)
            }
            Some(Fault::TokenFromClock) => Token::at(now),
            Some(Fault::TokenAsFloat) => {
                let next = next(last, now).as_u64() as f64;
                Token::from_u64(next as u64).unwrap_or(Token::MAX)
            }
            Some(Fault::TokenFromZero) => next(last, Timestamp::from_millis(0)),
            _ => next(last, now),
        }
    }
}

fn token_of(record: &Record) -> Option<Token> {
    match record.state {
        State::Claimed { token, .. } => Some(token),
        State::Completed { .. } => None,
    }
}

/// No case comes to the largest token.
fn next(last: Option<Token>, now: Timestamp) -> Token {
    Token::next(last, now).unwrap()
}

fn as_refs((name, value): &(Bytes, Option<Bytes>)) -> (&Bytes, Option<&Bytes>) {
    (name, value.as_ref())
}

/// Whether SQL's `LIKE`, as far as a percent sign alone goes, takes `other` for the key.
fn is_like(key: &Key, other: &Key) -> bool {
    key.request() == "%"
        && (key.kind(), key.tenant(), key.operation())
            == (other.kind(), other.tenant(), other.operation())
}
