//! What time it is on the server, as far as its last answer tells.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Instant,
};

use idem_core::Timestamp;

/// The server's time, estimated by this machine's steady clock from the last answer on.
#[derive(Debug)]
pub(crate) struct ServerTime {
    started: Instant,
    /// The server's time when `started` was, in milliseconds.
    base: AtomicI64,
}

impl ServerTime {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { started: Instant::now(), base: AtomicI64::new(now.as_millis()) }
    }

    /// Takes note of what the server said.
    pub(crate) fn learn(&self, now: Timestamp) {
        self.base.store(now.as_millis().saturating_sub(self.elapsed()), Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> Timestamp {
        let base = self.base.load(Ordering::Relaxed);
        Timestamp::from_millis(base.saturating_add(self.elapsed()))
    }

    fn elapsed(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}
