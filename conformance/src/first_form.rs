//! Records in the first form of [`Record::to_bytes`](idem_core::Record::to_bytes), which is still read: for the tests of
//! stores that keep bytes.
//!
//! All began at [`BEGAN_AT`] without a fingerprint, and were to be kept for a minute.

// A fixture is part of a test: it may unwrap.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use idem_core::{Filter, Idem, Key, ManualClock, Outcome, Request, Store, Timestamp, Token};

/// When the records began, in milliseconds.
pub const BEGAN_AT: i64 = 1700000000000;

/// A receipt of the result `7`.
pub const COMPLETED: &str = "1 1700000000000 1700000000000 60000 60000 - - 215295db - completed 00112233445566778899aabbccddeeff -\n7";

/// A lease of 30 seconds with the token 7.
pub const HELD: &str = "1 1700000000000 1700000000000 30000 30000 7 7 900abdb9 60000 claimed 00112233445566778899aabbccddeeff -\n";

/// A lease with the token 8 that was ended: its end was its start.
pub const ENDED: &str = "1 1700000000000 1700000000000 0 0 8 8 900abdb9 60000 claimed 00112233445566778899aabbccddeeff -\n";

/// A request for the key under which the record of that name was put.
pub fn request(name: &str) -> Request {
    let key = Key::new("north", "order", name).expect("a good key");
    Request::new(key).retain(Duration::from_secs(60))
}

/// The records by the names of their keys.
pub const RECORDS: [(&str, &str); 3] = [("completed", COMPLETED), ("held", HELD), ("ended", ENDED)];

/// Asserts that a store which holds these records, and nothing else, reads and replaces them as any.
pub async fn is_still_read<S: Store + 'static>(idem: &Idem<S>, clock: &ManualClock) {
    let at = |millis| Timestamp::from_millis(BEGAN_AT + millis);
    let lease = Duration::from_secs(30);
    clock.set(at(1_000));
    assert_eq!(idem.list(None, 10).await.unwrap().records.len(), 3);
    let completed = request("completed");
    assert_eq!(idem.execute(&completed, |_| Ok(8)).await.unwrap(), Outcome::Replayed(7));
    let held = idem.execute(&request("held"), |_| Ok(8)).await.unwrap();
    assert!(matches!(held, Outcome::InProgress { until, .. } if until == at(30_000)), "{held:?}");
    let token = |token| Token::from_u64(token);
    assert_eq!(idem.end_held(request("held").key()).await.unwrap(), token(7));
    let next = idem.claim::<u64>(&request("held"), lease).await.unwrap().lease().unwrap();
    assert_eq!(next.took_over(), token(7));
    assert_eq!(next.complete(9).await.unwrap(), 9);
    // An ended one stays so by a clock that is set back.
    clock.set(at(-1_000));
    let next = idem.claim::<u64>(&request("ended"), lease).await.unwrap().lease().unwrap();
    assert_eq!(next.took_over(), token(8));
    next.abandon();
    clock.set(at(60_000));
    assert_eq!(idem.execute(&completed, |_| Ok(8)).await.unwrap(), Outcome::Created(8));
}

/// Asserts that a store which holds these records, and nothing else, purges each at its time.
pub async fn is_still_purged<S: Store + 'static>(idem: &Idem<S>, clock: &ManualClock) {
    // A lease that nobody ended is kept for as long from its end.
    for (millis, removed) in [(59_999, 0), (60_000, 2), (89_999, 0), (90_000, 1)] {
        clock.set(Timestamp::from_millis(BEGAN_AT + millis));
        let purged = idem.purge(10).await.unwrap();
        assert_eq!(purged.removed, removed, "after {millis} ms");
    }
    assert!(idem.store().list(&Filter::all(), None, 10).await.unwrap().records.is_empty());
}
