//! Which stores' effects run on this thread.
//!
//! An effect that waits for its own store blocks the thread that may have to drive the connection: it would
//! wait for itself.

use std::cell::RefCell;

use idem_core::{BoxStep, Change, Error, ErrorKind, Record, Step, Timestamp};
use uuid::Uuid;

thread_local! {
    static RUNNING: RefCell<Vec<Uuid>> = const { RefCell::new(Vec::new()) };
}

/// Fails if this thread is in an effect of `store`.
pub(crate) fn check(store: Uuid) -> Result<(), Error> {
    if RUNNING.with_borrow(|running| running.contains(&store)) {
        return Err(Error::nothing_done(ErrorKind::Reentrant));
    }
    Ok(())
}

/// A step that leaves a mark on the thread while it runs.
pub(crate) struct Marked<Tx> {
    pub(crate) store: Uuid,
    pub(crate) step: BoxStep<Tx>,
}

impl<Tx> Step<Tx> for Marked<Tx> {
    fn proceeds(&self, record: Option<&Record>, now: Timestamp) -> bool {
        self.step.proceeds(record, now)
    }

    fn effectless(&self) -> bool {
        self.step.effectless()
    }

    fn expected(&self) -> Option<&Record> {
        self.step.expected()
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
                let _ = RUNNING.with_borrow_mut(Vec::pop);
            }
        }
        RUNNING.with_borrow_mut(|running| running.push(self.store));
        let _leave = Leave;
        self.step.run(tx, record, now)
    }
}
