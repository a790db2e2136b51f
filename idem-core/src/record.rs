//! What a store keeps for a key.

use std::fmt;

use bytes::Bytes;
use uuid::Uuid;

use crate::{Error, ErrorKind, Fingerprint, Phase, Retention, Timestamp};

/// A fencing token: it grows with every lease of a key and never goes back, below 2^63.
///
/// Hand it to whatever the lease protects, which refuses a token smaller than one it has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// The largest token.
    pub const MAX: Self = Self(i64::MAX as u64);

    /// The token of that number; none if it is not below 2^63.
    #[must_use]
    pub const fn from_u64(token: u64) -> Option<Self> {
        if token <= Self::MAX.0 { Some(Self(token)) } else { None }
    }

    /// The token as a number.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// The token after `last`: one more, or the time in microseconds if that is more.
    ///
    /// The time keeps tokens growing if a store lost the last one that it gave out.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`](crate::ErrorKind::Damaged) if the last one is the largest: given out again, it would let
    /// whoever held it before in.
    pub fn next(last: Option<Self>, now: Timestamp) -> Result<Self, Error> {
        let by_clock = Self::at(now);
        match last {
            None => Ok(by_clock),
            Some(last) if last < Self::MAX => Ok(by_clock.max(Self(last.0 + 1))),
            Some(_) => {
                let problem = "the last token is so large that none can be larger".to_string();
                Err(Error::nothing_done(ErrorKind::Damaged { problem }))
            }
        }
    }

    /// The token that is the time in microseconds: no later one is smaller, unless the clock steps back.
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        let micros = u64::try_from(now.as_millis().saturating_mul(1000)).unwrap_or(0);
        Self(micros.min(Self::MAX.0))
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a store keeps for a key.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// Identifies the request's parameters; absent equals only absent.
    pub fingerprint: Option<Fingerprint>,
    /// Identifies the call that wrote this, so that a caller whose reply was lost finds its own.
    pub attempt: Uuid,
    /// When the run, or the claim, started.
    pub created_at: Timestamp,
    /// How far it got.
    pub state: State,
}

/// How far the action of a key got.
#[derive(Clone, PartialEq, Eq)]
pub enum State {
    /// Held for an effect outside the store.
    Claimed {
        /// The fencing token of the lease.
        token: Token,
        /// The token of the lease that this one took over, if it did.
        took_over: Option<Token>,
        /// When the lease ends; if it was ended by name, when that was.
        until: Timestamp,
        /// Whether the lease was ended by name: then it has ended, whatever a clock says.
        is_ended: bool,
        /// How long the record stays after the lease has ended.
        keep: Retention,
    },
    /// Completed with this result.
    Completed {
        /// What the effect returned.
        result: Bytes,
        /// When the receipt expires; none for never.
        expires_at: Option<Timestamp>,
    },
}

impl Record {
    /// From when on the record counts as none, and purging removes it; none for never.
    ///
    /// That of a lease counts from its end, and never from before its claim: an end that was written by a clock that had
    /// been set back must not lose the evidence when the clock is right again.
    #[must_use]
    pub fn gone_at(&self) -> Option<Timestamp> {
        match self.state {
            State::Claimed { until, keep, .. } => keep.gone_at(self.created_at, until),
            State::Completed { expires_at, .. } => expires_at,
        }
    }

    /// Whether purging at `now` removes this record.
    #[must_use]
    pub fn is_purgeable(&self, now: Timestamp) -> bool {
        self.phase(now) == Phase::Gone
    }
}

// Results and fingerprints may be secrets: neither belongs in a log.
impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("attempt", &self.attempt)
            .field("created_at", &self.created_at)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claimed { token, took_over, until, is_ended, keep } => f
                .debug_struct("Claimed")
                .field("token", token)
                .field("took_over", took_over)
                .field("until", until)
                .field("is_ended", is_ended)
                .field("keep", keep)
                .finish(),
            Self::Completed { result, expires_at } => f
                .debug_struct("Completed")
                .field("result", &format_args!("{} bytes", result.len()))
                .field("expires_at", expires_at)
                .finish(),
        }
    }
}

/// The stored proof that a key completed.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// Identifies the request's parameters.
    pub fingerprint: Option<Fingerprint>,
    /// What the effect returned; JSON if it came through [`crate::Idem::execute`].
    pub result: Bytes,
    /// When the run started.
    pub created_at: Timestamp,
    /// When the receipt expires; none for never.
    pub expires_at: Option<Timestamp>,
}

impl Receipt {
    /// The receipt in `record`, if it is a completed one that is live at `now`.
    #[must_use]
    pub fn live(record: &Record, now: Timestamp) -> Option<Self> {
        match &record.state {
            State::Completed { result, expires_at } if record.phase(now) == Phase::Live => {
                Some(Self {
                    fingerprint: record.fingerprint,
                    result: result.clone(),
                    created_at: record.created_at,
                    expires_at: *expires_at,
                })
            }
            _ => None,
        }
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipt")
            .field("result", &format_args!("{} bytes", self.result.len()))
            .field("created_at", &self.created_at)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Span;
    use std::time::Duration;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn tokens_grow_by_one_or_by_the_clock() {
        let token = |token| Token::from_u64(token);
        let next = |last, now| Token::next(last, at(now)).ok();
        assert_eq!(next(None, -5), token(0));
        assert_eq!(next(token(7), 0), token(8));
        assert_eq!(next(token(7), 1), token(1000));
        assert_eq!(next(token(5000), 1), token(5001));
        assert_eq!(next(token(1), i64::MAX), Some(Token::MAX));
        assert_eq!(next(token(Token::MAX.0 - 1), 0), Some(Token::MAX));
        let error = Token::next(Some(Token::MAX), at(i64::MAX)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Damaged { .. }), "{error:?}");
        assert_eq!(token(1 << 63), None);
        assert_eq!(token((1 << 63) - 1), Some(Token::MAX));
    }

    #[test]
    fn an_end_before_the_claim_does_not_shorten_how_long_it_is_kept() {
        let keep = Retention::For(Span::new("retention", Duration::from_millis(20)).unwrap());
        for (until, gone_at) in [(-1_000, 25), (4, 25), (5, 25), (6, 26)] {
            let (token, until, is_ended) = (Token(1), at(until), true);
            let state = State::Claimed { token, took_over: None, until, is_ended, keep };
            let (fingerprint, attempt, created_at) = (None, Uuid::nil(), at(5));
            let record = Record { fingerprint, attempt, created_at, state };
            assert_eq!(record.gone_at(), Some(at(gone_at)));
        }
    }

    #[test]
    fn a_claim_is_gone_when_it_has_been_ended_for_as_long_as_it_is_kept() {
        let span = Span::new("retention", Duration::from_millis(20)).unwrap();
        let claim = |is_ended, keep| {
            let (token, until) = (Token(1), at(10));
            let state = State::Claimed { token, took_over: None, until, is_ended, keep };
            Record { fingerprint: None, attempt: Uuid::nil(), created_at: at(0), state }
        };
        for is_ended in [false, true] {
            let record = claim(is_ended, Retention::For(span));
            assert_eq!(record.gone_at(), Some(at(30)));
            assert!(!record.is_purgeable(at(29)));
            assert!(record.is_purgeable(at(30)));
            let record = claim(is_ended, Retention::Forever);
            assert_eq!(record.gone_at(), None);
            assert!(!record.is_purgeable(at(i64::MAX)));
        }
    }

    #[test]
    fn debug_output_holds_no_result() {
        let record = Record {
            fingerprint: None,
            attempt: Uuid::nil(),
            created_at: at(0),
            state: State::Completed { result: Bytes::from_static(b"secret"), expires_at: None },
        };
        let receipt = Receipt::live(&record, at(0)).unwrap();
        assert!(!format!("{record:?}{receipt:?}").contains("secret"));
    }
}
