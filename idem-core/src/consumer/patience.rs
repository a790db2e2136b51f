//! What to do when the store fails: tell, or ask again.

use std::{
    pin::pin,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

use futures_util::future::select;

use super::signal::Signal;
use crate::{
    Error, Store,
    back_off::BackOff,
    trouble::{Load, Trouble},
};

/// Whether a failed call of the store is made again.
pub(super) trait Patience: Send {
    /// A call failed: waits and returns, if it is to be made again.
    ///
    /// # Errors
    /// The same error, if it is to be told.
    fn failed(
        &mut self,
        error: Error,
        load: Load,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// A call was answered.
    fn answered(&mut self);
}

/// Makes a call of the store until it is answered, or `patience` ends.
pub(super) async fn ask<P, C, F, T>(patience: &mut P, load: Load, mut call: C) -> Result<T, Error>
where
    P: Patience,
    C: FnMut() -> F + Send,
    F: Future<Output = Result<T, Error>> + Send,
    T: Send,
{
    loop {
        match call().await {
            Ok(answer) => {
                patience.answered();
                return Ok(answer);
            }
            Err(error) => patience.failed(error, load).await?,
        }
    }
}

/// Tells every failure.
pub(super) struct NoPatience;

impl Patience for NoPatience {
    async fn failed(&mut self, error: Error, _: Load) -> Result<(), Error> {
        Err(error)
    }

    fn answered(&mut self) {}
}

/// What all deliveries of a loop know of the store.
#[derive(Debug, Default)]
pub(super) struct Health {
    failing: AtomicUsize,
    failures: AtomicU64,
}

impl Health {
    /// Whether a delivery waits for the store to work again.
    pub(super) fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed) > 0
    }

    /// How many calls of the store have failed.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }
}

/// Asks again, ever more slowly, until the loop ends; then once more.
pub(super) struct Patient<'l, S> {
    store: &'l S,
    back_off: BackOff,
    health: &'l Health,
    stop: &'l Signal,
    /// Failures in a row.
    failures: u32,
    is_failing: bool,
    is_last: bool,
}

impl<'l, S: Store> Patient<'l, S> {
    pub(super) fn new(
        store: &'l S,
        back_off: BackOff,
        health: &'l Health,
        stop: &'l Signal,
    ) -> Self {
        Self { store, back_off, health, stop, failures: 0, is_failing: false, is_last: false }
    }

    /// Sleeps, unless the loop ends.
    async fn pause(&self) {
        let sleep = self.store.sleep(self.back_off.pause(self.failures));
        select(sleep, pin!(self.stop.raised())).await;
    }

    fn set_failing(&mut self, is_failing: bool) {
        match (self.is_failing, is_failing) {
            (false, true) => self.health.failing.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.health.failing.fetch_sub(1, Ordering::Relaxed),
            _ => return,
        };
        self.is_failing = is_failing;
    }
}

impl<S: Store> Patience for Patient<'_, S> {
    async fn failed(&mut self, error: Error, load: Load) -> Result<(), Error> {
        let trouble = Trouble::of(&error, load);
        if matches!(trouble, Trouble::Store | Trouble::Closed) {
            self.health.failures.fetch_add(1, Ordering::Relaxed);
        }
        if self.is_last || matches!(trouble, Trouble::Closed | Trouble::Call) {
            return Err(error);
        }
        self.set_failing(trouble == Trouble::Store);
        self.failures = self.failures.saturating_add(1);
        if !self.stop.is_raised() {
            self.pause().await;
        }
        // A handler that has run would run again for want of its mark: that is worth one more call.
        self.is_last = self.stop.is_raised();
        Ok(())
    }

    fn answered(&mut self) {
        self.failures = 0;
        self.set_failing(false);
    }
}

impl<S> Drop for Patient<'_, S> {
    fn drop(&mut self) {
        if self.is_failing {
            self.health.failing.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
