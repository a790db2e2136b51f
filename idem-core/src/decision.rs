//! The one decision: what a call may do, given what is recorded.

use bytes::Bytes;

use crate::{Fingerprint, Record, State, Timestamp, Token};

/// How far the life of a record is at a given time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A receipt that has not expired, or a lease that its holder still has.
    Live,
    /// A lease that ended without an answer: nobody knows what its holder did outside the store.
    Ended,
    /// It counts as no record, purged or not.
    Gone,
}

impl Record {
    /// The phase of this record at `now`.
    ///
    /// A receipt is gone at exactly `expires_at`. A lease has ended at exactly `until`, or before if it was ended by
    /// name, whatever the clock says afterwards; its record is gone when it has been ended for as long as it is kept.
    #[must_use]
    pub fn phase(&self, now: Timestamp) -> Phase {
        let is_gone = self.gone_at().is_some_and(|gone_at| gone_at <= now);
        match self.state {
            State::Completed { .. } if is_gone => Phase::Gone,
            State::Completed { .. } => Phase::Live,
            State::Claimed { is_ended, until, .. } if !is_ended && now < until => Phase::Live,
            State::Claimed { .. } if is_gone => Phase::Gone,
            State::Claimed { .. } => Phase::Ended,
        }
    }
}

/// What a call that wants a key may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<'r> {
    /// Run: the key has no record, or its record is gone.
    Run,
    /// Run, after a lease with the same parameters that ended without an answer: a claim takes over.
    TakeOver(Unfinished),
    /// Take this result, and do not run.
    Replayed(&'r Bytes),
    /// The key is in use for other parameters.
    Conflict,
    /// The key is held until then.
    InProgress(Timestamp),
}

impl Verdict<'_> {
    /// Whether the call runs.
    #[must_use]
    pub const fn runs(&self) -> bool {
        matches!(self, Self::Run | Self::TakeOver(_))
    }
}

/// A lease that ended without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// Its token.
    pub token: Token,
    /// When it ended.
    pub ended_at: Timestamp,
}

/// Decides what a call with this fingerprint may do at `now`.
///
/// Every path asks this function. A key keeps its parameters as long as its record counts: another fingerprint is a
/// conflict with a receipt, with a live lease, where it wins over the wait, and with a lease that ended.
#[must_use]
pub fn judge<'r>(
    record: Option<&'r Record>,
    fingerprint: Option<&Fingerprint>,
    now: Timestamp,
) -> Verdict<'r> {
    match record {
        Some(record) => match record.phase(now) {
            Phase::Gone => Verdict::Run,
            _ if record.fingerprint.as_ref() != fingerprint => Verdict::Conflict,
            phase => match &record.state {
                State::Completed { result, .. } => Verdict::Replayed(result),
                State::Claimed { until, .. } if phase == Phase::Live => Verdict::InProgress(*until),
                State::Claimed { token, until, .. } => {
                    Verdict::TakeOver(Unfinished { token: *token, ended_at: *until })
                }
            },
        },
        None => Verdict::Run,
    }
}

/// What a delivery of an event may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventVerdict {
    /// It is not marked.
    Run,
    /// It is marked.
    Marked,
    /// It is marked, or was held, with another payload.
    Conflict,
    /// A lease holds it until then.
    InProgress(Timestamp),
}

/// Decides what a delivery with this payload may do at `now`.
///
/// Events are asked for by their id: without a payload any receipt is a mark, and an ended lease is nothing. A live
/// lease blocks every payload, since its holder may never handle the event.
pub(crate) fn judge_event(
    record: Option<&Record>,
    payload: Option<&Fingerprint>,
    now: Timestamp,
) -> EventVerdict {
    let Some((record, phase)) = record.map(|record| (record, record.phase(now))) else {
        return EventVerdict::Run;
    };
    let is_same = payload.is_none() || payload == record.fingerprint.as_ref();
    match (phase, &record.state) {
        (Phase::Gone, _) => EventVerdict::Run,
        (Phase::Live, State::Claimed { until, .. }) => EventVerdict::InProgress(*until),
        (_, _) if !is_same => EventVerdict::Conflict,
        (_, State::Completed { .. }) => EventVerdict::Marked,
        (_, State::Claimed { .. }) => EventVerdict::Run,
    }
}

/// Until when a live lease holds the key, if one does.
pub(crate) fn held_until(record: Option<&Record>, now: Timestamp) -> Option<Timestamp> {
    let record = record.filter(|record| record.phase(now) == Phase::Live)?;
    match record.state {
        State::Claimed { until, .. } => Some(until),
        State::Completed { .. } => None,
    }
}

/// Whether the holder of `token` still holds the key at `now`.
#[must_use]
pub fn holds(record: Option<&Record>, token: Token, now: Timestamp) -> bool {
    record.is_some_and(|record| match record.state {
        State::Claimed { token: current, .. } => {
            current == token && record.phase(now) == Phase::Live
        }
        State::Completed { .. } => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Retention, Span};
    use std::time::Duration;
    use uuid::Uuid;

    const RESULT: Bytes = Bytes::from_static(b"result");

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn record(fingerprint: Option<Fingerprint>, state: State) -> Record {
        Record { fingerprint, attempt: Uuid::nil(), created_at: at(0), state }
    }

    fn completed(expires_at: Option<i64>) -> State {
        State::Completed { result: RESULT, expires_at: expires_at.map(at) }
    }

    fn token() -> Token {
        Token::from_u64(7).unwrap()
    }

    /// A lease until 100, whose record is kept for 50 after it.
    fn claimed(is_ended: bool) -> State {
        let keep = Retention::For(Span::new("retention", Duration::from_millis(50)).unwrap());
        State::Claimed { token: token(), took_over: None, until: at(100), is_ended, keep }
    }

    fn kept_forever() -> State {
        let (until, keep) = (at(100), Retention::Forever);
        State::Claimed { token: token(), took_over: None, until, is_ended: false, keep }
    }

    #[test]
    fn the_table() {
        let (same, other) = (Fingerprint::of_bytes("same"), Fingerprint::of_bytes("other"));
        let result = RESULT;
        let replayed = Verdict::Replayed(&result);
        let held = Verdict::InProgress(at(100));
        let over = Verdict::TakeOver(Unfinished { token: token(), ended_at: at(100) });
        use Verdict::{Conflict, Run};
        // state, now, verdict for the same fingerprint, verdict for another
        let table = [
            (completed(Some(100)), 99, replayed, Conflict),
            (completed(Some(100)), 100, Run, Run),
            (completed(Some(100)), 101, Run, Run),
            (completed(Some(0)), 0, Run, Run),
            (completed(None), i64::MAX, replayed, Conflict),
            (completed(Some(i64::MAX)), i64::MAX - 1, replayed, Conflict),
            (claimed(false), -100, held, Conflict),
            (claimed(false), 99, held, Conflict),
            (claimed(false), 100, over, Conflict),
            (claimed(false), 149, over, Conflict),
            (claimed(false), 150, Run, Run),
            (claimed(false), 151, Run, Run),
            // One that was ended stays so, also by a clock that is set back.
            (claimed(true), -100, over, Conflict),
            (claimed(true), 99, over, Conflict),
            (claimed(true), 149, over, Conflict),
            (claimed(true), 150, Run, Run),
            (kept_forever(), 99, held, Conflict),
            (kept_forever(), i64::MAX, over, Conflict),
        ];
        for (state, now, for_same, for_other) in table {
            let stored = record(Some(same), state.clone());
            assert_eq!(judge(Some(&stored), Some(&same), at(now)), for_same, "{state:?} at {now}");
            assert_eq!(
                judge(Some(&stored), Some(&other), at(now)),
                for_other,
                "{state:?} at {now}"
            );
            assert_eq!(judge(Some(&stored), None, at(now)), for_other, "{state:?} at {now}");
            let bare = record(None, state.clone());
            assert_eq!(judge(Some(&bare), None, at(now)), for_same, "{state:?} at {now}");
            assert_eq!(judge(Some(&bare), Some(&same), at(now)), for_other, "{state:?} at {now}");
        }
        assert_eq!(judge(None, Some(&same), at(0)), Run);
        assert_eq!(judge(None, None, at(0)), Run);
    }

    #[test]
    fn the_table_of_events() {
        let (same, other) = (Fingerprint::of_bytes("same"), Fingerprint::of_bytes("other"));
        let held = EventVerdict::InProgress(at(100));
        use EventVerdict::{Conflict, Marked, Run};
        // state, now, verdict without a payload, with the same one, with another
        let table = [
            (completed(Some(100)), 99, Marked, Marked, Conflict),
            (completed(Some(100)), 100, Run, Run, Run),
            (completed(None), i64::MAX, Marked, Marked, Conflict),
            (claimed(false), 99, held, held, held),
            (claimed(false), 100, Run, Run, Conflict),
            (claimed(true), 99, Run, Run, Conflict),
            (claimed(true), 149, Run, Run, Conflict),
            (claimed(true), 150, Run, Run, Run),
        ];
        for (state, now, by_id, for_same, for_other) in table {
            let stored = record(Some(same), state.clone());
            let judged = |payload| judge_event(Some(&stored), payload, at(now));
            assert_eq!(judged(None), by_id, "{state:?} at {now}");
            assert_eq!(judged(Some(&same)), for_same, "{state:?} at {now}");
            assert_eq!(judged(Some(&other)), for_other, "{state:?} at {now}");
        }
        assert_eq!(judge_event(None, Some(&same), at(0)), Run);
    }

    #[test]
    fn only_the_current_token_holds_and_only_until_the_lease_ends() {
        let number = |token| Token::from_u64(token).unwrap();
        let held = record(None, claimed(false));
        assert!(holds(Some(&held), token(), at(99)));
        assert!(!holds(Some(&held), token(), at(100)));
        assert!(!holds(Some(&held), number(6), at(99)));
        assert!(!holds(Some(&held), number(8), at(99)));
        assert!(!holds(Some(&record(None, claimed(true))), token(), at(99)));
        assert!(!holds(Some(&record(None, completed(None))), token(), at(99)));
        assert!(!holds(None, token(), at(99)));
    }

    #[test]
    fn a_live_lease_holds_until_its_end_and_nothing_else_does() {
        let of = |state, now| held_until(Some(&record(None, state)), at(now));
        assert_eq!(of(claimed(false), 99), Some(at(100)));
        assert_eq!(of(claimed(false), 100), None);
        assert_eq!(of(claimed(true), 99), None);
        assert_eq!(of(completed(None), 99), None);
        assert_eq!(held_until(None, at(0)), None);
    }
}
