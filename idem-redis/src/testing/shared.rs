//! What the tests of a program share, for as long as one of them holds it.

use std::{
    io,
    sync::{Arc, Weak},
};

use idem_core::locks::Mutex;

/// A static does not end with its program's tests, so it must not own anything.
#[derive(Debug)]
pub(crate) struct Shared<T>(Mutex<Weak<T>>);

impl<T> Shared<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Weak::new()))
    }

    pub(crate) fn get(&self, start: impl FnOnce() -> io::Result<T>) -> io::Result<Arc<T>> {
        let mut shared = self.0.lock();
        if let Some(value) = shared.upgrade() {
            return Ok(value);
        }
        let value = Arc::new(start()?);
        *shared = Arc::downgrade(&value);
        Ok(value)
    }
}
