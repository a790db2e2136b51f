//! What this thread is in the middle of: one that waited for itself would wait for ever.

use std::cell::{Cell, RefCell};

use crate::schema::Location;

thread_local! {
    static RUNNING: RefCell<Vec<Location>> = const { RefCell::new(Vec::new()) };
    static LEADING: Cell<usize> = const { Cell::new(0) };
}

/// Does something as an effect of the store at `location`.
pub(crate) fn within<T>(location: &Location, effect: impl FnOnce() -> T) -> T {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            RUNNING.with_borrow_mut(|running| drop(running.pop()));
        }
    }
    RUNNING.with_borrow_mut(|running| running.push(location.clone()));
    let leave = Leave;
    let result = effect();
    drop(leave);
    result
}

/// Whether this thread is in an effect of the store at `location`.
pub(crate) fn is_within(location: &Location) -> bool {
    RUNNING.with_borrow(|running| running.contains(location))
}

/// Does something as a leader, with a writer in hand.
pub(crate) fn leading<T>(work: impl FnOnce() -> T) -> T {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            LEADING.set(LEADING.get() - 1);
        }
    }
    LEADING.set(LEADING.get() + 1);
    let leave = Leave;
    let result = work();
    drop(leave);
    result
}

/// Whether this thread leads, in whichever store.
pub(crate) fn is_leading() -> bool {
    LEADING.get() > 0
}
