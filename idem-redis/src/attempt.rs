//! One call, as core's optimistic loop sees it.

use std::{
    collections::BTreeSet,
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use idem_core::{
    Applied, Certainty, Change, Draft, Error, ErrorKind, Key, Look, Moment, Optimistic, Overlay,
    Record, Timestamp, Token,
};
use parking_lot::Mutex;
use tokio::{task::yield_now, time::sleep};

use crate::{
    failure::{Meaning, damaged},
    inner::{Inner, decode},
    script::{self, Becomes, Commit},
    transaction::{Fetched, FetchedValues, RedisTransaction},
};

/// How many values a commit may compare and write.
const MOST_VALUES: usize = 100_000;

/// How many bytes a commit may send: unless told otherwise a server takes 512 MB in one argument and a GB in
/// all, and it holds them more than once while the script runs.
const MOST_BYTES: usize = 128 << 20;

/// What every server takes in one argument, whatever it was told (`proto-max-bulk-len`).
const LEAST_LIMIT: usize = 1 << 20;

/// A script, whose numbers are doubles, adds spans of fewer milliseconds to the server's time exactly.
const MOST_EXACT: i64 = 1 << 52;

/// How often a commit is sent anew because it reached the server after its time.
const MOST_LATE: u32 = 8;

/// When a record is stamped.
#[derive(Clone, Copy)]
enum Stamping {
    At(Timestamp),
    /// At the commit, by its clock.
    ByServer,
}

/// What the record becomes; none if the server cannot stamp it exactly.
fn becomes(
    before: Option<&Record>,
    change: &Change,
    stamping: Stamping,
) -> Result<Option<Becomes>, Error> {
    let draft = match change {
        Change::Keep => None,
        Change::Remove => return Ok(Some(Becomes::Removed)),
        change => change.draft(before),
    };
    let Some(draft) = draft else { return Ok(Some(Becomes::Kept)) };
    match stamping {
        Stamping::ByServer => Ok(is_exact(&draft).then_some(Becomes::Set(draft))),
        Stamping::At(now) => {
            // Refuses what cannot be stamped.
            change.clone().stamp(before, now, || Ok(Token::MAX))?;
            Ok(Some(Becomes::Set(stamped(draft, now))))
        }
    }
}

/// A record that a step expects to find, without reading it.
#[derive(Clone, Debug)]
pub(crate) struct Assumption {
    pub(crate) record: Option<Record>,
    /// From this time on, the step would not proceed on it.
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
    record: Vec<u8>,
    token: Vec<u8>,
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
    /// Whether a commit of this call may have been applied, or may yet be, without our knowing.
    in_doubt: bool,
}

impl<'s> Call<'s> {
    pub(crate) fn new(store: &'s Inner, key: &Key, assumption: Option<Assumption>) -> Self {
        let progress = Progress {
            next: assumption.map(Basis::Assumed),
            assumed: None,
            wanted: BTreeSet::new(),
            values: Arc::default(),
            in_doubt: false,
        };
        let (record, token) = (store.prefix.record(key), store.prefix.token(key));
        Self { store, record, token, progress: Mutex::new(progress) }
    }

    /// The same error, as unknown to have done nothing if that is so.
    pub(crate) fn doubted(&self, error: Error) -> Error {
        let in_doubt = self.progress.lock().in_doubt;
        if in_doubt { error.with_certainty(Certainty::Unknown) } else { error }
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
                let now = self.store.estimated_now();
                if assumption.live_until.is_some_and(|end| end <= now) {
                    // It seems to have ended: whether it has, and what is there instead, the server knows.
                    return None;
                }
                let record = assumption.record.clone();
                progress.assumed = Some(assumption);
                Some(Look { record, now })
            }
        }
    }

    async fn read(&self, key: &Key) -> Result<Look, Error> {
        let wanted: Vec<Bytes> = self.progress.lock().wanted.iter().cloned().collect();
        let space = key.space();
        let names: Vec<_> =
            wanted.iter().map(|name| self.store.prefix.value(&space, name)).collect();
        let seen = self.store.look_patiently(&self.record, &names).await?;
        let record = decode(seen.record, &self.record)?;
        self.progress.lock().values = Arc::new(wanted.into_iter().zip(seen.values).collect());
        Ok(Look { record, now: self.store.decided_now(seen.now) })
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
        let assumed = self.progress.lock().assumed.clone();
        let live_until = assumed.and_then(|assumption| assumption.live_until);
        let own_floor = || Token::next(None, seen.now);
        Commit {
            record: &self.record,
            token: &self.token,
            expected: seen.record.as_ref().map(Record::to_head),
            live_until: live_until.filter(|_| self.store.clock.is_none()),
            becomes,
            token_floor: self.store.clock.is_some().then(own_floor),
            grace: self.store.grace(),
            reads: overlay.reads().map(named).collect(),
            writes: overlay.writes().map(named).collect(),
        }
    }

    /// When the attempt's record is stamped.
    fn stamping(&self, seen: &Look) -> Stamping {
        match (&self.progress.lock().assumed, &self.store.clock) {
            (None, _) => Stamping::At(seen.now),
            (Some(_), Some(clock)) => Stamping::At(clock.now()),
            (Some(_), None) => Stamping::ByServer,
        }
    }

    /// Whether the attempt rests on nothing that was read.
    fn assumes(&self) -> bool {
        self.progress.lock().assumed.is_some()
    }

    /// Whether the record that the attempt assumes has ended, as far as can be told here.
    fn has_ended(&self, stamping: Stamping) -> bool {
        let assumed = &self.progress.lock().assumed;
        let live_until = assumed.as_ref().and_then(|assumed| assumed.live_until);
        match stamping {
            Stamping::At(now) => live_until.is_some_and(|end| end <= now),
            // Its script sees to that.
            Stamping::ByServer => false,
        }
    }

    /// Sends a commit until it is known what became of it, or gives up.
    async fn settle(
        &self,
        commit: &Commit<'_>,
        may_resend: bool,
    ) -> Result<script::Applied, Error> {
        let mut patience = self.store.link.patience();
        // By which time of the server's it is known how long the commit may be on its way.
        let mut told = None;
        let mut late = 0;
        loop {
            let failure = match self.store.apply(commit, told).await {
                Ok(script::Applied::Late { now }) if late < MOST_LATE => {
                    (told, late) = (Some(now), late + 1);
                    continue;
                }
                Ok(script::Applied::Late { .. }) => {
                    let waited = self.store.link.timeouts().response;
                    return Err(Error::nothing_done(ErrorKind::Unreachable { waited }));
                }
                Ok(script::Applied::Damaged) => {
                    return Err(damaged(
                        "the last token of the tenant is no number below 2^63 - 1",
                    ));
                }
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            told = None;
            let is_lost = failure.meaning == Meaning::Lost;
            let limit = match commit.longest() {
                // The server ends the connection after that, so that its reason may be lost.
                longest if is_lost && longest > LEAST_LIMIT => {
                    self.store.link.longest_argument().await.filter(|limit| longest > *limit)
                }
                _ => None,
            };
            if limit.is_some() || failure.is_too_large() {
                let kind = ErrorKind::TooLarge { size: commit.size().0, limit, unit: "bytes" };
                return Err(Error::nothing_done(kind).with_source(failure.cause));
            }
            if !commit.does_something() {
                patience.bear_reading(failure).await?;
                continue;
            }
            self.progress.lock().in_doubt |= is_lost;
            if is_lost && !may_resend {
                return Err(failure.into_error(self.store.link.timeouts().response));
            }
            patience.bear(failure).await?;
        }
    }

    /// What a refused commit means for the call: another attempt, or that it was this call's own that came
    /// before.
    fn refused(
        &self,
        now: Timestamp,
        stored: Option<Bytes>,
        change: &Change,
    ) -> Result<Applied, Error> {
        let record = decode(stored, &self.record)?;
        let now = self.store.decided_now(now);
        // The driver of a cluster sends a command again by itself, without our knowing.
        let may_be_own = self.progress.lock().in_doubt || self.store.link.is_cluster();
        if may_be_own && is_left_by(change, record.as_ref()) {
            let now = record.as_ref().map_or(now, |record| record.created_at);
            return Ok(Applied::Committed { after: record, now });
        }
        self.progress.lock().next = Some(Basis::Told(Look { record, now }));
        Ok(Applied::Stale)
    }
}

/// Whether a commit of `change` has left `record`: each bears the id of the attempt that wrote it.
///
/// Of an extension it cannot be told whose it is: it is asked for again, on the record that there is.
fn is_left_by(change: &Change, record: Option<&Record>) -> bool {
    match change {
        Change::Claim { attempt, .. } | Change::Complete { attempt, .. } => {
            record.is_some_and(|record| record.attempt == *attempt)
        }
        Change::Remove => record.is_none(),
        Change::Extend { .. } | Change::Keep => false,
    }
}

/// Whether a commit may be sent again after its answer was lost: it is found to have come before, or does the
/// same again.
fn may_resend(change: &Change, commit: &Commit<'_>) -> bool {
    match change {
        Change::Claim { .. } | Change::Complete { .. } => true,
        Change::Remove | Change::Extend { .. } | Change::Keep => commit.writes.is_empty(),
    }
}

/// Whether a script can stamp a draft to the millisecond.
fn is_exact(draft: &Draft) -> bool {
    [draft.created_at, draft.ends_at, draft.keep_until].into_iter().all(|moment| match moment {
        Moment::In(span) => span.as_millis() < MOST_EXACT,
        Moment::Never | Moment::At(_) | Moment::Now => true,
    })
}

/// The draft with its times as of `now`, which they are known not to overflow.
fn stamped(draft: Draft, now: Timestamp) -> Draft {
    let at = |moment| match moment {
        Moment::Now => Moment::At(now),
        Moment::In(span) => now.after(span).map_or(Moment::Never, Moment::At),
        moment => moment,
    };
    Draft {
        created_at: at(draft.created_at),
        ends_at: at(draft.ends_at),
        keep_until: at(draft.keep_until),
        ..draft
    }
}

fn check_size(commit: &Commit<'_>) -> Result<(), Error> {
    let too_large = |size, limit, unit| {
        let kind = ErrorKind::TooLarge { size, limit: Some(limit), unit };
        Err(Error::nothing_done(kind))
    };
    match commit.size() {
        (bytes, _) if bytes > MOST_BYTES => too_large(bytes, MOST_BYTES, "bytes"),
        (_, values) if values > MOST_VALUES => too_large(values, MOST_VALUES, "values"),
        _ => Ok(()),
    }
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
        let becomes = becomes(seen.record.as_ref(), &change, stamping)?;
        let Some(becomes) = becomes.filter(|_| !self.has_ended(stamping)) else {
            return Ok(Applied::Stale);
        };
        let commit = self.commit_on(key, seen, overlay, becomes);
        check_size(&commit)?;
        let settled = match self.settle(&commit, may_resend(&change, &commit)).await {
            // Nothing was read before: what there is may need no room.
            Err(error) if matches!(error.kind(), ErrorKind::Full) && self.assumes() => {
                return Ok(Applied::Stale);
            }
            settled => settled?,
        };
        match settled {
            script::Applied::Done { now, token } => {
                let now = match stamping {
                    Stamping::At(now) => now,
                    Stamping::ByServer => now,
                };
                let token = || token.ok_or_else(|| damaged("the server gave no token"));
                let after = change.stamp(seen.record.as_ref(), now, token);
                let after = after.map_err(|error| error.with_certainty(Certainty::Done))?;
                Ok(Applied::Committed { after, now })
            }
            script::Applied::Stale { now, record } => self.refused(now, record, &change),
            script::Applied::Late { .. } | script::Applied::Damaged => Ok(Applied::Stale),
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
        check_size(&commit)?;
        match self.settle(&commit, true).await? {
            script::Applied::Done { .. } => Ok(true),
            script::Applied::Stale { now, record } => {
                self.refused(now, record, &Change::Keep).map(|_| false)
            }
            script::Applied::Late { .. } | script::Applied::Damaged => Ok(false),
        }
    }

    async fn back_off(&self, attempt: u32) {
        // Whoever won the race is done already; a caller that loses again and again lets others pass.
        let most = attempt.saturating_sub(3).min(20);
        if most == 0 {
            return yield_now().await;
        }
        let share = RandomState::new().hash_one(attempt) % (u64::from(most) + 1);
        sleep(Duration::from_millis(share)).await;
    }
}
