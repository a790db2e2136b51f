//! What a caller is told.

use std::time::Duration;

use bytes::Bytes;

use crate::{Committed, Error, ErrorKind, Fingerprint, State, Timestamp, Verdict, judge};

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a conflict and a key in progress are outcomes, not errors"]
pub enum Outcome<T> {
    /// The effect ran, and it and its receipt are committed.
    Created(T),
    /// The key was completed before; this is the first result, and nothing ran.
    Replayed(T),
    /// The key is in use for a request with other parameters; nothing ran.
    Conflict,
    /// The key is held by a live lease; nothing ran.
    InProgress {
        /// When the lease ends, unless it is renewed; by the store's clock.
        until: Timestamp,
        /// How long to wait before asking again: until the lease ends, if nothing happens before.
        retry_after: Duration,
    },
}

impl<T> Outcome<T> {
    /// The result, first or replayed.
    pub fn result(self) -> Option<T> {
        match self {
            Self::Created(result) | Self::Replayed(result) => Some(result),
            Self::Conflict | Self::InProgress { .. } => None,
        }
    }

    /// The same outcome with another result.
    ///
    /// # Errors
    /// What `map` returns.
    pub fn try_map<U, E>(self, map: impl FnOnce(T) -> Result<U, E>) -> Result<Outcome<U>, E> {
        Ok(match self {
            Self::Created(result) => Outcome::Created(map(result)?),
            Self::Replayed(result) => Outcome::Replayed(map(result)?),
            Self::Conflict => Outcome::Conflict,
            Self::InProgress { until, retry_after } => Outcome::InProgress { until, retry_after },
        })
    }
}

impl Outcome<Bytes> {
    /// What a caller with this fingerprint is told of these facts.
    ///
    /// # Errors
    /// [`ErrorKind::Contract`] if the facts cannot be: the store is at fault.
    pub fn of(committed: &Committed, fingerprint: Option<&Fingerprint>) -> Result<Self, Error> {
        if committed.ran {
            return match committed.after.as_ref().map(|record| &record.state) {
                Some(State::Completed { result, .. }) => Ok(Self::Created(result.clone())),
                _ => Err(Error::nothing_done(ErrorKind::Contract(
                    "the record after a completion must be the completed one",
                ))),
            };
        }
        match judge(committed.before.as_ref(), fingerprint, committed.now) {
            Verdict::Replayed(result) => Ok(Self::Replayed(result.clone())),
            Verdict::Conflict => Ok(Self::Conflict),
            Verdict::InProgress(until) => {
                let retry_after = committed.retry_after(until);
                Ok(Self::InProgress { until, retry_after })
            }
            Verdict::Run | Verdict::TakeOver(_) => Err(Error::nothing_done(ErrorKind::Contract(
                "a step that proceeds on the record must run",
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Record, Retention, Token};
    use uuid::Uuid;

    #[test]
    fn a_retry_is_due_between_now_and_the_length_of_the_lease() {
        let at = Timestamp::from_millis;
        let claimed = |until| {
            let state = State::Claimed {
                token: Token::MAX,
                took_over: None,
                until: at(until),
                is_ended: false,
                keep: Retention::Forever,
            };
            Record { fingerprint: None, attempt: Uuid::nil(), created_at: at(1_000), state }
        };
        // The last ones were renewed when the clock had stepped back to before the claim.
        for (until, now, expected) in [
            (1_030, 1_000, 30),
            (1_030, 1_029, 1),
            (1_030, 990, 40),
            (1_030, 29, 1_000),
            (1_030, i64::MIN, 1_000),
            (6_000, 0, 5_000),
            (40, 10, 30),
            (1_001, -5_000, 1_000),
        ] {
            let committed = Committed::kept(Some(claimed(until)), at(now));
            let (until, retry_after) = (at(until), Duration::from_millis(expected));
            let outcome = Outcome::of(&committed, None).unwrap();
            assert_eq!(outcome, Outcome::InProgress { until, retry_after }, "at {now}");
        }
    }
}
