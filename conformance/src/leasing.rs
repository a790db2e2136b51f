//! Leases as the cases use them.

use std::time::Duration;

use idem_core::{
    Certainty, Claim, Error, ErrorKind, Idem, Lease, Outcome, Request, Store, Timestamp, Token,
};

use crate::{callers::within, setup::start_plus, steps::LEASE};

/// [`LEASE`] as a duration.
pub(crate) const HELD_FOR: Duration = Duration::from_millis(LEASE.unsigned_abs());

/// Longer than any case lasts by its clock.
pub(crate) const LONG: Duration = Duration::from_secs(100_000);

/// Claims a request's key for [`LEASE`] milliseconds, which must succeed.
pub(crate) async fn acquired<S: Store + 'static>(
    idem: &Idem<S>,
    request: &Request,
) -> Lease<S, u64> {
    let claim = within("a claim", idem.claim(request, HELD_FOR)).await;
    match claim.expect("a claim is answered") {
        Claim::Acquired(lease) => lease,
        refused => panic!("{:?} must be free to be claimed: {refused:?}", request.key()),
    }
}

/// What a caller is told of a lease that ends at `until`, at `now`.
pub(crate) fn in_progress<T>(until: Timestamp, now: Timestamp) -> Outcome<T> {
    Outcome::InProgress { until, retry_after: until.since(now) }
}

/// What a claim is told, as an outcome; one that was acquired is abandoned and a panic.
pub(crate) async fn refused<S: Store + 'static>(idem: &Idem<S>, request: &Request) -> Outcome<u64> {
    match idem.claim::<u64>(request, HELD_FOR).await.expect("a claim is answered") {
        Claim::Acquired(lease) => panic!("the key is not free: {lease:?}"),
        Claim::Replayed(result) => Outcome::Replayed(result),
        Claim::Conflict => Outcome::Conflict,
        Claim::InProgress { until, retry_after } => Outcome::InProgress { until, retry_after },
        unfinished @ Claim::Unfinished { .. } => {
            panic!("nobody refused to take over: {unfinished:?}")
        }
    }
}

/// The error of a holder whose lease with that token is lost.
pub(crate) fn assert_lost(error: &Error, token: Token, what: &str) {
    let ErrorKind::LeaseLost { token: lost } = *error.kind() else {
        panic!("{what}: the lease is lost: {error:?}")
    };
    assert_eq!((lost, error.certainty()), (token, Certainty::NothingDone), "{what}");
}

/// The end of a lease that was claimed at the start.
pub(crate) const fn end() -> Timestamp {
    start_plus(LEASE)
}
