//! Idem in memory.

use std::path::Path;

use idem_core::{BoxError, Idem};
use idem_memory::MemoryStore;
use tokio::runtime::Runtime;

use crate::{
    Side,
    idem_side::{IdemSide, count_each},
    shop,
};

/// Reading the clock takes as long as a good part of a call in memory: only one call in so many is timed.
pub(crate) const EVERY: usize = 64;

pub(crate) fn open(_: &Path) -> Result<Box<dyn Side>, BoxError> {
    Ok(Box::new(IdemSide {
        runtime: Runtime::new()?,
        idem: Idem::new(MemoryStore::new()),
        place: shop::put_order,
        count: Box::new(count_each),
        every: EVERY,
    }))
}
