//! What to do when the store fails: tell, or ask again.

use std::{
    pin::pin,
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use futures_util::future::select;

use super::{Options, recorder, signal::Signal};
use crate::{
    Error, ErrorKind, Key, Store,
    trouble::{Load, Trouble, may_be_the_stores},
};

/// After so many pauses a contended effect is its delivery's failure.
const MOST_CONTENDED: u32 = 3;

/// Why an event was not handled, or not marked.
#[derive(Debug)]
pub(super) enum Unhandled {
    /// The loop was told to end before its handler was begun.
    NotBegun,
    /// It was delivered more often than it may be, and was not handled.
    TooOften,
    /// The queue gave its delivery to another before its handler was begun.
    Lost,
    /// The time of the end is over, while its handler was at it or its store was asked.
    Cut,
    /// Something failed, and nothing is recorded as done.
    Failed(Error, Trouble),
    /// Its handler ran outside the store, and it could not be marked.
    Unmarked(Error, Trouble),
}

impl Unhandled {
    /// The same, of an event whose handler has run outside the store.
    pub(super) fn after_the_work(self) -> Self {
        match self {
            Self::Failed(error, trouble) => Self::Unmarked(error, trouble),
            other => other,
        }
    }

    /// As it is told, to the caller or to the queue.
    pub(super) fn into_error(self) -> Error {
        let why = match self {
            Self::Failed(error, _) | Self::Unmarked(error, _) => return error,
            Self::NotBegun => "it was not begun: the consumer ends",
            Self::TooOften => {
                "it was delivered more often than its attempts, and never settled: it may have killed its workers"
            }
            Self::Lost => "its delivery went to another before it was begun",
            Self::Cut => "the time for the consumer's end was over",
        };
        Error::nothing_done(ErrorKind::Work).with_source(why)
    }
}

impl From<Error> for Unhandled {
    fn from(error: Error) -> Self {
        Self::Failed(error, Trouble::Call)
    }
}

/// Whether a failed call of the store is made again.
pub(super) trait Patience: Send {
    /// Whether a handler may be begun now; then it is.
    fn begin(&mut self) -> bool;

    /// A call about `key` failed: waits and returns, if it is to be made again.
    ///
    /// # Errors
    /// The same error, if it is to be told.
    fn failed(
        &mut self,
        error: Error,
        load: Load,
        key: &Key,
    ) -> impl Future<Output = Result<(), Unhandled>> + Send;

    /// A call was answered.
    fn answered(&mut self);
}

/// Makes a call of the store about `key` until it is answered, or `patience` ends.
pub(super) async fn ask<P, C, F, T>(
    patience: &mut P,
    load: Load,
    key: &Key,
    mut call: C,
) -> Result<T, Unhandled>
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
            Err(error) => patience.failed(error, load, key).await?,
        }
    }
}

/// Tells every failure.
pub(super) struct NoPatience;

impl Patience for NoPatience {
    fn begin(&mut self) -> bool {
        true
    }

    async fn failed(&mut self, error: Error, load: Load, _: &Key) -> Result<(), Unhandled> {
        let trouble = Trouble::of(&error, load);
        Err(Unhandled::Failed(error, trouble))
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

/// Asks again, ever more slowly, until the loop is told to end. Then a mark whose handler has run outside is
/// tried on, for as long as the end may take, and any other call once more.
pub(super) struct Patient<'l, S> {
    store: &'l S,
    options: &'l Options,
    health: &'l Health,
    stop: &'l Signal,
    has_begun: &'l AtomicBool,
    /// Failures in a row.
    failures: u32,
    is_failing: bool,
    is_last: bool,
}

impl<'l, S: Store> Patient<'l, S> {
    pub(super) fn new(
        store: &'l S,
        options: &'l Options,
        health: &'l Health,
        stop: &'l Signal,
        has_begun: &'l AtomicBool,
    ) -> Self {
        let (failures, is_failing, is_last) = (0, false, false);
        Self { store, options, health, stop, has_begun, failures, is_failing, is_last }
    }

    /// What an error says: of one that may be the store's or the call's own, whether the store can be read.
    async fn trouble(&self, error: &Error, load: Load, key: &Key) -> Trouble {
        match Trouble::of(error, load) {
            Trouble::Call if may_be_the_stores(error) => {
                match recorder::look(self.store, key).await {
                    Ok(_) => Trouble::Call,
                    Err(_) => Trouble::Store,
                }
            }
            trouble => trouble,
        }
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
    fn begin(&mut self) -> bool {
        let may_begin = !self.stop.is_raised();
        self.has_begun.store(may_begin, Ordering::Relaxed);
        may_begin
    }

    async fn failed(&mut self, error: Error, load: Load, key: &Key) -> Result<(), Unhandled> {
        let trouble = self.trouble(&error, load, key).await;
        if matches!(trouble, Trouble::Store | Trouble::Closed) {
            self.health.failures.fetch_add(1, Ordering::Relaxed);
            self.options.tell(&error);
        }
        // What has run outside would run again for want of its mark.
        let is_mark = load == Load::Nothing && self.has_begun.load(Ordering::Relaxed);
        let is_over = self.is_last && !is_mark;
        // Who loses race after race through many pauses races against its own effect.
        let is_hopeless = matches!(error.kind(), ErrorKind::Contended { .. })
            && load == Load::Effect
            && self.failures >= MOST_CONTENDED;
        if is_hopeless {
            return Err(Unhandled::Failed(error, Trouble::Call));
        }
        if is_over || matches!(trouble, Trouble::Closed | Trouble::Call) {
            return Err(Unhandled::Failed(error, trouble));
        }
        self.set_failing(trouble == Trouble::Store);
        self.failures = self.failures.saturating_add(1);
        let mut pause = self.options.pauses().pause(self.failures);
        if let ErrorKind::InProgress { retry_after, .. } = error.kind() {
            // Below a millisecond a sleep may be none.
            pause = pause.min((*retry_after).max(Duration::from_millis(1)));
        }
        if !self.stop.is_raised() {
            select(self.store.sleep(pause), pin!(self.stop.raised())).await;
            if self.stop.is_raised() {
                // What is left of time is short.
                self.failures = 0;
            }
        } else if is_mark {
            self.store.sleep(pause).await;
        }
        self.is_last = self.stop.is_raised();
        Ok(())
    }

    fn answered(&mut self) {
        self.failures = 0;
        self.is_last = false;
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
