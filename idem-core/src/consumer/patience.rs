//! What to do when the store fails: tell, or ask again.

use std::{
    pin::pin,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

use futures_util::future::select;

use super::{back_off::BackOff, signal::Signal};
use crate::{Certainty, Error, ErrorKind, Store};

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

/// What a call of the store carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// The handler's effect, which may itself be what the store cannot commit.
    Effect,
    /// Nothing of the handler's.
    Nothing,
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

/// What an error says beyond its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The store fails, as likely as not for every call, until somebody mends it.
    Store,
    /// The key is in use; it will not be for ever.
    Key,
    /// The store was closed.
    Closed,
    /// The call fails, and would again.
    Call,
}

impl Trouble {
    pub(super) fn of(error: &Error, load: Load) -> Self {
        match error.kind() {
            ErrorKind::Closed => Self::Closed,
            ErrorKind::InProgress { .. } | ErrorKind::Contended { .. } => Self::Key,
            ErrorKind::Busy { .. }
            | ErrorKind::Unreachable { .. }
            | ErrorKind::ReadOnly
            | ErrorKind::Full
            | ErrorKind::Denied => Self::Store,
            // A commit that fails in the engine's own way may do so for what the effect wrote.
            ErrorKind::Store if load == Load::Nothing => Self::Store,
            // What became of it is settled by asking again.
            _ if error.certainty() != Certainty::NothingDone => Self::Store,
            _ => Self::Call,
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;
    use std::time::Duration;

    #[test]
    fn what_passes_is_told_from_what_is_the_calls_own() {
        let of = |kind| Error::nothing_done(kind);
        let waited = Duration::ZERO;
        let until = Timestamp::from_millis(1);
        for (error, with_effect, without) in [
            (of(ErrorKind::Busy { waited }), Trouble::Store, Trouble::Store),
            (of(ErrorKind::Unreachable { waited }), Trouble::Store, Trouble::Store),
            (of(ErrorKind::ReadOnly), Trouble::Store, Trouble::Store),
            (of(ErrorKind::Full), Trouble::Store, Trouble::Store),
            (of(ErrorKind::Denied), Trouble::Store, Trouble::Store),
            (of(ErrorKind::Store), Trouble::Call, Trouble::Store),
            (Error::new(ErrorKind::Store, Certainty::Unknown), Trouble::Store, Trouble::Store),
            (of(ErrorKind::Contended { attempts: 9 }), Trouble::Key, Trouble::Key),
            (of(ErrorKind::InProgress { until }), Trouble::Key, Trouble::Key),
            (of(ErrorKind::Closed), Trouble::Closed, Trouble::Closed),
            (of(ErrorKind::Work), Trouble::Call, Trouble::Call),
            (of(ErrorKind::Effect), Trouble::Call, Trouble::Call),
            (of(ErrorKind::Panicked(String::new())), Trouble::Call, Trouble::Call),
            (of(ErrorKind::ResultTooLarge { length: 2, limit: 1 }), Trouble::Call, Trouble::Call),
            (of(ErrorKind::Damaged { problem: String::new() }), Trouble::Call, Trouble::Call),
        ] {
            assert_eq!(Trouble::of(&error, Load::Effect), with_effect, "{error:?}");
            assert_eq!(Trouble::of(&error, Load::Nothing), without, "{error:?}");
        }
    }
}
