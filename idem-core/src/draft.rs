//! A record that a server is to stamp, when it commits.

use std::fmt;

use bytes::Bytes;

use crate::{
    Change, Error, Record, Retention, Span, State, Timestamp, Token,
    codec::{CLAIMED, COMPLETED, ENDED, Rest, Stamp, VERSION},
};

/// Enough for a stamp, unless its times are far apart.
const STAMP: usize = 96;

/// A record that a server stamps when it commits, for a store that changes a record without reading the time
/// or the last token first.
///
/// The bytes of the record are `{version} {created_at} {created_at} {life} {life} {token} {token} {rest}`, with
/// `-` for what is absent; the life is how many milliseconds after `created_at` it ends. They are the
/// [`Record::to_bytes`] of what [`Change::stamp`] makes at the server's time and with its token.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Draft {
    /// When the run or the claim starts.
    pub created_at: Moment,
    /// When the receipt expires, or the lease ends.
    pub ends_at: Moment,
    /// How long the record of a lease stays after its end; that of a receipt goes at its end.
    pub keep: Retention,
    /// The token of a lease.
    pub token: DraftToken,
    /// What follows the stamp.
    pub rest: Bytes,
}

// A result may be a secret: not in a log.
impl fmt::Debug for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Draft")
            .field("created_at", &self.created_at)
            .field("ends_at", &self.ends_at)
            .field("keep", &self.keep)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}

/// A time of a [`Draft`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Never.
    Never,
    /// That instant.
    At(Timestamp),
    /// The instant of the commit.
    Now,
    /// So long after the instant of the commit.
    In(Span),
}

/// The token of a [`Draft`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DraftToken {
    /// The record is no lease.
    None,
    /// The lease keeps its token.
    Kept(Token),
    /// The lease gets the next one.
    Next,
}

impl Moment {
    /// The instant that this is if the commit is at `now`; none for never, and for what overflows.
    fn at(self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Never => None,
            Self::At(time) => Some(time),
            Self::Now => Some(now),
            Self::In(span) => now.after(span),
        }
    }
}

impl Draft {
    /// The version of the form.
    pub const VERSION: i64 = VERSION;

    /// The bytes of the record, if nothing is left to stamp.
    #[must_use]
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let Moment::At(created_at) = self.created_at else { return None };
        let ends_at = match self.ends_at {
            Moment::Never => None,
            Moment::At(time) => Some(time),
            Moment::Now | Moment::In(_) => return None,
        };
        let token = match self.token {
            DraftToken::None => None,
            DraftToken::Kept(token) => Some(token),
            DraftToken::Next => return None,
        };
        let mut bytes =
            Stamp { created_at, ends_at, token }.to_bytes(VERSION, STAMP + self.rest.len());
        bytes.extend_from_slice(&self.rest);
        Some(bytes)
    }

    /// When the record counts as none if it is committed at `now`; none for never.
    #[must_use]
    pub fn gone_at(&self, now: Timestamp) -> Option<Timestamp> {
        let ends_at = self.ends_at.at(now)?;
        match self.token {
            DraftToken::None => Some(ends_at),
            DraftToken::Kept(_) | DraftToken::Next => {
                self.keep.gone_at(self.created_at.at(now)?, ends_at)
            }
        }
    }

    fn of(record: &Record) -> Self {
        Self::with(record, &Rest::of(record))
    }

    fn with(record: &Record, rest: &Rest<'_>) -> Self {
        let (ends_at, token) = match record.state {
            State::Claimed { token, until, .. } => (Moment::At(until), DraftToken::Kept(token)),
            State::Completed { expires_at, .. } => {
                (expires_at.map_or(Moment::Never, Moment::At), DraftToken::None)
            }
        };
        let created_at = Moment::At(record.created_at);
        Self { created_at, ends_at, keep: rest.keep, token, rest: rest.to_bytes().into() }
    }
}

impl Change {
    /// As [`Change::draft`], with its times as of `now`: only a token is left to the server.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidDuration`](crate::ErrorKind::InvalidDuration) if an end is beyond what a timestamp can hold.
    pub fn draft_at(
        &self,
        before: Option<&Record>,
        now: Timestamp,
    ) -> Result<Option<Draft>, Error> {
        // Refuses what cannot be stamped.
        self.clone().stamp(before, now, || Ok(Token::MAX))?;
        let at = |moment: Moment| moment.at(now).map_or(Moment::Never, Moment::At);
        Ok(self.draft(before).map(|draft| Draft {
            created_at: at(draft.created_at),
            ends_at: at(draft.ends_at),
            ..draft
        }))
    }

    /// The record after this change, for a server to stamp; none if there is none.
    #[must_use]
    pub fn draft(&self, before: Option<&Record>) -> Option<Draft> {
        let new = |ends_at, token, rest: Rest<'_>| Draft {
            created_at: Moment::Now,
            ends_at,
            keep: rest.keep,
            token,
            rest: rest.to_bytes().into(),
        };
        match self {
            Self::Remove => None,
            Self::Keep => before.map(Draft::of),
            Self::Extend { lease } => before.map(|record| {
                let mut draft = Draft::of(record);
                if matches!(record.state, State::Claimed { .. }) {
                    draft.ends_at = Moment::In(*lease);
                }
                draft
            }),
            Self::End => before.map(|record| match record.state {
                State::Claimed { .. } => {
                    let ended = Rest { state: ENDED, ..Rest::of(record) };
                    Draft { ends_at: Moment::Now, ..Draft::with(record, &ended) }
                }
                State::Completed { .. } => Draft::of(record),
            }),
            Self::Claim { fingerprint, attempt, took_over, lease, retention } => {
                let rest = Rest {
                    keep: *retention,
                    state: CLAIMED,
                    attempt: *attempt,
                    fingerprint: *fingerprint,
                    took_over: *took_over,
                    result: &[],
                };
                Some(new(Moment::In(*lease), DraftToken::Next, rest))
            }
            Self::Complete { fingerprint, attempt, result, retention } => {
                let ends_at = match *retention {
                    Retention::For(span) => Moment::In(span),
                    Retention::Forever => Moment::Never,
                };
                let rest = Rest {
                    keep: Retention::Forever,
                    state: COMPLETED,
                    attempt: *attempt,
                    fingerprint: *fingerprint,
                    took_over: None,
                    result,
                };
                Some(new(ends_at, DraftToken::None, rest))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fingerprint;
    use uuid::Uuid;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn token(token: u64) -> Token {
        Token::from_u64(token).unwrap()
    }

    fn record(fingerprint: Option<Fingerprint>, state: State) -> Record {
        Record {
            fingerprint,
            attempt: Uuid::from_u128(2),
            created_at: at(1_700_000_000_123),
            state,
        }
    }

    /// Stamps a draft as a server would.
    fn stamped(draft: &Draft, now: i64, next: u64) -> Vec<u8> {
        let time = |moment| match moment {
            Moment::Never => None,
            Moment::At(time) => Some(time.as_millis()),
            Moment::Now => Some(now),
            Moment::In(span) => Some(now + span.as_millis()),
        };
        let token = match draft.token {
            DraftToken::None => "-".to_string(),
            DraftToken::Kept(token) => token.to_string(),
            DraftToken::Next => next.to_string(),
        };
        let start = time(draft.created_at).unwrap();
        let life = time(draft.ends_at).map_or("-".to_string(), |end| (end - start).to_string());
        let stamp = format!("{start} {start} {life} {life} {token} {token}");
        [format!("{VERSION} {stamp} ").as_bytes(), &draft.rest].concat()
    }

    #[test]
    fn a_stamped_draft_is_the_stamped_change() {
        let span = |millis| Span::new("lease", std::time::Duration::from_millis(millis)).unwrap();
        let (fingerprint, attempt) = (Some(Fingerprint::of_bytes("p")), Uuid::from_u128(3));
        let claim = |took_over, retention| Change::Claim {
            fingerprint,
            attempt,
            took_over,
            lease: span(10),
            retention,
        };
        let complete = |retention| {
            let result = Bytes::from_static(b"\x00\n\xff");
            Change::Complete { fingerprint, attempt, result, retention }
        };
        let changes = [
            Change::Keep,
            Change::Remove,
            claim(None, Retention::For(span(70))),
            claim(Some(token(4)), Retention::Forever),
            Change::Extend { lease: span(500) },
            Change::End,
            complete(Retention::For(span(1))),
            complete(Retention::Forever),
        ];
        let claimed = |took_over, keep| {
            let (token, until, is_ended) = (token(4), at(9), false);
            record(fingerprint, State::Claimed { token, took_over, until, is_ended, keep })
        };
        let befores = [
            None,
            Some(record(
                None,
                State::Completed { result: Bytes::from_static(b"old"), expires_at: Some(at(5)) },
            )),
            Some(claimed(None, Retention::Forever)),
            Some(claimed(Some(token(3)), Retention::For(span(30)))),
        ];
        for (change, before) in
            changes.iter().flat_map(|change| befores.iter().map(move |before| (change, before)))
        {
            let after = change.clone().stamp(before.as_ref(), at(7), || Ok(token(5))).unwrap();
            let drafts =
                [change.draft(before.as_ref()), change.draft_at(before.as_ref(), at(7)).unwrap()];
            // What is stamped already does not go by the server's time.
            for (draft, now) in drafts.into_iter().zip([7, 8]) {
                let gone_at = draft.as_ref().and_then(|draft| draft.gone_at(at(now)));
                assert_eq!(gone_at, after.as_ref().and_then(Record::gone_at), "{change:?}");
                let ready = draft.as_ref().and_then(Draft::to_bytes);
                let needs_token = matches!(change, Change::Claim { .. });
                let must_be_ready = now == 8 && !needs_token && after.is_some();
                assert!(ready.is_some() || !must_be_ready, "{change:?} on {before:?}");
                let bytes = draft.map(|draft| stamped(&draft, now, 5));
                assert!(ready.is_none() || ready == bytes, "{change:?} on {before:?}");
                let expected = after.as_ref().map(Record::to_bytes);
                assert_eq!(bytes, expected, "{change:?} on {before:?}");
            }
        }
    }
}
