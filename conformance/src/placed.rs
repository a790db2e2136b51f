//! A fixture that is told apart by its store's type alone, so that the cases are compiled once for each type of
//! store: however many fixtures a backend has, and in this crate behind [`DynStore`].

use std::{
    any::Any,
    fmt,
    sync::{Arc, LazyLock},
};

use async_trait::async_trait;
use idem_core::{BoxFuture, DynStore, ManualClock, Store, erase};

use crate::{
    Case, Fixture, HostileEffect,
    run::{Running, Runtime, run_on},
    traced::Traced,
};

/// A fixture, whatever its type.
#[async_trait]
pub(crate) trait Place<S: Store>: Send + Sync {
    async fn open(&self, clock: ManualClock) -> S;

    async fn refuse_receipts(&self, refuse: bool);

    fn hostile_effects(&self) -> Vec<(&'static str, HostileEffect<S>)>;
}

#[async_trait]
impl<F: Fixture> Place<F::Store> for F {
    async fn open(&self, clock: ManualClock) -> F::Store {
        Fixture::open(self, clock).await
    }

    async fn refuse_receipts(&self, refuse: bool) {
        Fixture::refuse_receipts(self, refuse).await;
    }

    fn hostile_effects(&self) -> Vec<(&'static str, HostileEffect<F::Store>)> {
        Fixture::hostile_effects(self)
    }
}

pub(crate) type Make<S> = fn() -> BoxFuture<Box<dyn Place<S>>>;

tokio::task_local! {
    /// What the case that runs makes its places by: a `Make`.
    static MAKE: Arc<dyn Any + Send + Sync>;
}

/// A place of the fixture that the case was started for.
#[doc(hidden)]
pub struct Placed<S>(Box<dyn Place<S>>);

#[async_trait]
impl<S: Store> Fixture for Placed<S> {
    type Store = S;

    async fn create() -> Self {
        let make = MAKE.with(|make| make.downcast_ref::<Make<S>>().copied());
        Self(make.expect("a case is started for its fixture")().await)
    }

    async fn open(&self, clock: ManualClock) -> S {
        self.0.open(clock).await
    }

    async fn refuse_receipts(&self, refuse: bool) {
        self.0.refuse_receipts(refuse).await;
    }

    fn hostile_effects(&self) -> Vec<(&'static str, HostileEffect<S>)> {
        self.0.hostile_effects()
    }
}

impl<S> fmt::Debug for Placed<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Placed").finish_non_exhaustive()
    }
}

/// A fixture's store behind [`DynStore`].
struct Dynamic<F>(F);

#[async_trait]
impl<F: Fixture> Fixture for Dynamic<F>
where
    <F::Store as Store>::Transaction: Sized,
{
    type Store = Arc<DynStore>;

    async fn create() -> Self {
        Self(F::create().await)
    }

    async fn open(&self, clock: ManualClock) -> Arc<DynStore> {
        erase(self.0.open(clock).await)
    }

    async fn refuse_receipts(&self, refuse: bool) {
        self.0.refuse_receipts(refuse).await;
    }
}

/// Makes places of a fixture whose store is behind [`DynStore`].
#[cfg(feature = "model")]
pub(crate) fn make_dynamic<F: Fixture>() -> Make<Arc<DynStore>>
where
    <F::Store as Store>::Transaction: Sized,
{
    || Box::pin(async { Box::new(Dynamic(F::create().await)) as Box<dyn Place<_>> })
}

/// What the cases of a fixture are written for.
#[doc(hidden)]
pub type PlaceOf<F> = Traced<Placed<<F as Fixture>::Store>>;

/// Runs a case, written for [`PlaceOf`] the fixture, on a fixture's store.
///
/// # Panics
/// If the store does not keep the rule.
#[doc(hidden)]
pub fn run<F: Fixture>(name: &'static str, runtime: Runtime, case: fn() -> Running) {
    let make: Make<F::Store> =
        || Box::pin(async { Box::new(F::create().await) as Box<dyn Place<F::Store>> });
    run_on(name, runtime, move || Box::pin(MAKE.scope(Arc::new(make), case())));
}

/// Every case of the suite behind [`DynStore`].
pub(crate) fn cases() -> &'static [Case] {
    static CASES: LazyLock<Vec<Case>> =
        LazyLock::new(|| crate::cases!(Traced<Placed<Arc<DynStore>>>).to_vec());
    &CASES
}

/// Runs the case of that name on a fixture's store behind [`DynStore`].
///
/// # Panics
/// If the store does not keep the rule.
#[doc(hidden)]
pub fn run_dynamic<F: Fixture>(name: &'static str, runtime: Runtime)
where
    <F::Store as Store>::Transaction: Sized,
{
    let case = cases().iter().find(|case| case.name == name);
    let case = case.unwrap_or_else(|| panic!("the suite has no case {name}"));
    run::<Dynamic<F>>(name, runtime, case.run);
}
