//! What tests of the servers share.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Waits until `condition` holds in another process, with a bound; `what` says what for.
pub(crate) fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(2));
    }
}
