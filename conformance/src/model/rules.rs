//! The rules of idem as a program that is as plain as their table, and knows nothing of stores.
//!
//! It is written apart from what core decides and stamps by, so that a mistake there is none here. Time is in
//! milliseconds, a lease is named by the number of the call that claimed it, and whoever applies a call says what
//! time it is.

use super::calls::{
    Answer, Call, Effect, Held, K, LeaseNo, Millis, Name, Print, Record, Reply, Retain, State,
};

impl Record {
    fn is_live(&self, now: Millis) -> bool {
        match self.state {
            State::Completed { expires_at, .. } => expires_at.is_none_or(|end| now < end),
            State::Claimed { until, .. } => now < until,
        }
    }

    /// When it may be purged; none for never.
    fn purge_at(&self) -> Option<Millis> {
        match self.state {
            State::Completed { expires_at, .. } => expires_at,
            State::Claimed { until, keep_until, .. } => keep_until.map(|keep| keep.max(until)),
        }
    }

    /// The instants at which something about it ends.
    pub(super) fn ends(&self) -> Vec<Millis> {
        match self.state {
            State::Completed { expires_at, .. } => expires_at.into_iter().collect(),
            State::Claimed { until, keep_until, .. } => {
                [Some(until), keep_until].into_iter().flatten().collect()
            }
        }
    }
}

/// What a caller that wants a key finds.
enum Found {
    Free,
    Told(Answer),
}

/// All that is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Rules {
    records: [Option<Record>; 4],
    values: [[Option<u64>; 2]; 3],
    /// Which keys were completed by which lease, so that a completion that is asked for again is found.
    completed_by: [Option<LeaseNo>; 4],
    /// The lease of each key that was granted last.
    granted: [Option<LeaseNo>; 4],
}

impl Rules {
    pub(super) fn record(&self, key: K) -> Option<&Record> {
        self.records[key as usize].as_ref()
    }

    pub(super) fn records(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().flatten()
    }

    /// The lease of the key that was granted last: the next one's token is larger.
    pub(super) fn granted(&self, key: K) -> Option<LeaseNo> {
        self.granted[key as usize]
    }

    /// Applies the call of that number at `now`, and returns what its caller must be told.
    pub(super) fn apply(&mut self, call: Call, number: u64, now: Millis) -> Answer {
        match call {
            Call::Execute { key, print, retain, effect } => {
                self.execute(key, print, retain, effect, now).unwrap_or_else(|refusal| refusal)
            }
            Call::Claim { key, print, retain, lease } => {
                self.claim(number, key, print, retain, lease, now).unwrap_or_else(|refusal| refusal)
            }
            Call::Complete(held, count) => self.complete(held, now, |_| Ok(Reply::Count(count))),
            Call::CompleteWith(held, effect) => {
                self.complete(held, now, |values| run(effect, values))
            }
            Call::Renew(held, lease) => self.as_holder(held, now, |rules| {
                rules.set_until(held.key, now + lease);
                Answer::Renewed { until: now + lease }
            }),
            Call::Release(held) => self.as_holder(held, now, |rules| {
                rules.records[held.key as usize] = None;
                Answer::Released
            }),
            Call::End(held) => self.as_holder(held, now, |rules| {
                // The end of an ended lease is its start.
                let start = rules.record(held.key).map_or(now, |record| record.created_at);
                rules.set_until(held.key, start);
                Answer::Ended
            }),
            Call::Mark => self.mark(now),
            Call::IsProcessed => Answer::Processed(self.receipt(K::Event, now).is_some()),
            Call::Receipt(key) => Answer::Receipt(self.receipt(key, now)),
            Call::Forget(key) => self.forget(key, now),
            Call::Value(owner, name) => Answer::Value(self.values[owner as usize][name as usize]),
            Call::List(key) => Answer::Listed(self.listed(key, now)),
            Call::Purge(key) => Answer::Purged(self.purge(key, now)),
        }
    }

    /// Whether the key's record may be purged at `now`.
    pub(super) fn is_purgeable(&self, key: K, now: Millis) -> bool {
        self.record(key).and_then(Record::purge_at).is_some_and(|end| end <= now)
    }

    /// The table.
    fn find(&self, key: K, print: Print, now: Millis) -> Found {
        let Some(record) = self.record(key) else { return Found::Free };
        match record.state {
            _ if !record.is_live(now) => Found::Free,
            _ if record.print != print => Found::Told(Answer::Conflict),
            State::Completed { result: Reply::Mark, .. } => Found::Told(Answer::Undecodable),
            State::Completed { result, .. } => Found::Told(Answer::Replayed(result)),
            State::Claimed { until, .. } => Found::Told(in_progress(record, until, now)),
        }
    }

    fn execute(
        &mut self,
        key: K,
        print: Print,
        retain: Retain,
        effect: Effect,
        now: Millis,
    ) -> Result<Answer, Answer> {
        if retain == Retain::Zero {
            return Err(Answer::Invalid);
        }
        if let Found::Told(answer) = self.find(key, print, now) {
            return Ok(answer);
        }
        let expires_at = retain.end(now)?;
        let result = run(effect, &mut self.values[key.owner() as usize])?;
        let state = State::Completed { result, expires_at };
        self.set(key, Record { print, created_at: now, state }, None);
        Ok(Answer::Created(result))
    }

    fn claim(
        &mut self,
        number: u64,
        key: K,
        print: Print,
        retain: Retain,
        lease: Millis,
        now: Millis,
    ) -> Result<Answer, Answer> {
        if lease == 0 || retain == Retain::Zero {
            return Err(Answer::Invalid);
        }
        if let Found::Told(answer) = self.find(key, print, now) {
            return Ok(answer);
        }
        let (until, keep_until) = (now + lease, retain.end(now)?);
        let (took_over, from_other) = match self.record(key) {
            Some(Record { print: before, state: State::Claimed { lease, .. }, .. }) => {
                (Some(*lease), *before != print)
            }
            _ => (None, false),
        };
        let state = State::Claimed { lease: number, until, keep_until };
        self.set(key, Record { print, created_at: now, state }, None);
        self.granted[key as usize] = Some(number);
        Ok(Answer::Acquired { lease: number, until, took_over, from_other })
    }

    fn complete(
        &mut self,
        held: Held,
        now: Millis,
        effect: impl FnOnce(&mut Values) -> Result<Reply, Answer>,
    ) -> Answer {
        let Held { lease, key, print, retain } = held;
        if let Some(Record { state: State::Completed { result, .. }, .. }) = self.record(key)
            && self.completed_by[key as usize] == Some(lease)
        {
            // Its own, whose answer was lost.
            return Answer::Completed(*result);
        }
        self.as_holder(held, now, |rules| {
            let ran = retain.end(now).and_then(|expires_at| {
                let result = effect(&mut rules.values[key.owner() as usize])?;
                Ok((result, expires_at))
            });
            match ran {
                Ok((result, expires_at)) => {
                    let state = State::Completed { result, expires_at };
                    rules.set(key, Record { print, created_at: now, state }, Some(lease));
                    Answer::Completed(result)
                }
                Err(refusal) => refusal,
            }
        })
    }

    fn as_holder(
        &mut self,
        held: Held,
        now: Millis,
        act: impl FnOnce(&mut Self) -> Answer,
    ) -> Answer {
        match self.record(held.key).map(|record| &record.state) {
            Some(State::Claimed { lease, until, .. }) if *lease == held.lease && now < *until => {
                act(self)
            }
            _ => Answer::Lost,
        }
    }

    fn mark(&mut self, now: Millis) -> Answer {
        match self.record(K::Event).filter(|record| record.is_live(now)) {
            Some(Record { state: State::Completed { .. }, .. }) => Answer::MarkedAgain,
            Some(record @ Record { state: State::Claimed { until, .. }, .. }) => {
                in_progress(record, *until, now)
            }
            None => {
                let state = State::Completed { result: Reply::Mark, expires_at: None };
                self.set(K::Event, Record { print: None, created_at: now, state }, None);
                Answer::MarkedFirst
            }
        }
    }

    fn forget(&mut self, key: K, now: Millis) -> Answer {
        let Some(record) = self.record(key) else { return Answer::Forgotten(false) };
        let was_there = match record.state {
            State::Claimed { until, .. } if record.is_live(now) => {
                return in_progress(record, until, now);
            }
            State::Claimed { .. } => true,
            State::Completed { .. } => record.is_live(now),
        };
        self.records[key as usize] = None;
        Answer::Forgotten(was_there)
    }

    fn receipt(&self, key: K, now: Millis) -> Option<Record> {
        let is_receipt = |record: &&Record| {
            record.is_live(now) && matches!(record.state, State::Completed { .. })
        };
        self.record(key).filter(is_receipt).cloned()
    }

    fn listed(&self, key: K, now: Millis) -> Option<Record> {
        let is_shown =
            |record: &&Record| record.is_live(now) || matches!(record.state, State::Claimed { .. });
        self.record(key).filter(is_shown).cloned()
    }

    fn purge(&mut self, key: K, now: Millis) -> bool {
        let goes = self.is_purgeable(key, now);
        if goes {
            self.records[key as usize] = None;
        }
        goes
    }

    fn set(&mut self, key: K, record: Record, by: Option<LeaseNo>) {
        self.records[key as usize] = Some(record);
        self.completed_by[key as usize] = by;
    }

    fn set_until(&mut self, key: K, end: Millis) {
        if let Some(Record { state: State::Claimed { until, .. }, .. }) =
            &mut self.records[key as usize]
        {
            *until = end;
        }
    }
}

/// A retry is due when the lease ends: after what is left of it; by a clock that stepped back after no more than from
/// its claim to its end, or a second.
fn in_progress(record: &Record, until: Millis, now: Millis) -> Answer {
    let longest = (until - record.created_at).max(1_000);
    Answer::InProgress { until, retry_after: (until - now).min(longest) }
}

type Values = [Option<u64>; 2];

/// Runs an effect on the values of its space; one that fails leaves them as they are.
fn run(effect: Effect, values: &mut Values) -> Result<Reply, Answer> {
    let count = |name: Name, values: &Values| values[name as usize].unwrap_or(0);
    let (name, value) = match effect {
        Effect::Add(name) => (name, Some(count(name, values) + 1)),
        Effect::Follow(name) => (name, Some(count(name.other(), values) + 1)),
        Effect::Put(name, value) => (name, Some(value)),
        Effect::Delete(name) => (name, None),
        Effect::Refuse(name) => return Ok(Reply::Refused(count(name, values))),
        Effect::Fail(_) => return Err(Answer::Failed),
        Effect::Panic(_) => return Err(Answer::Panicked),
    };
    values[name as usize] = value;
    Ok(Reply::Count(value.unwrap_or(0)))
}
