//! Something that happens once, and that many wait for.

use std::sync::atomic::{AtomicBool, Ordering};

use event_listener::Event;

/// Raised once; whoever waits goes on, and whoever comes later need not wait.
#[derive(Debug, Default)]
pub(super) struct Signal {
    is_raised: AtomicBool,
    raised: Event,
}

impl Signal {
    pub(super) fn raise(&self) {
        self.is_raised.store(true, Ordering::SeqCst);
        self.raised.notify(usize::MAX);
    }

    pub(super) fn is_raised(&self) -> bool {
        self.is_raised.load(Ordering::SeqCst)
    }

    /// Ends when the signal is raised.
    pub(super) async fn raised(&self) {
        // Listens before it looks, so that what is raised in between is not missed.
        let raised = self.raised.listen();
        if !self.is_raised() {
            raised.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        pin::pin,
        task::{Context, Waker},
    };

    #[tokio::test]
    async fn all_who_wait_go_on_and_who_comes_later_need_not_wait() {
        let signal = Signal::default();
        let (mut first, mut second) = (pin!(signal.raised()), pin!(signal.raised()));
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..2 {
            assert!(first.as_mut().poll(&mut context).is_pending());
            assert!(second.as_mut().poll(&mut context).is_pending());
        }
        assert!(!signal.is_raised());
        signal.raise();
        assert!(signal.is_raised());
        first.await;
        second.await;
        signal.raised().await;
    }
}
