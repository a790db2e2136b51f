//! Something that happens once, and that many wait for.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

/// Raised once; whoever waits goes on, and whoever comes later need not wait.
#[derive(Debug, Default)]
pub(super) struct Signal(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_raised: bool,
    waiting: BTreeMap<u64, Waker>,
    next_waiter: u64,
}

impl Signal {
    pub(super) fn raise(&self) {
        let mut state = self.state();
        state.is_raised = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        for waker in waiting.into_values() {
            waker.wake();
        }
    }

    pub(super) fn is_raised(&self) -> bool {
        self.state().is_raised
    }

    /// Ends when the signal is raised.
    pub(super) fn raised(&self) -> Raised<'_> {
        Raised { signal: self, waiter: None }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No call panics between two changes that belong together.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(super) struct Raised<'s> {
    signal: &'s Signal,
    waiter: Option<u64>,
}

impl Future for Raised<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.signal.state();
        if state.is_raised {
            return Poll::Ready(());
        }
        let waiter = self.waiter.unwrap_or(state.next_waiter);
        state.next_waiter = state.next_waiter.max(waiter + 1);
        state.waiting.insert(waiter, context.waker().clone());
        drop(state);
        self.waiter = Some(waiter);
        Poll::Pending
    }
}

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        // A signal may outlive many who waited for it in vain.
        if let Some(waiter) = self.waiter {
            self.signal.state().waiting.remove(&waiter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{future::poll_fn, pin::pin};

    #[tokio::test]
    async fn all_who_wait_go_on_and_who_went_away_is_forgotten() {
        let signal = Signal::default();
        let (mut first, mut second) = (Box::pin(signal.raised()), pin!(signal.raised()));
        poll_fn(|context| {
            for _ in 0..2 {
                assert!(first.as_mut().poll(context).is_pending());
                assert!(second.as_mut().poll(context).is_pending());
            }
            Poll::Ready(())
        })
        .await;
        let waiting = || signal.state().waiting.len();
        assert_eq!(waiting(), 2);
        drop(first);
        assert_eq!(waiting(), 1);
        assert!(!signal.is_raised());
        signal.raise();
        second.await;
        signal.raised().await;
        assert!(signal.is_raised());
    }
}
