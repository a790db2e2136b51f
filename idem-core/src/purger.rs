//! Purging now and then, in the background.

use std::{
    future::poll_fn,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Poll, Waker},
    time::Duration,
};

use crate::{Error, ErrorKind, HomeProcess, Span, Store, time::BoxFuture};

/// A background purge; dropping it ends the purging, and so does closing the store. Made by [`Idem::spawn_purge`](crate::Idem::spawn_purge).
#[derive(Debug)]
#[must_use = "dropping the handle ends the purging"]
pub struct Purger(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    home: HomeProcess,
    removed: AtomicU64,
    failures: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    stopped: bool,
    sleeper: Option<Waker>,
    last_error: Option<Arc<Error>>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every change of the state is a single assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Purger {
    pub(crate) fn spawn<S: Store + 'static>(
        store: Arc<S>,
        every: Duration,
        limit: usize,
        on_failure: impl Fn(&Error) + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        // In whole milliseconds, as clocks count: a shorter sleep would be none.
        let every = Duration::from_millis(Span::new("interval", every)?.as_millis().unsigned_abs());
        let shared = Arc::new(Shared::default());
        // From now on, not from when the task is first polled.
        let first = store.sleep(every);
        let schedule = Schedule { every, limit, on_failure };
        let task = run(Arc::clone(&store), Arc::clone(&shared), first, schedule);
        store.detach(Box::pin(task));
        Ok(Self(shared))
    }

    /// How many records it has removed.
    #[must_use]
    pub fn removed(&self) -> u64 {
        self.0.removed.load(Ordering::Relaxed)
    }

    /// How many purges have failed; each is tried again at the next interval.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.0.failures.load(Ordering::Relaxed)
    }

    /// What the last failure was; in a forked child, that it does not purge.
    #[must_use]
    pub fn last_error(&self) -> Option<Arc<Error>> {
        if let Err(error) = self.0.home.check() {
            return Some(Arc::new(error));
        }
        self.0.state().last_error.clone()
    }
}

impl Drop for Purger {
    fn drop(&mut self) {
        // In a forked child there is no task to end, and its thread may have held the lock.
        if !self.0.home.is_here() {
            return;
        }
        let mut state = self.0.state();
        state.stopped = true;
        let sleeper = state.sleeper.take();
        drop(state);
        if let Some(sleeper) = sleeper {
            sleeper.wake();
        }
    }
}

/// What a background purge does.
struct Schedule<F> {
    every: Duration,
    limit: usize,
    on_failure: F,
}

async fn run<S: Store, F: Fn(&Error) + Sync>(
    store: Arc<S>,
    shared: Arc<Shared>,
    mut sleep: BoxFuture<()>,
    schedule: Schedule<F>,
) {
    while sleep_unless_stopped(sleep, &shared).await {
        sleep = store.sleep(schedule.every);
        loop {
            match store.purge(schedule.limit).await {
                Ok(purged) => {
                    shared.removed.fetch_add(purged.removed as u64, Ordering::Relaxed);
                    if !purged.more || shared.state().stopped {
                        break;
                    }
                }
                Err(error) => {
                    let is_closed =
                        matches!(error.kind(), ErrorKind::Closed | ErrorKind::OtherProcess { .. });
                    let error = Arc::new(error);
                    shared.state().last_error = Some(Arc::clone(&error));
                    shared.failures.fetch_add(1, Ordering::Relaxed);
                    let told = AssertUnwindSafe(|| (schedule.on_failure)(&error));
                    if let Err(payload) = catch_unwind(told) {
                        // Its destructor may panic in turn, and neither may end the purging.
                        mem::forget(payload);
                    }
                    if is_closed {
                        return;
                    }
                    break;
                }
            }
        }
    }
}

/// Sleeps, and tells whether to go on.
async fn sleep_unless_stopped(mut sleep: BoxFuture<()>, shared: &Shared) -> bool {
    poll_fn(|context| {
        let mut state = shared.state();
        if state.stopped {
            return Poll::Ready(false);
        }
        state.sleeper = Some(context.waker().clone());
        drop(state);
        sleep.as_mut().poll(context).map(|()| true)
    })
    .await
}
