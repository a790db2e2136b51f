//! Which stores' effects run on this thread: one that asks its own store to write would wait for itself.

use std::cell::RefCell;

use crate::location::Location;

thread_local! {
    static RUNNING: RefCell<Vec<Location>> = const { RefCell::new(Vec::new()) };
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
