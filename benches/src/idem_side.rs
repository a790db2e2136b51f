//! Idem's side of a pair: one task per caller.

use std::sync::Arc;

use idem_core::{BoxError, EffectError, Idem, Outcome, Store};
use tokio::{runtime::Runtime, sync::Barrier};

use crate::{
    Load, Order, Placed, Sample,
    sample::Run,
    side::{Side, Stored},
};

/// What places an order in a transaction of a store.
pub(crate) type Place<Tx> = fn(&mut Tx, u64) -> Result<Placed, EffectError>;

/// Counts what is stored.
pub(crate) type Count<S> = Box<dyn Fn(&Runtime, &Idem<S>, &Load) -> Result<Stored, BoxError>>;

/// Idem over a store, on tokio's multi-thread runtime as it is by default: what a service has. A single
/// caller is one task of it.
pub(crate) struct IdemSide<S: Store> {
    pub(crate) runtime: Runtime,
    pub(crate) idem: Idem<S>,
    pub(crate) place: Place<S::Transaction>,
    pub(crate) count: Count<S>,
    /// One call in so many is timed.
    pub(crate) every: usize,
}

impl<S: Store + 'static> Side for IdemSide<S> {
    fn run(&mut self, load: &Arc<Load>) -> Result<Sample, BoxError> {
        if let Some(order) = load.first() {
            // Its answer says nothing that the count afterwards does not.
            let _: Outcome<Placed> = self.runtime.block_on(place(&self.idem, order, self.place))?;
        }
        let start = Arc::new(Barrier::new(load.callers()));
        let callers: Vec<_> = (0..load.callers())
            .map(|_| {
                let (idem, load, start) = (self.idem.clone(), Arc::clone(load), Arc::clone(&start));
                self.runtime.spawn(call(idem, load, start, self.place, self.every))
            })
            .collect();
        let runs = self.runtime.block_on(async {
            let mut runs = Vec::new();
            for caller in callers {
                runs.push(caller.await??);
            }
            Ok::<_, BoxError>(runs)
        })?;
        Ok(Sample::of(runs, load))
    }

    fn stored(&mut self, load: &Load) -> Result<Stored, BoxError> {
        (self.count)(&self.runtime, &self.idem, load)
    }
}

/// One caller.
async fn call<S: Store>(
    idem: Idem<S>,
    load: Arc<Load>,
    start: Arc<Barrier>,
    effect: Place<S::Transaction>,
    every: usize,
) -> Result<Run, BoxError> {
    start.wait().await;
    let mut run = Run::start(every);
    for order in load.calls() {
        let start = run.call();
        let outcome = place(&idem, order, effect).await?;
        run.answered(start, order, outcome)?;
    }
    Ok(run.end())
}

async fn place<S: Store>(
    idem: &Idem<S>,
    order: &Order,
    effect: Place<S::Transaction>,
) -> Result<Outcome<Placed>, idem_core::Error> {
    let number = order.number;
    idem.execute(&order.request, move |tx| effect(tx, number)).await
}
