//! Idem in memory.

use std::path::Path;

use idem_core::{BoxError, Idem};
use idem_memory::MemoryStore;
use tokio::runtime::Runtime;

use crate::{Load, Side, idem_side::IdemSide, shop, side::Stored};

/// Reading the clock takes as long as a good part of a call in memory: only one call in so many is timed.
pub(crate) const EVERY: usize = 64;

pub(crate) fn open(_: &Path) -> Result<Box<dyn Side>, BoxError> {
    Ok(Box::new(IdemSide {
        runtime: Runtime::new()?,
        idem: Idem::new(MemoryStore::new()),
        place: shop::put_order,
        count: Box::new(|runtime, idem, load| runtime.block_on(count(idem, load))),
        every: EVERY,
    }))
}

async fn count(idem: &Idem<MemoryStore>, load: &Load) -> Result<Stored, BoxError> {
    let mut stored = Stored { orders: 0, receipts: 0 };
    for order in load.distinct() {
        let key = order.request.key();
        let value = idem.value(&key.space(), &order.number.to_be_bytes()).await?;
        stored.orders += usize::from(value.is_some());
        stored.receipts += usize::from(idem.receipt(key).await?.is_some());
    }
    Ok(stored)
}
