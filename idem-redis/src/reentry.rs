//! Whether an effect runs on this thread.
//!
//! One that waits for a server blocks the thread that may have to drive the connection: on a runtime of one
//! thread it would wait for itself, whichever handle it asks.

use std::cell::Cell;

use idem_core::{BoxStep, Change, Error, ErrorKind, Record, Step, Timestamp};

thread_local! {
    /// How many effects, one within the other.
    static RUNNING: Cell<usize> = const { Cell::new(0) };
}

/// Fails if this thread is in an effect.
pub(crate) fn check() -> Result<(), Error> {
    if RUNNING.get() > 0 { Err(Error::nothing_done(ErrorKind::Reentrant)) } else { Ok(()) }
}

/// A step that leaves a mark on the thread while it runs.
pub(crate) struct Marked<Tx>(pub(crate) BoxStep<Tx>);

impl<Tx> Step<Tx> for Marked<Tx> {
    fn proceeds(&self, record: Option<&Record>, now: Timestamp) -> bool {
        self.0.proceeds(record, now)
    }

    fn effectless(&self) -> bool {
        self.0.effectless()
    }

    fn expected(&self) -> Option<&Record> {
        self.0.expected()
    }

    fn run(
        &mut self,
        tx: &mut Tx,
        record: Option<&Record>,
        now: Timestamp,
    ) -> Result<Change, Error> {
        struct Leave;
        impl Drop for Leave {
            fn drop(&mut self) {
                RUNNING.set(RUNNING.get() - 1);
            }
        }
        RUNNING.set(RUNNING.get() + 1);
        let _leave = Leave;
        self.0.run(tx, record, now)
    }
}
