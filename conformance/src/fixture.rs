//! What a backend brings to the suite.

use async_trait::async_trait;
use idem_core::{EffectError, ManualClock, Store};

/// A place where the suite opens the backend's store.
#[async_trait]
pub trait Fixture: Send + Sync + Sized + 'static {
    /// The backend's store.
    type Store: Store + 'static;

    /// A fresh, empty place that shares nothing with other places: a temporary file, a prefix of its own.
    async fn create() -> Self;

    /// A handle on the place. Handles that are open at the same time are on the same data. Called after the
    /// last one was closed, it finds the data again if the store keeps any.
    async fn open(&self, clock: ManualClock) -> Self::Store;

    /// From now on the store cannot write receipts (`refuse`), or it can again: what a full disk, a
    /// capacity or a trigger can do. Used to inject an error between an effect and its receipt. The store must be
    /// certain that a call which is refused did nothing, and replay meanwhile what it has.
    ///
    /// Asked only of backends that declare `receipt_faults`.
    async fn refuse_receipts(&self, refuse: bool) {
        let _ = refuse;
        unreachable!("a fixture that declares receipt_faults implements this");
    }

    /// Effects that end the store's transaction, or try to, by every means of the engine; each writes a
    /// value first by [`Transaction::put`](idem_core::Transaction::put) under the name `hostile`.
    ///
    /// Asked only of backends that declare `hostile_effects`.
    fn hostile_effects(&self) -> Vec<(&'static str, HostileEffect<Self::Store>)> {
        Vec::new()
    }
}

/// An effect that must fail, whatever it returns.
pub type HostileEffect<S> = fn(&mut <S as Store>::Transaction) -> Result<(), EffectError>;
