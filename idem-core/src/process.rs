//! The process that something belongs to: a forked child inherits the memory of its parent, but neither its threads nor
//! its locks on files.

use std::{
    mem, process,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

use crate::{Error, ErrorKind};

/// The process that opened a store.
///
/// A child that was forked later has the store's memory, but not its threads, its locks on files or its side of a
/// connection. A lock that another thread held at the fork is held there for ever. So every call of a store
/// [checks](HomeProcess::check) this first, before any lock, and a store that is dropped in another process leaks what
/// it would close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HomeProcess(u32);

impl HomeProcess {
    /// This process.
    #[must_use]
    pub fn here() -> Self {
        Self(process::id())
    }

    /// Whether this is still that process.
    #[must_use]
    pub fn is_here(self) -> bool {
        self == Self::here()
    }

    /// Refuses a call in another process.
    ///
    /// # Errors
    /// [`ErrorKind::OtherProcess`], with nothing done.
    pub fn check(self) -> Result<(), Error> {
        if self.is_here() {
            return Ok(());
        }
        Err(Error::nothing_done(ErrorKind::OtherProcess { opened_in: self.0 }))
    }

    /// Keeps what is shared from ever being dropped in another process, and says whether this is one.
    pub fn leak_elsewhere<T>(self, shared: &Arc<T>) -> bool {
        let is_elsewhere = !self.is_here();
        if is_elsewhere {
            mem::forget(Arc::clone(shared));
        }
        is_elsewhere
    }
}

impl Default for HomeProcess {
    fn default() -> Self {
        Self::here()
    }
}

/// Something that each process makes for itself when it first needs it, such as a thread: a forked child does not use
/// its parent's.
///
/// No process waits for what another one began to make.
#[derive(Debug)]
pub struct PerProcess<T> {
    /// Zero if it is no process's yet.
    process: AtomicU32,
    made: OnceLock<T>,
    /// That of a child of this process, in the child's own memory.
    next: OnceLock<Box<PerProcess<T>>>,
}

impl<T> PerProcess<T> {
    /// Nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { process: AtomicU32::new(0), made: OnceLock::new(), next: OnceLock::new() }
    }

    /// This process's, made now if it is the first call.
    pub fn get_or_make(&self, make: impl FnOnce() -> T) -> &T {
        self.of(process::id(), make)
    }

    fn of(&self, process: u32, make: impl FnOnce() -> T) -> &T {
        let mut place = self;
        loop {
            let free =
                place.process.compare_exchange(0, process, Ordering::AcqRel, Ordering::Acquire);
            if free.is_ok() || free == Err(process) {
                return place.made.get_or_init(make);
            }
            place = place.next.get_or_init(Box::default);
        }
    }
}

impl<T> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Certainty;

    #[test]
    fn at_home_a_call_passes_and_nothing_is_leaked() {
        let shared = Arc::new(7);
        let home = HomeProcess::here();
        home.check().unwrap();
        assert!(!home.leak_elsewhere(&shared));
        assert_eq!(Arc::strong_count(&shared), 1);
    }

    #[test]
    fn elsewhere_a_call_is_refused_and_what_is_shared_is_never_dropped() {
        let shared = Arc::new(7);
        let home = HomeProcess(process::id() + 1);
        let error = home.check().unwrap_err();
        let told = ErrorKind::OtherProcess { opened_in: process::id() + 1 };
        assert_eq!(format!("{:?}", error.kind()), format!("{told:?}"));
        assert_eq!(error.certainty(), Certainty::NothingDone);
        let text = error.to_string();
        assert!(text.contains(&format!("by process {}", process::id() + 1)), "{text}");
        assert!(text.contains(&format!("this is process {}", process::id())), "{text}");
        assert!(home.leak_elsewhere(&shared));
        assert_eq!(Arc::strong_count(&shared), 2);
    }

    #[test]
    fn each_process_makes_its_own_once() {
        let made = PerProcess::new();
        for (process, number, expected) in
            [(5, 1, 1), (5, 2, 1), (6, 3, 3), (7, 4, 4), (6, 5, 3), (5, 6, 1), (7, 7, 4)]
        {
            assert_eq!(*made.of(process, || number), expected, "{process}");
        }
    }
}
