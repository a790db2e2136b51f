//! The standard library's locks, for backends: a panic while one is held does not lock others out, and those that a forked
//! child makes work there.
//!
//! Other locks need not. One that queues its threads in a table of the whole process, as `parking_lot`'s do, finds threads
//! there in a child that do not exist, in memory which the child's own threads have by then. The standard library's keep
//! nothing but their own state.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::{self, PoisonError, TryLockError},
    time::{Duration, Instant},
};

pub use std::sync::{RwLockReadGuard, RwLockWriteGuard, WaitTimeoutResult};

/// A [`std::sync::Mutex`] without poison.
#[derive(Default)]
pub struct Mutex<T>(sync::Mutex<T>);

/// A locked [`Mutex`].
#[must_use = "the lock is let go at once"]
pub struct MutexGuard<'m, T>(Option<sync::MutexGuard<'m, T>>);

/// A [`std::sync::Condvar`] that waits by a guard which stays where it is.
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

/// A [`std::sync::RwLock`] without poison.
#[derive(Default)]
pub struct RwLock<T>(sync::RwLock<T>);

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MutexGuard").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLock").finish_non_exhaustive()
    }
}

impl<T> Mutex<T> {
    /// An unlocked one.
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Waits until it is free, and locks it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Locks it, if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(MutexGuard(Some(guard))),
            Err(TryLockError::Poisoned(poisoned)) => Some(MutexGuard(Some(poisoned.into_inner()))),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// What is in it.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("a guard is whole but while it waits")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("a guard is whole but while it waits")
    }
}

impl Condvar {
    /// One that nobody waits for.
    #[must_use]
    pub const fn new() -> Self {
        Self(sync::Condvar::new())
    }

    /// Waits to be notified, with the lock let go meanwhile.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let locked = guard.0.take().expect("a guard is whole but while it waits");
        guard.0 = Some(self.0.wait(locked).unwrap_or_else(PoisonError::into_inner));
    }

    /// As [`Condvar::wait`], until `deadline` at most.
    pub fn wait_until<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        deadline: Instant,
    ) -> WaitTimeoutResult {
        let patience = deadline.saturating_duration_since(Instant::now());
        let locked = guard.0.take().expect("a guard is whole but while it waits");
        let (locked, result) = self.wait_for(locked, patience);
        guard.0 = Some(locked);
        result
    }

    fn wait_for<'m, T>(
        &self,
        locked: sync::MutexGuard<'m, T>,
        patience: Duration,
    ) -> (sync::MutexGuard<'m, T>, WaitTimeoutResult) {
        self.0.wait_timeout(locked, patience).unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes one that waits.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all that wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

impl<T> RwLock<T> {
    /// An unlocked one.
    pub const fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }

    /// Waits until nobody writes, and locks it for reading.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it is free, and locks it for writing.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is in it: nobody else has it.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        panic::{AssertUnwindSafe, catch_unwind},
        thread,
    };

    #[test]
    fn a_panic_while_it_is_held_locks_nobody_out() {
        let (mutex, lock) = (Mutex::new(1), RwLock::new(1));
        let panics = AssertUnwindSafe(|| {
            let (mut held, mut written) = (mutex.lock(), lock.write());
            (*held, *written) = (2, 2);
            panic!("on purpose");
        });
        assert!(catch_unwind(panics).is_err());
        // Each by itself: the guard of a read that lives on would keep the write waiting.
        assert_eq!(*mutex.lock(), 2);
        assert_eq!(*lock.read(), 2);
        assert_eq!(*lock.write(), 2);
        assert_eq!(mutex.try_lock().map(|held| *held), Some(2));
        assert_eq!(mutex.into_inner(), 2);
    }

    #[test]
    fn a_lock_that_is_held_is_not_had_a_second_time() {
        let mutex = Mutex::new(());
        let held = mutex.lock();
        assert!(mutex.try_lock().is_none());
        drop(held);
        assert!(mutex.try_lock().is_some());
    }

    #[test]
    fn who_waits_is_woken_or_ends_at_the_deadline_and_holds_the_lock_again() {
        let (mutex, told) = (Mutex::new(0), Condvar::new());
        thread::scope(|scope| {
            let mut held = mutex.lock();
            scope.spawn(|| {
                *mutex.lock() = 7;
                told.notify_all();
            });
            while *held == 0 {
                told.wait(&mut held);
            }
            assert_eq!(*held, 7);
            let past = told.wait_until(&mut held, Instant::now());
            assert!(past.timed_out() && mutex.try_lock().is_none());
        });
    }
}
