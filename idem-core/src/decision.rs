//! The one decision: what a call may do, given what is recorded.

use bytes::Bytes;

use crate::{Fingerprint, Record, State, Timestamp, Token};

/// What a call that wants a key may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<'r> {
    /// Run: there is no live record.
    Run,
    /// Take this result, and do not run.
    Replayed(&'r Bytes),
    /// The key is in use for other parameters.
    Conflict,
    /// The key is held until then.
    InProgress(Timestamp),
}

/// Decides what a call with this fingerprint may do at `now`.
///
/// Every path asks this function. At exactly `expires_at`, and at exactly the end of a lease, the key is
/// free; until then another fingerprint is a conflict, and the conflict wins over the wait.
#[must_use]
pub fn judge<'r>(
    record: Option<&'r Record>,
    fingerprint: Option<&Fingerprint>,
    now: Timestamp,
) -> Verdict<'r> {
    let Some(record) = record.filter(|record| is_live(record, now)) else {
        return Verdict::Run;
    };
    if record.fingerprint.as_ref() != fingerprint {
        return Verdict::Conflict;
    }
    match &record.state {
        State::Completed { result, .. } => Verdict::Replayed(result),
        State::Claimed { until, .. } => Verdict::InProgress(*until),
    }
}

/// Whether a record still stands in the way of a run at `now`.
#[must_use]
pub fn is_live(record: &Record, now: Timestamp) -> bool {
    match record.state {
        State::Completed { expires_at, .. } => expires_at.is_none_or(|expires_at| now < expires_at),
        State::Claimed { until, .. } => now < until,
    }
}

/// Whether the holder of `token` still holds the key at `now`.
#[must_use]
pub fn holds(record: Option<&Record>, token: Token, now: Timestamp) -> bool {
    record.is_some_and(|record| match record.state {
        State::Claimed { token: current, until, .. } => current == token && now < until,
        State::Completed { .. } => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
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

    fn claimed(until: i64) -> State {
        let token = Token::from_u64(7).unwrap();
        State::Claimed { token, until: at(until), keep_until: None }
    }

    #[test]
    fn the_table() {
        let (same, other) = (Fingerprint::of_bytes("same"), Fingerprint::of_bytes("other"));
        let result = RESULT;
        let replayed = Verdict::Replayed(&result);
        let held = Verdict::InProgress(at(100));
        use Verdict::{Conflict, Run};
        // state, now, verdict for the same fingerprint, verdict for another
        let table = [
            (completed(Some(100)), 99, replayed, Conflict),
            (completed(Some(100)), 100, Run, Run),
            (completed(Some(100)), 101, Run, Run),
            (completed(Some(0)), 0, Run, Run),
            (completed(None), i64::MAX, replayed, Conflict),
            (completed(Some(i64::MAX)), i64::MAX - 1, replayed, Conflict),
            (claimed(100), 99, held, Conflict),
            (claimed(100), 100, Run, Run),
            (claimed(100), 101, Run, Run),
            (claimed(100), -100, held, Conflict),
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
    fn only_the_current_token_holds_and_only_until_the_lease_ends() {
        let token = |token| Token::from_u64(token).unwrap();
        let held = record(None, claimed(100));
        assert!(holds(Some(&held), token(7), at(99)));
        assert!(!holds(Some(&held), token(7), at(100)));
        assert!(!holds(Some(&held), token(6), at(99)));
        assert!(!holds(Some(&held), token(8), at(99)));
        assert!(!holds(Some(&record(None, completed(None))), token(7), at(99)));
        assert!(!holds(None, token(7), at(99)));
    }
}
