//! Locks, atomics and events: the tests of interleavings put those of their scheduler in their place.

pub(crate) use event_listener::{Event, EventListener};
pub(crate) use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering},
};
