//! Waiting for what happens in other processes, with a bound.

use std::{
    io, thread,
    time::{Duration, Instant},
};

/// How long a server may take for anything.
pub(crate) const BOUND: Duration = Duration::from_secs(20);

/// Asks `poll` until it has an answer, or fails: what was waited for is in the error.
pub(crate) fn until<T>(
    what: &str,
    mut poll: impl FnMut() -> io::Result<Option<T>>,
) -> io::Result<T> {
    let deadline = Instant::now() + BOUND;
    loop {
        if let Some(answer) = poll()? {
            return Ok(answer);
        }
        if Instant::now() > deadline {
            let message = format!("waited {BOUND:?} in vain for {what}");
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
        thread::sleep(Duration::from_millis(2));
    }
}
