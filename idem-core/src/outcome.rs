//! What a caller is told.

use crate::{Committed, Error, ErrorKind, Fingerprint, State, Timestamp, Verdict, judge};
use bytes::Bytes;

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
        /// When the lease ends, unless it is renewed.
        until: Timestamp,
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
            Self::InProgress { until } => Outcome::InProgress { until },
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
            Verdict::InProgress(until) => Ok(Self::InProgress { until }),
            Verdict::Run => Err(Error::nothing_done(ErrorKind::Contract(
                "a step that proceeds on the record must run",
            ))),
        }
    }
}
