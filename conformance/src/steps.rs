//! Steps of the kit's own: what a store owes to changes that no front asks for.

use std::time::Duration;

use idem_core::{
    Change, Committed, Error, Fingerprint, Idem, Key, Record, Request, Span, State, Step, Store,
    Timestamp, Token, Verdict, holds, judge,
};
use uuid::Uuid;

/// How long [`claim`] holds a key.
pub(crate) const LEASE: i64 = 30_000;

/// A lease so long.
pub(crate) fn lease(millis: i64) -> Span {
    let millis = u64::try_from(millis).expect("a lease is not negative");
    Span::new("lease", Duration::from_millis(millis)).expect("a good lease")
}

/// The change that claims a request's key for [`LEASE`] milliseconds, by an attempt of its own.
pub(crate) fn claim_of(request: &Request) -> Change {
    Change::Claim {
        fingerprint: request.fingerprint_value().copied(),
        attempt: Uuid::new_v4(),
        took_over: None,
        lease: lease(LEASE),
        retention: request.retention().expect("a good retention"),
    }
}

/// Asks for a claim of a request's key, as [`judge`] allows it; if it runs, it must bear the id of the attempt.
pub(crate) async fn claim<S: Store>(idem: &Idem<S>, request: &Request) -> Committed {
    let wanted = Some(request.fingerprint_value().copied());
    let change = claim_of(request);
    let Change::Claim { attempt, .. } = change else { unreachable!("it is a claim") };
    let step = Ask { wanted, change };
    let claimed = idem.store().transact(request.key(), Box::new(step)).await;
    let claimed = claimed.expect("a claim is answered");
    let left = claimed.after.as_ref().map(|record| record.attempt);
    assert!(
        !claimed.ran || left == Some(attempt),
        "a claim must bear its attempt's id: {claimed:?}"
    );
    claimed
}

/// Asks for `change` as the holder of `claim` does: by its token, until the lease ends.
pub async fn as_holder<S: Store>(
    idem: &Idem<S>,
    key: &Key,
    claim: &Record,
    change: Change,
) -> Committed {
    let step = Hold { claim: claim.clone(), change };
    idem.store().transact(key, Box::new(step)).await.expect("a holder is answered")
}

/// Claims a request's key, which must be free, and returns the token.
pub(crate) async fn claimed<S: Store>(idem: &Idem<S>, request: &Request) -> Token {
    token_of(Some(&claim_of_free(idem, request).await))
}

/// Claims a request's key, which must be free, and returns the claim.
pub(crate) async fn claim_of_free<S: Store>(idem: &Idem<S>, request: &Request) -> Record {
    let committed = claim(idem, request).await;
    assert!(committed.ran, "{:?} must be free to be claimed", request.key());
    committed.after.expect("a claim leaves a record")
}

/// Asks for `change` on `key`, whatever is recorded.
pub(crate) async fn change<S: Store>(
    idem: &Idem<S>,
    key: &Key,
    change: Change,
) -> Result<Committed, Error> {
    idem.store().transact(key, Box::new(Ask { wanted: None, change })).await
}

/// Runs `run` in a transaction of `key`, whatever is recorded.
pub(crate) async fn run<S, R>(idem: &Idem<S>, key: &Key, run: R) -> Result<Committed, Error>
where
    S: Store,
    R: FnMut(&mut S::Transaction) -> Result<Change, Error> + Send + 'static,
{
    idem.store().transact(key, Box::new(Run(run))).await
}

/// The token of a claimed record.
pub(crate) fn token_of(record: Option<&Record>) -> Token {
    match record.map(|record| &record.state) {
        Some(State::Claimed { token, .. }) => *token,
        other => panic!("the record must be a claim: {other:?}"),
    }
}

/// What the claim of a request at `now` must be; its token and its attempt are its own.
pub(crate) fn claimed_record(request: &Request, claim: &Record, now: Timestamp) -> Record {
    let keep = request.retention().expect("a good retention");
    let until = now.after(lease(LEASE)).expect("a lease that the clock can hold");
    Record {
        fingerprint: request.fingerprint_value().copied(),
        attempt: claim.attempt,
        created_at: now,
        state: State::Claimed {
            token: token_of(Some(claim)),
            took_over: None,
            until,
            is_ended: false,
            keep,
        },
    }
}

/// Asks for a change, without an effect.
struct Ask {
    /// The fingerprint of a step that wants a free key; none if the step runs on every record.
    wanted: Option<Option<Fingerprint>>,
    change: Change,
}

impl<Tx: ?Sized> Step<Tx> for Ask {
    fn proceeds(&self, record: Option<&Record>, now: Timestamp) -> bool {
        let is_free = |wanted: &Option<_>| judge(record, wanted.as_ref(), now).runs();
        self.wanted.as_ref().is_none_or(is_free)
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
        let mut change = self.change.clone();
        if let Change::Claim { fingerprint, took_over, .. } = &mut change
            && let Verdict::TakeOver(before) = judge(record, fingerprint.as_ref(), now)
        {
            *took_over = Some(before.token);
        }
        Ok(change)
    }
}

/// Asks for a change while a lease is held, without an effect.
struct Hold {
    claim: Record,
    change: Change,
}

impl<Tx: ?Sized> Step<Tx> for Hold {
    fn proceeds(&self, record: Option<&Record>, now: Timestamp) -> bool {
        holds(record, token_of(Some(&self.claim)), now)
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

/// Runs an effect that says itself what becomes of the record.
struct Run<R>(R);

impl<Tx: ?Sized, R> Step<Tx> for Run<R>
where
    R: FnMut(&mut Tx) -> Result<Change, Error> + Send,
{
    fn proceeds(&self, _: Option<&Record>, _: Timestamp) -> bool {
        true
    }

    fn run(&mut self, tx: &mut Tx, _: Option<&Record>, _: Timestamp) -> Result<Change, Error> {
        (self.0)(tx)
    }
}
