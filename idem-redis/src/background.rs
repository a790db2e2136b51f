//! What goes on by itself: on a thread of the library's own that can also open connections, since the runtime that
//! opened the last one may be gone.

use std::{future::pending, thread};

use idem_core::{BoxFuture, PerProcess};
use tokio::runtime::{Builder, Handle};

/// Started when it is first needed; goes on as long as the process.
static BACKGROUND: PerProcess<Handle> = PerProcess::new();

fn start() -> Handle {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("the system must have a poll left for background work");
    let handle = runtime.handle().clone();
    thread::Builder::new()
        .name("idem-redis-background".to_string())
        .spawn(move || runtime.block_on(pending::<()>()))
        .expect("the system must have a thread left for background work");
    handle
}

/// Runs a task on its own, as long as the process goes on.
///
/// # Panics
/// If the system has no thread or no poll left for it, at the first call of the process.
pub(crate) fn detach(task: BoxFuture<()>) {
    drop(BACKGROUND.get_or_make(start).spawn(task));
}
