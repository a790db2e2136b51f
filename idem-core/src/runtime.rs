//! What a backend needs of a runtime, by tokio.

use std::time::Duration;

use tokio::runtime::{Builder, Handle};

use crate::{Clock, time::BoxFuture};

/// Runs a task on its own: on the runtime that the caller is in, or else on a thread of its own.
pub fn detach(task: BoxFuture<()>) {
    match Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn(task)),
        Err(_) => drop(std::thread::Builder::new().name("idem-task".into()).spawn(|| {
            if let Ok(runtime) = Builder::new_current_thread().enable_time().build() {
                runtime.block_on(task);
            }
        })),
    }
}

/// Ends when `clock` has moved on by `duration`.
///
/// # Panics
/// If the clock runs with the wall clock and the caller is in no tokio runtime.
pub async fn sleep(clock: &dyn Clock, duration: Duration) {
    match clock.sleep(duration) {
        Some(sleep) => sleep.await,
        None => tokio::time::sleep(duration).await,
    }
}
