//! The rules of idem as a program that is as plain as their table, and knows nothing of stores.
//!
//! It is written apart from what core decides and stamps by, so that a mistake there is none here. Time is in
//! milliseconds, a lease is named by the number of the call that claimed it, and whoever applies a call says what
//! time it is.

use super::calls::{
    Answer, Call, Effect, Held, K, LeaseNo, Millis, Name, Print, Record, Reply, Retain, State,
};

/// How far the life of a record is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Live,
    /// A lease without an answer.
    Ended,
    /// As if there were no record.
    Gone,
}

impl Record {
    fn phase(&self, now: Millis) -> Phase {
        match self.state {
            State::Completed { expires_at: Some(end), .. } if end <= now => Phase::Gone,
            State::Completed { .. } => Phase::Live,
            State::Claimed { until, is_ended: false, .. } if now < until => Phase::Live,
            State::Claimed { .. } if self.gone_at().is_some_and(|end| end <= now) => Phase::Gone,
            State::Claimed { .. } => Phase::Ended,
        }
    }

    /// When there is no claim any more; never counted from before its start.
    fn gone_at(&self) -> Option<Millis> {
        match self.state {
            State::Claimed { until, keep, .. } => {
                keep.map(|keep| until.max(self.created_at) + keep)
            }
            State::Completed { expires_at, .. } => expires_at,
        }
    }

    /// The instants at which something about it ends.
    pub(super) fn ends(&self) -> Vec<Millis> {
        match self.state {
            State::Completed { expires_at, .. } => expires_at.into_iter().collect(),
            State::Claimed { until, .. } => {
                [Some(until), self.gone_at()].into_iter().flatten().collect()
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
            Call::Claim { .. } => self.claim(number, call, now).unwrap_or_else(|refusal| refusal),
            Call::TakeBack(held) => self.take_back(held, now),
            Call::Complete(held, count) => self.complete(held, now, |_| Ok(Reply::Count(count))),
            Call::CompleteWith(held, effect) => {
                self.complete(held, now, |values| run(effect, values))
            }
            Call::Renew(held, lease) => self.as_holder(held, now, |rules| {
                rules.set_until(held.key, now + lease, false);
                Answer::Renewed { until: now + lease }
            }),
            Call::Release(held) => self.as_holder(held, now, |rules| {
                rules.let_go(held.key, now);
                Answer::Released
            }),
            Call::End(held) => self.as_holder(held, now, |rules| {
                rules.set_until(held.key, now, true);
                Answer::Ended
            }),
            Call::Mark => self.mark(now),
            Call::IsProcessed => Answer::Processed(self.receipt(K::Event, now).is_some()),
            Call::Receipt(key) => Answer::Receipt(self.receipt(key, now)),
            Call::Forget(key) => self.forget(key, now),
            Call::Settle(key, count) => self.settle(key, count, now),
            Call::EndHeld(key) => self.end_held(key, now),
            Call::Value(owner, name) => Answer::Value(self.values[owner as usize][name as usize]),
            Call::List(key) => Answer::Listed(self.listed(key, now)),
            Call::Purge(key) => Answer::Purged(self.purge(key, now)),
        }
    }

    /// Whether the key's record may be purged at `now`.
    pub(super) fn is_purgeable(&self, key: K, now: Millis) -> bool {
        self.record(key).is_some_and(|record| record.phase(now) == Phase::Gone)
    }

    /// The table.
    fn find(&self, key: K, print: Print, now: Millis) -> Found {
        let Some(record) = self.record(key) else { return Found::Free };
        match (record.phase(now), &record.state) {
            (Phase::Gone, _) => Found::Free,
            _ if record.print != print => Found::Told(Answer::Conflict),
            (_, State::Completed { result: Reply::Mark, .. }) => Found::Told(Answer::Undecodable),
            (_, State::Completed { result, .. }) => Found::Told(Answer::Replayed(*result)),
            (Phase::Live, State::Claimed { until, .. }) => {
                Found::Told(in_progress(record, *until, now))
            }
            (Phase::Ended, State::Claimed { .. }) => Found::Free,
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

    fn claim(&mut self, number: u64, call: Call, now: Millis) -> Result<Answer, Answer> {
        let Call::Claim { key, print, retain, lease, refuses } = call else {
            unreachable!("it is a claim")
        };
        if lease == 0 || retain == Retain::Zero {
            return Err(Answer::Invalid);
        }
        if let Found::Told(answer) = self.find(key, print, now) {
            return Ok(answer);
        }
        let end = now + lease;
        let kept = || Ok(retain.end(end)?.map(|gone| gone - end));
        let keep;
        let mut took_over = None;
        if let Some(record) = self.record(key)
            && record.phase(now) == Phase::Ended
            && let State::Claimed { lease, until, keep: before, .. } = record.state
        {
            if refuses {
                return Ok(Answer::Unfinished { lease, ended_at: until });
            }
            took_over = Some(lease);
            // The longer one.
            keep = kept()?.zip(before).map(|(one, other)| one.max(other));
        } else {
            keep = kept()?;
        }
        let until = end;
        let state = State::Claimed { lease: number, took_over, until, is_ended: false, keep };
        self.set(key, Record { print, created_at: now, state }, None);
        self.granted[key as usize] = Some(number);
        Ok(Answer::Acquired { lease: number, until, took_over })
    }

    /// Undoes a claim that nobody was told of.
    fn take_back(&mut self, held: Held, now: Millis) -> Answer {
        let Some(record) = self.record(held.key) else { return Answer::Lost };
        match (&record.state, record.phase(now)) {
            (State::Claimed { lease, took_over, .. }, Phase::Live | Phase::Ended)
                if *lease == held.lease
                    && (took_over.is_none() || record.phase(now) == Phase::Live) =>
            {
                self.let_go(held.key, now);
                Answer::Released
            }
            _ => Answer::Lost,
        }
    }

    /// Lets go of a key under whose lease nothing happened: of the lease before, nobody knows more than then.
    fn let_go(&mut self, key: K, now: Millis) {
        match self.record(key).map(|record| &record.state) {
            Some(State::Claimed { took_over: Some(_), .. }) => self.set_until(key, now, true),
            _ => self.records[key as usize] = None,
        }
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
        match self.record(held.key) {
            Some(record @ Record { state: State::Claimed { lease, .. }, .. })
                if *lease == held.lease && record.phase(now) == Phase::Live =>
            {
                act(self)
            }
            _ => Answer::Lost,
        }
    }

    fn mark(&mut self, now: Millis) -> Answer {
        match self.record(K::Event).filter(|record| record.phase(now) == Phase::Live) {
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

    /// The answer to those who must not disturb a live lease, if there is one.
    fn held(&self, key: K, now: Millis) -> Option<Answer> {
        match self.record(key)? {
            record @ Record { state: State::Claimed { until, .. }, .. }
                if record.phase(now) == Phase::Live =>
            {
                Some(in_progress(record, *until, now))
            }
            _ => None,
        }
    }

    fn forget(&mut self, key: K, now: Millis) -> Answer {
        if let Some(held) = self.held(key, now) {
            return held;
        }
        let forgotten = self.records[key as usize].take();
        Answer::Forgotten(forgotten.is_some_and(|record| record.phase(now) != Phase::Gone))
    }

    fn settle(&mut self, key: K, count: Option<u64>, now: Millis) -> Answer {
        if let Some(held) = self.held(key, now) {
            return held;
        }
        let ended = self.record(key).filter(|record| record.phase(now) == Phase::Ended);
        let Some(Record { print, state: State::Claimed { keep, .. }, .. }) = ended.cloned() else {
            return Answer::Settled(false);
        };
        match count {
            None => self.records[key as usize] = None,
            Some(count) => {
                let (result, expires_at) = (Reply::Count(count), keep.map(|keep| now + keep));
                let state = State::Completed { result, expires_at };
                self.set(key, Record { print, created_at: now, state }, None);
            }
        }
        Answer::Settled(true)
    }

    fn end_held(&mut self, key: K, now: Millis) -> Answer {
        match self.record(key).filter(|record| record.phase(now) == Phase::Live) {
            Some(Record { state: State::Claimed { lease, .. }, .. }) => {
                let lease = *lease;
                self.set_until(key, now, true);
                Answer::EndedHeld(Some(lease))
            }
            _ => Answer::EndedHeld(None),
        }
    }

    fn receipt(&self, key: K, now: Millis) -> Option<Record> {
        let is_receipt = |record: &&Record| {
            record.phase(now) == Phase::Live && matches!(record.state, State::Completed { .. })
        };
        self.record(key).filter(is_receipt).cloned()
    }

    fn listed(&self, key: K, now: Millis) -> Option<Record> {
        self.record(key).filter(|record| record.phase(now) != Phase::Gone).cloned()
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

    fn set_until(&mut self, key: K, end: Millis, by_name: bool) {
        if let Some(Record { state: State::Claimed { until, is_ended, .. }, .. }) =
            &mut self.records[key as usize]
        {
            (*until, *is_ended) = (end, by_name);
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
