//! The unit that a store runs: one step on one key in one transaction.

use std::{
    any::Any,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use bytes::Bytes;
use uuid::Uuid;

use crate::{Error, ErrorKind, Fingerprint, Record, Retention, Span, State, Timestamp, Token};

/// One step of the protocol on one key.
///
/// The steps are core's; a store runs them and knows nothing of what they mean.
pub trait Step<Tx: ?Sized> {
    /// Whether there is anything to run, given the record. Pure; of the time it depends only on the record's
    /// [phase](Record::phase).
    ///
    /// A store may ask this on a cheap snapshot: if the answer is no, there is nothing to write, and that
    /// record and time are the step's outcome.
    fn proceeds(&self, record: Option<&Record>, now: Timestamp) -> bool;

    /// Whether the step never touches its transaction, and asks for the same change whenever it finds the same record
    /// in the same phase, so that a store may skip reading and try on the record that it expects.
    fn effectless(&self) -> bool {
        false
    }

    /// The record that a step which is [`effectless`](Step::effectless) most likely finds: none for one
    /// that wants a free key, its own claim for one of a lease's holder. A hint: a store that reads first need
    /// not ask.
    fn expected(&self) -> Option<&Record> {
        None
    }

    /// Runs inside the transaction, on the record that [`Step::proceeds`] accepted.
    ///
    /// It may run again if the store has to retry; only the last run counts. Stores call it through
    /// [`run_step`].
    ///
    /// # Errors
    /// Then nothing of the step may be kept.
    fn run(
        &mut self,
        tx: &mut Tx,
        record: Option<&Record>,
        now: Timestamp,
    ) -> Result<Change, Error>;
}

/// A step on its way to a store, which may run it on another thread.
pub type BoxStep<Tx> = Box<dyn Step<Tx> + Send>;

/// Runs a step and turns its panic into an error, so that no store has to.
///
/// # Errors
/// What the step returned, or [`ErrorKind::Panicked`].
pub fn run_step<Tx: ?Sized>(
    step: &mut dyn Step<Tx>,
    tx: &mut Tx,
    record: Option<&Record>,
    now: Timestamp,
) -> Result<Change, Error> {
    // The transaction is rolled back on a panic. The step may run again, as after an error; what it keeps
    // for itself is then as the panic left it, which an effect that touches nothing else does not mind.
    let run = AssertUnwindSafe(|| step.run(tx, record, now));
    catch_unwind(run).unwrap_or_else(|payload| {
        Err(Error::nothing_done(ErrorKind::Panicked(panic_message(payload))))
    })
}

pub(crate) fn panic_message(payload: Box<dyn Any + Send>) -> String {
    let payload = match payload.downcast::<&str>() {
        Ok(message) => return (*message).to_string(),
        Err(payload) => payload,
    };
    match payload.downcast::<String>() {
        Ok(message) => *message,
        Err(payload) => {
            // Its destructor is the effect's code and may panic in turn.
            std::mem::forget(payload);
            "no message".to_string()
        }
    }
}

/// What a step asks its store to write. Times and tokens are filled in by [`Change::stamp`].
#[derive(Clone, PartialEq, Eq)]
pub enum Change {
    /// Leave the record as it is.
    Keep,
    /// Remove the record.
    Remove,
    /// Hold the key.
    Claim {
        /// Identifies the request's parameters.
        fingerprint: Option<Fingerprint>,
        /// Identifies the call.
        attempt: Uuid,
        /// The token of the lease that this one takes over, if it does.
        took_over: Option<Token>,
        /// How long, from now.
        lease: Span,
        /// How long the record stays, from the lease's end, if that comes without an answer.
        retention: Retention,
    },
    /// Move the end of the lease.
    Extend {
        /// How far, from now.
        lease: Span,
    },
    /// End the lease now, and keep its record: whoever claims the key next is told that it takes over.
    End,
    /// Complete the key.
    Complete {
        /// Identifies the request's parameters.
        fingerprint: Option<Fingerprint>,
        /// Identifies the call.
        attempt: Uuid,
        /// What every later caller gets.
        result: Bytes,
        /// How long the receipt lives, from now.
        retention: Retention,
    },
}

// A result may be a secret: not in a log.
impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Keep => "Keep",
            Self::Remove => "Remove",
            Self::Claim { .. } => "Claim",
            Self::Extend { .. } => "Extend",
            Self::End => "End",
            Self::Complete { .. } => "Complete",
        })
    }
}

impl Change {
    /// The record after this change. Pure, but for `token`, which a store allocates as part of its commit.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidDuration`] if an end is beyond what a timestamp can hold.
    pub fn stamp(
        self,
        before: Option<&Record>,
        now: Timestamp,
        token: impl FnOnce() -> Result<Token, Error>,
    ) -> Result<Option<Record>, Error> {
        Ok(match self {
            Self::Keep => before.cloned(),
            Self::Remove => None,
            Self::Claim { fingerprint, attempt, took_over, lease, retention } => {
                let until = ends_at(lease, retention, now)?;
                let (token, is_ended, keep) = (token()?, false, retention);
                let state = State::Claimed { token, took_over, until, is_ended, keep };
                Some(Record { fingerprint, attempt, created_at: now, state })
            }
            Self::Extend { lease } => {
                let mut record = before.cloned();
                if let Some(State::Claimed { until, keep, .. }) = claim_in(&mut record) {
                    *until = ends_at(lease, *keep, now)?;
                }
                record
            }
            Self::End => {
                let mut record = before.cloned();
                if let Some(State::Claimed { until, is_ended, .. }) = claim_in(&mut record) {
                    (*until, *is_ended) = (now, true);
                }
                record
            }
            Self::Complete { fingerprint, attempt, result, retention } => {
                let state = State::Completed { result, expires_at: retention.expires_at(now)? };
                Some(Record { fingerprint, attempt, created_at: now, state })
            }
        })
    }
}

fn claim_in(record: &mut Option<Record>) -> Option<&mut State> {
    record.as_mut().map(|record| &mut record.state)
}

/// When a lease ends that begins now, if its record can be kept after that for as long as it must.
fn ends_at(lease: Span, retention: Retention, now: Timestamp) -> Result<Timestamp, Error> {
    let until = lease.ends_at("lease", now)?;
    retention.expires_at(until)?;
    Ok(until)
}

/// What a store reports of a step: facts, no protocol.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Committed {
    /// Whether the step ran, and what it asked for is committed.
    pub ran: bool,
    /// The record that the step saw.
    pub before: Option<Record>,
    /// The record afterwards.
    pub after: Option<Record>,
    /// The time that decided.
    pub now: Timestamp,
}

impl Committed {
    /// The report of a step that ran on the record `before` and left the record `after`.
    #[must_use]
    pub fn ran(before: Option<Record>, after: Option<Record>, now: Timestamp) -> Self {
        Self { ran: true, before, after, now }
    }

    /// The report of a step that did not proceed on this record.
    #[must_use]
    pub fn kept(record: Option<Record>, now: Timestamp) -> Self {
        Self { ran: false, before: record.clone(), after: record, now }
    }

    /// The error of a call that the lease which was found, until then, stands in the way of.
    pub(crate) fn in_progress(&self, until: Timestamp) -> Error {
        let retry_after = self.retry_after(until);
        Error::nothing_done(ErrorKind::InProgress { until, retry_after })
    }

    /// How long until the live lease that was found ends, at `until`; by a clock that stepped back no longer than from its
    /// claim to its end, or than a second: renewed by such a clock, it may end soon after its claim and be long.
    #[must_use]
    pub fn retry_after(&self, until: Timestamp) -> Duration {
        let claimed = self.before.as_ref().map_or(self.now, |found| found.created_at);
        until.since(self.now).min(until.since(claimed).max(Duration::from_secs(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn span(millis: u64) -> Span {
        Span::new("lease", Duration::from_millis(millis)).unwrap()
    }

    const KEPT: Retention = Retention::DEFAULT;

    fn claimed(token: Token, until: i64, is_ended: bool) -> State {
        let took_over = Token::from_u64(2);
        State::Claimed { token, took_over, until: at(until), is_ended, keep: KEPT }
    }

    fn no_token() -> Result<Token, Error> {
        panic!("only a claim takes a token")
    }

    fn claim() -> Change {
        Change::Claim {
            fingerprint: Some(Fingerprint::of_bytes("a")),
            attempt: Uuid::from_u128(1),
            took_over: Token::from_u64(2),
            lease: span(10),
            retention: KEPT,
        }
    }

    fn complete(retention: Retention) -> Change {
        Change::Complete {
            fingerprint: Some(Fingerprint::of_bytes("a")),
            attempt: Uuid::from_u128(2),
            result: Bytes::from_static(b"r"),
            retention,
        }
    }

    #[test]
    fn a_claim_gets_its_token_and_its_end() {
        let token = Token::from_u64(3).unwrap();
        let record = claim().stamp(None, at(5), || Ok(token)).unwrap().unwrap();
        assert_eq!(record.created_at, at(5));
        assert_eq!(record.attempt, Uuid::from_u128(1));
        assert_eq!(record.fingerprint, Some(Fingerprint::of_bytes("a")));
        assert_eq!(record.state, claimed(token, 15, false));
    }

    #[test]
    fn a_completion_replaces_the_record_and_counts_from_now() {
        let before = claim().stamp(None, at(5), || Ok(Token::MAX)).unwrap();
        let change = complete(Retention::For(span(60)));
        let record = change.stamp(before.as_ref(), at(40), no_token).unwrap().unwrap();
        assert_eq!((record.created_at, record.attempt), (at(40), Uuid::from_u128(2)));
        let (result, expires_at) = (Bytes::from_static(b"r"), Some(at(100)));
        assert_eq!(record.state, State::Completed { result, expires_at });
        let record = complete(Retention::Forever).stamp(None, at(40), no_token).unwrap().unwrap();
        assert_eq!(record.gone_at(), None);
    }

    #[test]
    fn extending_moves_only_the_leases_end() {
        let before = claim().stamp(None, at(5), || Ok(Token::MAX)).unwrap();
        let change = Change::Extend { lease: span(50) };
        let after = change.stamp(before.as_ref(), at(7), no_token).unwrap().unwrap();
        assert_eq!(after.state, claimed(Token::MAX, 57, false));
        assert_eq!(after.created_at, at(5));
    }

    #[test]
    fn a_lease_that_is_ended_ended_now_and_keeps_the_rest() {
        let before = claim().stamp(None, at(5), || Ok(Token::MAX)).unwrap();
        let after = Change::End.stamp(before.as_ref(), at(7), no_token).unwrap().unwrap();
        assert_eq!(after.state, claimed(Token::MAX, 7, true));
        assert_eq!(after.created_at, at(5));
        let completed = complete(Retention::Forever).stamp(None, at(5), no_token).unwrap();
        assert_eq!(Change::End.stamp(completed.as_ref(), at(7), no_token).unwrap(), completed);
    }

    #[test]
    fn keeping_and_removing() {
        let before = claim().stamp(None, at(5), || Ok(Token::MAX)).unwrap();
        assert_eq!(Change::Keep.stamp(before.as_ref(), at(9), no_token).unwrap(), before);
        assert_eq!(Change::Remove.stamp(before.as_ref(), at(9), no_token).unwrap(), None);
    }

    #[test]
    fn an_end_beyond_time_is_refused_without_a_token() {
        assert!(claim().stamp(None, at(i64::MAX), no_token).is_err());
        // The lease's end could be written, and that of its record could not.
        let late = at(i64::MAX - 10);
        assert!(claim().stamp(None, late, no_token).is_err());
        let before = claim().stamp(None, at(5), || Ok(Token::MAX)).unwrap();
        let extension = Change::Extend { lease: span(10) };
        assert!(extension.stamp(before.as_ref(), late, no_token).is_err());
        let change = complete(Retention::For(span(1)));
        assert!(change.stamp(None, at(i64::MAX), no_token).is_err());
    }

    struct Panics;

    impl Step<()> for Panics {
        fn proceeds(&self, _: Option<&Record>, _: Timestamp) -> bool {
            true
        }

        fn run(&mut self, _: &mut (), _: Option<&Record>, _: Timestamp) -> Result<Change, Error> {
            panic!("number {}", 7)
        }
    }

    #[test]
    fn a_panic_becomes_an_error_with_its_message() {
        let result = run_step(&mut Panics, &mut (), None, at(0));
        let Err(error) = result else { panic!("the step panicked") };
        assert!(matches!(error.kind(), ErrorKind::Panicked(message) if message == "number 7"));
    }
}
