//! How a fault waits for the rival that it needs.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use tokio::{task::yield_now, time::timeout};

/// Long enough for a rival that is there and must wait for a core.
const A_WAIT: Duration = Duration::from_millis(100);

/// After so many waits in vain there is no rival.
const VAIN: usize = 20;

/// A store's: bounded each time, and in vain only so often.
#[derive(Default)]
pub(crate) struct Patience(AtomicUsize);

impl Patience {
    /// Lets others go on until `holds`; whether it came to that.
    pub(crate) async fn until(&self, mut holds: impl FnMut() -> bool) -> bool {
        let waited = async {
            while !holds() {
                thread::yield_now();
                yield_now().await;
            }
        };
        self.has_more() && self.noted(timeout(A_WAIT, waited).await.is_ok())
    }

    /// As [`Patience::until`], where a lock is held.
    pub(crate) fn blocks_until(&self, mut holds: impl FnMut() -> bool) -> bool {
        if !self.has_more() {
            return holds();
        }
        let start = Instant::now();
        while start.elapsed() < A_WAIT {
            if holds() {
                return true;
            }
            thread::yield_now();
        }
        self.noted(holds())
    }

    fn has_more(&self) -> bool {
        self.0.load(Ordering::Relaxed) < VAIN
    }

    fn noted(&self, came: bool) -> bool {
        self.0.fetch_add(usize::from(!came), Ordering::Relaxed);
        came
    }
}
