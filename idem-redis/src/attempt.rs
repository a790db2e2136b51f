//! One call, as core's optimistic loop sees it.

use std::{
    collections::BTreeSet,
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use idem_core::locks::Mutex;
use idem_core::{
    Applied, Certainty, Change, Committed, Contender, Error, ErrorKind, Key, Look, Optimistic,
    Overlay, Phase, Record, State, Timestamp, Token,
};
use tokio::{task::yield_now, time::sleep};
use uuid::Uuid;

use crate::{
    failure::damaged,
    inner::{Inner, decode},
    script::{Becomes, Commit},
    settle::{Doubt, Fate, check_values, may_resend, settle},
    stamping::{Stamping, becomes},
    transaction::{Fetched, FetchedValues, RedisTransaction},
};

/// A record that a step expects to find, without reading it.
#[derive(Clone, Debug)]
pub(crate) struct Assumption {
    pub(crate) record: Option<Record>,
    /// A time at which the step proceeds on it.
    pub(crate) now: Timestamp,
    /// From this time on the step would not proceed on it.
    pub(crate) live_until: Option<Timestamp>,
}

/// What an attempt may rest on without reading.
enum Basis {
    Assumed(Assumption),
    /// A refused commit said what there is.
    Told(Look),
}

/// One call on one key.
pub(crate) struct Call<'s> {
    store: &'s Inner,
    contender: Contender<'s>,
    record: Vec<u8>,
    doubt: Doubt,
    progress: Mutex<Progress>,
}

/// How far a call got.
struct Progress {
    next: Option<Basis>,
    /// What the attempt that is under way assumes.
    assumed: Option<Assumption>,
    /// The names that the step has asked for, in any run of it.
    wanted: BTreeSet<Bytes>,
    values: Arc<FetchedValues>,
    /// The head of the record that the attempt has read, as it is stored: in an older form it is another than the one
    /// that it would be written with.
    head: Option<Bytes>,
    /// The id that the call's record bears, and the record that it was to replace.
    sent: Option<(Uuid, Option<Record>)>,
}

impl<'s> Call<'s> {
    pub(crate) fn new(store: &'s Inner, key: &Key, assumption: Option<Assumption>) -> Self {
        let progress = Progress {
            next: assumption.map(Basis::Assumed),
            assumed: None,
            wanted: BTreeSet::new(),
            values: Arc::default(),
            head: None,
            sent: None,
        };
        Self {
            store,
            contender: Contender::new(&store.hot_values),
            record: store.prefix.record(key),
            doubt: Doubt::default(),
            progress: Mutex::new(progress),
        }
    }

    /// What the call ends with, given what its last attempt did.
    ///
    /// One that does not proceed may have met the record of this very call, whose answer was lost.
    pub(crate) fn end(&self, ended: Result<Committed, Error>) -> Result<Committed, Error> {
        let committed = ended.map_err(|error| self.doubt.of(error))?;
        let sent = self.progress.lock().sent.take();
        match (sent, &committed.before) {
            (Some((attempt, before)), Some(record))
                if !committed.ran && self.doubt.is_there() && record.attempt == attempt =>
            {
                let now = record.created_at;
                Ok(Committed::ran(before, committed.after, now))
            }
            _ => Ok(committed),
        }
    }

    /// What the attempt begins with, if nothing has to be read for it.
    fn basis(&self) -> Option<Look> {
        let mut progress = self.progress.lock();
        progress.assumed = None;
        let basis = progress.next.take();
        if !progress.wanted.is_empty() {
            return None;
        }
        match basis? {
            Basis::Told(look) => Some(look),
            Basis::Assumed(assumption) => {
                progress.head = assumption.record.as_ref().map(|record| record.to_head().into());
                let look = Look { record: assumption.record.clone(), now: assumption.now };
                progress.assumed = Some(assumption);
                Some(look)
            }
        }
    }

    async fn read(&self, key: &Key) -> Result<Look, Error> {
        let wanted: Vec<Bytes> = self.progress.lock().wanted.iter().cloned().collect();
        check_values(wanted.len())?;
        let space = key.space();
        if self.contender.must_wait(|| wanted.iter().map(|name| (&space, name))) {
            self.contender.wait().await;
        }
        let names: Vec<_> =
            wanted.iter().map(|name| self.store.prefix.value(&space, name)).collect();
        let seen = self.store.look_patiently(&self.record, &names).await?;
        let head = head_in(seen.record.as_ref());
        let record = decode(seen.record, &self.record)?;
        let mut progress = self.progress.lock();
        progress.values = Arc::new(wanted.into_iter().zip(seen.values).collect());
        progress.head = head;
        Ok(Look { record, now: self.store.decided_now(seen.now) })
    }

    /// Notes over which value a race was lost, if it was over one.
    fn lost(&self, key: &Key, overlay: &Overlay<Fetched>, read: Option<usize>) {
        if let Some((name, _)) = read.and_then(|read| overlay.reads().nth(read)) {
            self.contender.lost(&(&key.space(), name));
        }
    }

    fn assumed(&self) -> Option<Assumption> {
        self.progress.lock().assumed.clone()
    }

    /// When the attempt's record is stamped.
    fn stamping(&self, seen: &Look) -> Stamping {
        match (self.assumed(), &self.store.clock) {
            (None, _) => Stamping::At(seen.now),
            (Some(_), Some(clock)) => Stamping::At(clock.now()),
            (Some(_), None) => Stamping::ByServer,
        }
    }

    /// A commit that holds only on what the attempt saw.
    fn commit_on(
        &self,
        key: &Key,
        seen: &Look,
        overlay: &Overlay<Fetched>,
        becomes: Becomes,
    ) -> Commit<'_> {
        let (space, prefix) = (key.space(), &self.store.prefix);
        let named =
            |(name, value): (&Bytes, Option<&Bytes>)| (prefix.value(&space, name), value.cloned());
        let live_until = self.assumed().and_then(|assumption| assumption.live_until);
        let own_floor = || Token::at(seen.now);
        Commit {
            record: &self.record,
            expected: self.progress.lock().head.clone(),
            live_until: live_until.filter(|_| self.store.clock.is_none()),
            becomes,
            token_floor: self.store.clock.is_some().then(own_floor),
            grace: self.store.grace(),
            reads: overlay.reads().map(named).collect(),
            writes: overlay.writes().map(named).collect(),
        }
    }

    /// What a refused commit means for the call.
    fn refused(
        &self,
        now: Timestamp,
        stored: Option<Bytes>,
        seen: &Look,
        change: &Change,
    ) -> Result<Applied, Error> {
        let head = head_in(stored.as_ref());
        let record = decode(stored, &self.record)?;
        let now = self.store.decided_now(now);
        if self.doubt.is_there() {
            let waited = self.store.link.timeouts().response;
            let unknown = || Error::new(ErrorKind::Unreachable { waited }, Certainty::Unknown);
            match change {
                // It was this call's own commit that came before.
                Change::Claim { attempt, .. } | Change::Complete { attempt, .. } => {
                    if let Some(own) = record.as_ref().filter(|own| own.attempt == *attempt) {
                        let now = own.created_at;
                        return Ok(Applied::Committed { after: record, now });
                    }
                    // What was completed may have been forgotten since, and its writes stay.
                    let completes = matches!(change, Change::Complete { .. });
                    if completes && is_claim(&seen.record) && record != seen.record {
                        return Err(unknown());
                    }
                }
                Change::Keep => {}
                // It did not come through, and will not any more.
                _ if record == seen.record => {}
                // Another extension has come first, or this one: it is asked for again on the claim that there is.
                Change::Extend { .. } | Change::End
                    if is_same_claim(seen, &record) && phase_of(&record, now) == Phase::Live => {}
                Change::End if is_same_claim(seen, &record) => {
                    return Ok(Applied::Committed { after: record, now });
                }
                // A removal leaves nothing to know it by, and what has come since is not what was to go.
                Change::Remove | Change::Extend { .. } | Change::End => return Err(unknown()),
            }
        }
        let mut progress = self.progress.lock();
        progress.head = head;
        progress.next = Some(Basis::Told(Look { record, now }));
        Ok(Applied::Stale)
    }

    /// Whether it is by the clock that is the store's own that the assumed record has ended; under the
    /// server's, the script sees to it.
    fn has_ended(&self, stamping: Stamping) -> bool {
        let live_until = self.assumed().and_then(|assumption| assumption.live_until);
        match stamping {
            Stamping::At(now) => live_until.is_some_and(|end| end <= now),
            Stamping::ByServer => false,
        }
    }
}

fn head_in(stored: Option<&Bytes>) -> Option<Bytes> {
    stored.map(|bytes| bytes.slice_ref(Record::head_in(bytes)))
}

fn is_claim(record: &Option<Record>) -> bool {
    matches!(record, Some(Record { state: State::Claimed { .. }, .. }))
}

/// Whether a record is the claim that was seen.
fn is_same_claim(seen: &Look, record: &Option<Record>) -> bool {
    let token = |record: &Option<Record>| match record {
        Some(Record { state: State::Claimed { token, .. }, .. }) => Some(*token),
        _ => None,
    };
    token(record).is_some() && token(&seen.record) == token(record)
}

fn phase_of(record: &Option<Record>, now: Timestamp) -> Phase {
    record.as_ref().map_or(Phase::Gone, |record| record.phase(now))
}

impl Optimistic for Call<'_> {
    type Transaction = RedisTransaction;

    async fn look(&self, key: &Key) -> Result<Look, Error> {
        match self.basis() {
            Some(look) => Ok(look),
            None => self.read(key).await,
        }
    }

    fn begin(&self, _: &Key) -> RedisTransaction {
        let values = Arc::clone(&self.progress.lock().values);
        RedisTransaction(Overlay::new(Fetched::new(values)))
    }

    fn lacks(&self, RedisTransaction(overlay): &RedisTransaction) -> bool {
        let missed = overlay.committed().missed();
        let lacks = !missed.is_empty();
        self.progress.lock().wanted.extend(missed);
        lacks
    }

    async fn commit(
        &self,
        key: &Key,
        seen: &Look,
        RedisTransaction(overlay): &RedisTransaction,
        change: Change,
    ) -> Result<Applied, Error> {
        let stamping = self.stamping(seen);
        let becomes = match becomes(seen.record.as_ref(), &change, stamping) {
            // Nothing was read before: what there is may need no stamp.
            Err(_) if self.assumed().is_some() => None,
            becomes => becomes?,
        };
        let Some(becomes) = becomes.filter(|_| !self.has_ended(stamping)) else {
            return Ok(Applied::Stale);
        };
        if let Change::Claim { attempt, .. } | Change::Complete { attempt, .. } = &change {
            self.progress.lock().sent = Some((*attempt, seen.record.clone()));
        }
        let commit = self.commit_on(key, seen, overlay, becomes);
        let may_resend = may_resend(&change, &commit);
        match settle(self.store, &commit, may_resend, &self.doubt).await {
            Ok(Fate::Done { now, token }) => {
                let now = match stamping {
                    Stamping::At(stamped) => stamped,
                    Stamping::ByServer => now,
                };
                let token = || token.ok_or_else(|| damaged("the server gave no token"));
                let after = change.stamp(seen.record.as_ref(), now, token);
                let after = after.map_err(|error| error.with_certainty(Certainty::Unknown))?;
                Ok(Applied::Committed { after, now })
            }
            Ok(Fate::Refused { now, record, read }) => {
                self.lost(key, overlay, read);
                self.refused(now, record, seen, &change)
            }
            // Nothing was read before: what there is may need no room.
            Err(error)
                if matches!(error.kind(), ErrorKind::Full)
                    && self.assumed().is_some()
                    && !self.doubt.is_there() =>
            {
                Ok(Applied::Stale)
            }
            Err(error) => Err(error),
        }
    }

    async fn is_unchanged(
        &self,
        key: &Key,
        seen: &Look,
        RedisTransaction(overlay): &RedisTransaction,
    ) -> Result<bool, Error> {
        let mut commit = self.commit_on(key, seen, overlay, Becomes::Kept);
        commit.writes.clear();
        match settle(self.store, &commit, true, &self.doubt).await? {
            Fate::Done { .. } => Ok(true),
            Fate::Refused { now, record, read } => {
                self.lost(key, overlay, read);
                self.refused(now, record, seen, &Change::Keep).map(|_| false)
            }
        }
    }

    async fn back_off(&self, attempt: u32) {
        if self.contender.wait().await {
            return;
        }
        // Whoever won the race is done already; a caller that loses again and again lets others pass.
        let most = attempt.saturating_sub(3).min(20);
        if most == 0 {
            return yield_now().await;
        }
        let share = RandomState::new().hash_one(attempt) % (u64::from(most) + 1);
        sleep(Duration::from_millis(share)).await;
    }
}
