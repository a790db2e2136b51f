//! Work outside the store, whose panics are its own failure.

use std::{
    any::Any,
    future::{poll_fn, ready},
    panic::{AssertUnwindSafe, catch_unwind},
    task::Poll,
};

use crate::{error::BoxError, step::panic_message, time::BoxFuture};

/// What a handler does outside the store with a message.
pub(super) type Outside<M> = Box<dyn Fn(M) -> BoxFuture<Result<(), BoxError>> + Send + Sync>;

/// The same work, whose panic is an error: it is one delivery's failure and must not take down the consumer.
pub(super) fn guarded<M, F, R, E>(work: F) -> Outside<M>
where
    F: Fn(M) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), E>> + Send + 'static,
    E: Into<BoxError> + 'static,
{
    Box::new(move |message| match unless_panic(|| work(message)) {
        Ok(running) => Box::pin(until_panic(running)),
        Err(panic) => Box::pin(ready(Err(panic))),
    })
}

/// What `call` returns, or its panic.
pub(super) fn unless_panic<T>(call: impl FnOnce() -> T) -> Result<T, BoxError> {
    catch_unwind(AssertUnwindSafe(call)).map_err(panicked)
}

/// Drives a handler, and turns its panic into an error.
async fn until_panic<R, E>(running: R) -> Result<(), BoxError>
where
    R: Future<Output = Result<(), E>>,
    E: Into<BoxError>,
{
    let mut running = Box::pin(running);
    let handled = poll_fn(|context| {
        let poll = || running.as_mut().poll(context).map(|handled| handled.map_err(Into::into));
        unless_panic(poll).unwrap_or_else(|panic| Poll::Ready(Err(panic)))
    })
    .await;
    // Its destructor is the handler's code as well.
    let dropped = unless_panic(|| drop(running));
    handled.and(dropped)
}

fn panicked(payload: Box<dyn Any + Send>) -> BoxError {
    format!("it panicked: {}", panic_message(payload)).into()
}
