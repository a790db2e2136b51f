//! What a backend needs of a runtime (feature `tokio`): one thread of the library's own, so that nothing depends on a
//! runtime of the user's, which may end, or have no timers, or not be there.

use std::{
    cell::Cell,
    future::pending,
    sync::LazyLock,
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

use crate::{Certainty, Clock, Error, ErrorKind, time::BoxFuture};

thread_local! {
    static IS_BACKGROUND: Cell<bool> = const { Cell::new(false) };
}

/// Started when it is first needed; goes on as long as the process.
static BACKGROUND: LazyLock<Handle> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("a runtime without I/O asks the system for nothing");
    let handle = runtime.handle().clone();
    thread::Builder::new()
        .name("idem-background".to_string())
        .spawn(move || {
            IS_BACKGROUND.set(true);
            runtime.block_on(pending::<()>());
        })
        .expect("the system must have a thread left for background work");
    handle
});

/// Runs a task on its own, as long as the process goes on.
///
/// # Panics
/// If the system has no thread left for it, at the first call of the process.
pub fn detach(task: BoxFuture<()>) {
    drop(BACKGROUND.spawn(task));
}

/// Whether this is the thread that detached tasks and all sleeps run on: nothing may block it for long, least of all
/// an effect.
#[must_use]
pub fn is_background() -> bool {
    IS_BACKGROUND.get()
}

/// Ends when `clock` has moved on by `duration` from this call.
///
/// # Panics
/// As [`detach`].
pub fn sleep(clock: &dyn Clock, duration: Duration) -> BoxFuture<()> {
    clock.sleep(duration).unwrap_or_else(|| Box::pin(timer(duration)))
}

/// Starts a thread of that name, for what blocks.
///
/// # Errors
/// [`ErrorKind::Store`] if the system has no thread left for it.
pub fn start<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Error> {
    thread::Builder::new()
        .name(name.to_string())
        .spawn(work)
        .map_err(|error| Error::nothing_done(ErrorKind::Store).with_source(error))
}

/// Runs what blocks on a thread of its own, of that name.
///
/// # Errors
/// As [`start`]; [`lost`] if the work panicked.
///
/// # Cancel safety
/// The work goes on.
pub async fn run<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    let (reply, answer) = oneshot::channel();
    start(name, move || drop(reply.send(work())))?;
    answer.await.map_err(|_| lost())
}

/// The error of a call whose answer was lost with the thread that worked on it.
#[must_use]
pub fn lost() -> Error {
    Error::new(ErrorKind::Store, Certainty::Unknown)
        .with_source("the thread that worked on the call is gone")
}

fn timer(duration: Duration) -> tokio::time::Sleep {
    // Bound to the background's timers, whoever awaits it.
    let _background = BACKGROUND.enter();
    tokio::time::sleep(duration)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemClock;
    use std::sync::mpsc;

    #[test]
    fn a_task_goes_on_after_the_runtime_that_it_was_detached_in_and_needs_none() {
        let (done, dones) = mpsc::channel();
        let task = |number| {
            let done = done.clone();
            Box::pin(async move {
                sleep(&SystemClock, Duration::from_millis(1)).await;
                done.send(number).expect("the test waits");
            })
        };
        detach(task(1));
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(async { detach(task(2)) });
        drop(runtime);
        let mut numbers: Vec<i32> =
            (0..2).map(|_| dones.recv_timeout(Duration::from_secs(20)).unwrap()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 2]);
    }

    #[test]
    fn the_background_knows_itself() {
        let (told, answer) = mpsc::channel();
        detach(Box::pin(async move { told.send(is_background()).expect("the test waits") }));
        assert!(answer.recv_timeout(Duration::from_secs(20)).unwrap());
        assert!(!is_background());
    }

    #[test]
    fn sleeping_needs_no_timers_of_the_callers_runtime() {
        let runtime = Builder::new_current_thread().build().unwrap();
        let start = std::time::Instant::now();
        runtime.block_on(sleep(&SystemClock, Duration::from_millis(5)));
        assert!(start.elapsed() >= Duration::from_millis(5));
    }
}
