//! What a backend needs of a runtime (feature `tokio`): threads of the library's own, so that nothing depends on a
//! runtime of the user's, which may end, or have no timers, or not be there.

use std::{
    cell::Cell,
    future::pending,
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

use crate::{Certainty, Clock, Error, ErrorKind, PerProcess, time::BoxFuture};

thread_local! {
    static IS_BACKGROUND: Cell<bool> = const { Cell::new(false) };
}

/// Started when it is first needed; goes on as long as the process. A forked child has none of its parent's threads, and
/// starts its own.
fn background() -> &'static Handle {
    static BACKGROUND: PerProcess<Handle> = PerProcess::new();
    BACKGROUND.get_or_make(|| own_thread("idem-background", true))
}

/// As [`background`], for tasks that block.
fn blocking() -> &'static Handle {
    static BLOCKING: PerProcess<Handle> = PerProcess::new();
    BLOCKING.get_or_make(|| own_thread("idem-blocking", false))
}

/// Starts a thread that runs tasks as long as the process goes on.
fn own_thread(name: &str, is_background: bool) -> Handle {
    let runtime = Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("a runtime without I/O asks the system for nothing");
    let handle = runtime.handle().clone();
    thread::Builder::new()
        .name(name.to_string())
        .spawn(move || {
            IS_BACKGROUND.set(is_background);
            runtime.block_on(pending::<()>());
        })
        .expect("the system must have a thread left for background work");
    handle
}

/// Runs a task on its own, as long as the process goes on.
///
/// # Panics
/// If the system has no thread left for it, at the first call of the process.
pub fn detach(task: BoxFuture<()>) {
    drop(background().spawn(task));
}

/// As [`detach`], for the tasks of a store whose calls block their thread, for a sync of the disk or a lock: they wait
/// for each other on a thread of their own, and hold up no sleep.
///
/// # Panics
/// As [`detach`].
pub fn detach_blocking(task: BoxFuture<()>) {
    drop(blocking().spawn(task));
}

/// Whether this is the thread that [`detach`]ed tasks and all sleeps run on: nothing may block it for long, least of all
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
    let _background = background().enter();
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
    fn what_blocks_holds_up_no_sleep_and_no_other_task() {
        let (release, released) = mpsc::channel::<()>();
        let (done, dones) = mpsc::channel();
        let second = done.clone();
        detach_blocking(Box::pin(async move {
            assert!(!is_background());
            released.recv().expect("the test says when");
            done.send("blocked").expect("the test waits");
        }));
        detach(Box::pin(async move {
            sleep(&SystemClock, Duration::from_millis(1)).await;
            second.send("slept").expect("the test waits");
        }));
        let next = || dones.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(next(), "slept");
        release.send(()).unwrap();
        assert_eq!(next(), "blocked");
    }

    #[test]
    fn sleeping_needs_no_timers_of_the_callers_runtime() {
        let runtime = Builder::new_current_thread().build().unwrap();
        let start = std::time::Instant::now();
        runtime.block_on(sleep(&SystemClock, Duration::from_millis(5)));
        assert!(start.elapsed() >= Duration::from_millis(5));
    }
}
