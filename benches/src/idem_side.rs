//! Idem's side of a pair.

use std::sync::Arc;

use idem_core::{
    BoxError, EffectError, Idem, Outcome, Store,
    consumer::{Marked, Recorder},
};
use tokio::runtime::Runtime;

use crate::{
    Load, Order, Placed, Sample, shop,
    side::{Side, Stored},
    tasks::{self, Caller},
};

/// What places an order in a transaction of a store.
pub(crate) type Place<Tx> = fn(&mut Tx, u64) -> Result<Placed, EffectError>;

/// Counts what is stored.
pub(crate) type Count<S> = Box<dyn Fn(&Runtime, &Idem<S>, &Load) -> Result<Stored, BoxError>>;

/// Idem over a store.
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
        let caller = Calls { idem: self.idem.clone(), place: self.place };
        tasks::run(&self.runtime, load, self.every, &caller)
    }

    fn stored(&mut self, load: &Load) -> Result<Stored, BoxError> {
        (self.count)(&self.runtime, &self.idem, load)
    }
}

struct Calls<S: Store> {
    idem: Idem<S>,
    place: Place<S::Transaction>,
}

impl<S: Store> Clone for Calls<S> {
    fn clone(&self) -> Self {
        Self { idem: self.idem.clone(), place: self.place }
    }
}

impl<S: Store + 'static> Caller for Calls<S> {
    async fn place(&self, order: &Order) -> Result<Outcome<Placed>, BoxError> {
        let (place, number) = (self.place, order.number);
        Ok(self.idem.execute(&order.request, move |tx| place(tx, number)).await?)
    }

    async fn mark(&self, order: &Order) -> Result<Marked, BoxError> {
        Ok(self.idem.mark_processed(shop::CONSUMER, order.event()).await?)
    }
}

/// Counts what [`shop::put_order`] put, and receipts and marks, one by one.
pub(crate) fn count_each<S: Store>(
    runtime: &Runtime,
    idem: &Idem<S>,
    load: &Load,
) -> Result<Stored, BoxError> {
    let mut stored = Stored { orders: 0, receipts: 0 };
    runtime.block_on(async {
        for order in load.distinct() {
            let key = load.key(order)?;
            let value = idem.value(&key.space(), &order.number.to_be_bytes()).await?;
            stored.orders += usize::from(value.is_some());
            stored.receipts += usize::from(idem.receipt(&key).await?.is_some());
        }
        Ok(stored)
    })
}
