//! The steps of the protocol, written once for every store.

use std::{fmt, marker::PhantomData};

use bytes::Bytes;
use uuid::Uuid;

use crate::{
    Change, Error, ErrorKind, Fingerprint, Record, Request, Retention, Step, Timestamp,
    decision::{EventVerdict, judge, judge_event},
};

/// Runs an effect and completes the key with its result: what [`Idem::execute_bytes`] sends to its store.
///
/// For stores that offer to run a request in a transaction which the caller already has.
///
/// [`Idem::execute_bytes`]: crate::Idem::execute_bytes
pub struct Execute<Tx: ?Sized, F> {
    wanted: Wanted,
    result_limit: usize,
    effect: F,
    transaction: PhantomData<fn(&mut Tx)>,
}

impl<Tx: ?Sized, F> fmt::Debug for Execute<Tx, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Execute").field("result_limit", &self.result_limit).finish_non_exhaustive()
    }
}

impl<Tx: ?Sized, F> Execute<Tx, F>
where
    F: FnMut(&mut Tx) -> Result<Bytes, Error>,
{
    /// The step of `request`, whose result may be `result_limit` bytes long.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidDuration`] if the request's retention is zero or too long.
    pub fn new(request: &Request, result_limit: usize, effect: F) -> Result<Self, Error> {
        Self::asked(Asker::Request, request, result_limit, effect)
    }

    /// The same step of a handler, whose events are asked for by their ids.
    ///
    /// # Errors
    /// As [`Execute::new`].
    pub(crate) fn on_event(request: &Request, effect: F) -> Result<Self, Error> {
        Self::asked(Asker::Event, request, 0, effect)
    }

    fn asked(
        asker: Asker,
        request: &Request,
        result_limit: usize,
        effect: F,
    ) -> Result<Self, Error> {
        let wanted = Wanted::by(asker, request)?;
        Ok(Self { wanted, result_limit, effect, transaction: PhantomData })
    }
}

impl<Tx: ?Sized, F> Step<Tx> for Execute<Tx, F>
where
    F: FnMut(&mut Tx) -> Result<Bytes, Error>,
{
    fn proceeds(&self, record: Option<&Record>, now: Timestamp) -> bool {
        self.wanted.is_free(record, now)
    }

    fn run(&mut self, tx: &mut Tx, _: Option<&Record>, now: Timestamp) -> Result<Change, Error> {
        // What cannot be stamped must not run.
        self.wanted.retention.expires_at(now)?;
        let result = within(self.result_limit, (self.effect)(tx)?)?;
        Ok(self.wanted.complete(result))
    }
}

/// The result, if it is no longer than `limit` bytes.
pub(crate) fn within(limit: usize, result: Bytes) -> Result<Bytes, Error> {
    let length = result.len();
    if length > limit {
        return Err(Error::nothing_done(ErrorKind::ResultTooLarge { length, limit }));
    }
    Ok(result)
}

/// Completes an event's key without an effect. What was done is marked, whatever the payload of an ended lease was.
pub(crate) struct Mark(Wanted);

impl Mark {
    pub(crate) fn new(request: &Request) -> Result<Self, Error> {
        Wanted::by(Asker::Event, request).map(Self)
    }
}

impl<Tx: ?Sized> Step<Tx> for Mark {
    fn proceeds(&self, record: Option<&Record>, now: Timestamp) -> bool {
        judge_event(record, None, now) == EventVerdict::Run
    }

    fn effectless(&self) -> bool {
        true
    }

    fn run(&mut self, _: &mut Tx, _: Option<&Record>, _: Timestamp) -> Result<Change, Error> {
        Ok(self.0.complete(Bytes::new()))
    }
}

/// Whose table decides.
#[derive(Clone, Copy)]
enum Asker {
    Request,
    Event,
}

/// What a step that wants a free key brings.
struct Wanted {
    asker: Asker,
    fingerprint: Option<Fingerprint>,
    retention: Retention,
    // One for the call, however often the step runs; made when first needed, since a replay needs none.
    attempt: Option<Uuid>,
}

impl Wanted {
    fn by(asker: Asker, request: &Request) -> Result<Self, Error> {
        let (fingerprint, retention) = (request.fingerprint_value().copied(), request.retention()?);
        Ok(Self { asker, fingerprint, retention, attempt: None })
    }

    fn is_free(&self, record: Option<&Record>, now: Timestamp) -> bool {
        let fingerprint = self.fingerprint.as_ref();
        match self.asker {
            Asker::Request => judge(record, fingerprint, now).runs(),
            Asker::Event => judge_event(record, fingerprint, now) == EventVerdict::Run,
        }
    }

    fn complete(&mut self, result: Bytes) -> Change {
        let attempt = *self.attempt.get_or_insert_with(Uuid::new_v4);
        let (fingerprint, retention) = (self.fingerprint, self.retention);
        Change::Complete { fingerprint, attempt, result, retention }
    }
}

/// Reads, and never runs.
pub(crate) struct Read;

impl<Tx: ?Sized> Step<Tx> for Read {
    fn proceeds(&self, _: Option<&Record>, _: Timestamp) -> bool {
        false
    }

    fn run(&mut self, _: &mut Tx, _: Option<&Record>, _: Timestamp) -> Result<Change, Error> {
        Ok(Change::Keep)
    }
}
