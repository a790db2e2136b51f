//! One direction of a connection: a line that messages travel at their own pace.

use std::{
    io::{self, Read},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

/// More than most messages have.
const BUFFER: usize = 64 * 1024;

/// Reads messages and delivers each after the delay that holds when it comes, in order. Reading goes on
/// meanwhile, so that many can be under way.
///
/// Returns when there is no more to read and all is delivered, or delivering has failed.
pub(super) fn pump(
    mut from: impl Read,
    delay: impl Fn() -> Duration,
    mut deliver: impl FnMut(&[u8]) -> io::Result<()> + Send,
) {
    let (sender, receiver) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::scope(|scope| {
        scope.spawn(move || {
            for (due, message) in receiver {
                thread::sleep(due.saturating_duration_since(Instant::now()));
                if deliver(&message).is_err() {
                    return;
                }
            }
        });
        let mut buffer = vec![0; BUFFER];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            let due = Instant::now() + delay();
            if sender.send((due, buffer[..length].to_vec())).is_err() {
                return;
            }
        }
        drop(sender);
    });
}
