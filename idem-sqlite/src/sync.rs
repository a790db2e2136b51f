//! What the queue waits by: the tests of interleavings put locks of their scheduler in its place.

pub(crate) use idem_core::locks::{Condvar, Mutex, MutexGuard};
