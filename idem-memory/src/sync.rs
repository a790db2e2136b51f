//! Locks and atomics: the tests of interleavings put those of their scheduler in their place.

pub(crate) use idem_core::locks::{Mutex, RwLock, RwLockWriteGuard};
pub(crate) use std::sync::atomic::{AtomicBool, Ordering};
