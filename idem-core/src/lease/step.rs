//! The steps of a lease.

use std::marker::PhantomData;

use bytes::Bytes;
use uuid::Uuid;

use crate::{
    Change, Error, Fingerprint, Phase, Record, Request, Retention, Span, State, Step, Timestamp,
    Token,
    decision::{Verdict, holds, judge},
};

/// Holds a free key.
pub(super) struct Acquire {
    fingerprint: Option<Fingerprint>,
    retention: Retention,
    lease: Span,
    attempt: Uuid,
    refuses_takeover: bool,
}

impl Acquire {
    pub(super) fn new(request: &Request, lease: Span, attempt: Uuid) -> Result<Self, Error> {
        let fingerprint = request.fingerprint_value().copied();
        let (retention, refuses_takeover) = (request.retention()?, request.refuses_takeover());
        Ok(Self { fingerprint, retention, lease, attempt, refuses_takeover })
    }
}

impl<Tx: ?Sized> Step<Tx> for Acquire {
    fn proceeds(&self, record: Option<&Record>, now: Timestamp) -> bool {
        match judge(record, self.fingerprint.as_ref(), now) {
            Verdict::TakeOver(_) => !self.refuses_takeover,
            verdict => verdict.runs(),
        }
    }

    fn effectless(&self) -> bool {
        true
    }

    fn run(
        &mut self,
        _: &mut Tx,
        record: Option<&Record>,
        now: Timestamp,
    ) -> Result<Change, Error> {
        let Self { fingerprint, mut retention, lease, attempt, .. } = *self;
        let mut took_over = None;
        if let (Verdict::TakeOver(before), Some(State::Claimed { keep, .. })) =
            (judge(record, fingerprint.as_ref(), now), record.map(|record| &record.state))
        {
            // What was asked for must be possible by itself.
            retention.expires_at(lease.ends_at("lease", now)?)?;
            took_over = Some(before.token);
            // What happened before is no better known for a shorter retention.
            retention = retention.longer(*keep);
        }
        Ok(Change::Claim { fingerprint, attempt, took_over, lease, retention })
    }
}

/// Asks for a change as the holder of a lease, without an effect.
pub(super) struct ByHolder {
    claim: Record,
    token: Token,
    change: Change,
}

impl ByHolder {
    /// The step of the holder of `claim`, whose token is that.
    pub(super) fn new(claim: &Record, token: Token, change: Change) -> Self {
        Self { claim: claim.clone(), token, change }
    }
}

impl<Tx: ?Sized> Step<Tx> for ByHolder {
    fn proceeds(&self, record: Option<&Record>, now: Timestamp) -> bool {
        holds(record, self.token, now)
    }

    fn effectless(&self) -> bool {
        true
    }

    fn expected(&self) -> Option<&Record> {
        Some(&self.claim)
    }

    fn run(&mut self, _: &mut Tx, _: Option<&Record>, _: Timestamp) -> Result<Change, Error> {
        Ok(self.change.clone())
    }
}

/// Moves a lease's end on, and not beyond a last instant: one that is later is cut.
pub(super) struct Prolong {
    pub(super) token: Token,
    pub(super) lease: Span,
    pub(super) last: Last,
}

/// When a lease ends at the latest.
#[derive(Clone, Copy)]
pub(super) enum Last {
    /// So long after the step.
    In(Span),
    At(Timestamp),
}

impl Last {
    pub(super) fn at(self, now: Timestamp) -> Timestamp {
        match self {
            Self::In(span) => now.after(span).unwrap_or(Timestamp::from_millis(i64::MAX)),
            Self::At(last) => last,
        }
    }
}

impl<Tx: ?Sized> Step<Tx> for Prolong {
    fn proceeds(&self, record: Option<&Record>, now: Timestamp) -> bool {
        holds(record, self.token, now)
    }

    fn run(
        &mut self,
        _: &mut Tx,
        record: Option<&Record>,
        now: Timestamp,
    ) -> Result<Change, Error> {
        let Some(State::Claimed { until, .. }) = record.map(|record| &record.state) else {
            return Ok(Change::Keep);
        };
        let last = self.last.at(now);
        let next = now.after(self.lease).unwrap_or(last).max(*until).min(last);
        if next == *until {
            return Ok(Change::Keep);
        }
        Ok(Change::Extend { lease: Span::new("lease", next.since(now))? })
    }
}

/// Completes a held key with what an effect returns.
pub(super) struct CompleteWith<Tx: ?Sized, F> {
    pub(super) token: Token,
    pub(super) fingerprint: Option<Fingerprint>,
    pub(super) retention: Retention,
    pub(super) attempt: Uuid,
    pub(super) effect: F,
    pub(super) transaction: PhantomData<fn(&mut Tx)>,
}

impl<Tx: ?Sized, F> Step<Tx> for CompleteWith<Tx, F>
where
    F: FnMut(&mut Tx) -> Result<Bytes, Error>,
{
    fn proceeds(&self, record: Option<&Record>, now: Timestamp) -> bool {
        holds(record, self.token, now)
    }

    fn run(&mut self, tx: &mut Tx, _: Option<&Record>, now: Timestamp) -> Result<Change, Error> {
        // What cannot be stamped must not run.
        self.retention.expires_at(now)?;
        let result = (self.effect)(tx)?;
        let Self { fingerprint, retention, attempt, .. } = *self;
        Ok(Change::Complete { fingerprint, attempt, result, retention })
    }
}

/// Takes back the claim of an attempt that never reached its caller, if it came into force: nothing was done under it.
///
/// It goes the way of a write, whatever a snapshot shows: so it comes after a claim that is still on its way.
pub(super) struct TakeBack(pub(super) Uuid);

impl<Tx: ?Sized> Step<Tx> for TakeBack {
    fn proceeds(&self, _: Option<&Record>, _: Timestamp) -> bool {
        true
    }

    fn run(
        &mut self,
        _: &mut Tx,
        record: Option<&Record>,
        now: Timestamp,
    ) -> Result<Change, Error> {
        let Some(record) = record.filter(|record| record.attempt == self.0) else {
            return Ok(Change::Keep);
        };
        Ok(match (&record.state, record.phase(now)) {
            (State::Completed { .. }, _) | (_, Phase::Gone) => Change::Keep,
            (State::Claimed { took_over: None, .. }, _) => Change::Remove,
            // Of the lease before it, nobody knows more than then.
            (State::Claimed { .. }, Phase::Live) => Change::End,
            (State::Claimed { .. }, Phase::Ended) => Change::Keep,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fingerprint;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// A lease until 10, kept for 20 after it.
    fn claim(took_over: Option<Token>, is_ended: bool) -> Record {
        let keep = Span::from_millis(20).map_or(Retention::Forever, Retention::For);
        let state = State::Claimed { token: Token::MAX, took_over, until: at(10), is_ended, keep };
        let fingerprint = Some(Fingerprint::of_bytes("a"));
        Record { fingerprint, attempt: Uuid::from_u128(1), created_at: at(0), state }
    }

    #[test]
    fn a_claim_is_taken_back_unless_it_is_gone_or_another_attempts() {
        let before = Token::from_u64(3);
        for (took_over, is_ended, now, change) in [
            (None, false, 9, Change::Remove),
            (None, false, 10, Change::Remove),
            (None, true, 9, Change::Remove),
            (None, false, 30, Change::Keep),
            (before, false, 9, Change::End),
            // The end that it had stays, and what is gone does not come back.
            (before, false, 10, Change::Keep),
            (before, true, 9, Change::Keep),
            (before, false, 30, Change::Keep),
        ] {
            let record = claim(took_over, is_ended);
            let run = |attempt| TakeBack(attempt).run(&mut (), Some(&record), at(now)).unwrap();
            assert_eq!(run(record.attempt), change, "{took_over:?}, {is_ended} at {now}");
            assert_eq!(run(Uuid::from_u128(2)), Change::Keep, "another's");
        }
    }
}
