//! Threads of the store's own: its work must not depend on a runtime that may go away.

use std::thread::{Builder, JoinHandle};

use idem_core::{Error, ErrorKind};
use tokio::sync::oneshot;

use crate::failure;

/// Starts a thread.
pub(crate) fn start<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Error> {
    Builder::new()
        .name(name.to_string())
        .spawn(work)
        .map_err(|error| Error::nothing_done(ErrorKind::Store).with_source(error))
}

/// Runs what blocks on a thread of its own.
pub(crate) async fn run<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    let (reply, answer) = oneshot::channel();
    start(name, move || drop(reply.send(work())))?;
    answer.await.map_err(|_| failure::lost())
}
