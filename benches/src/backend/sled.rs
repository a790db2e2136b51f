//! Idem on sled.

use std::path::Path;

use idem_core::{BoxError, Idem};
use idem_sled::SledStore;
use tokio::runtime::Runtime;

use crate::{
    Side,
    idem_side::{IdemSide, count_each},
    shop,
};

pub(crate) fn open(folder: &Path) -> Result<Box<dyn Side>, BoxError> {
    let runtime = Runtime::new()?;
    Ok(Box::new(IdemSide {
        idem: Idem::new(runtime.block_on(SledStore::open(folder))?),
        runtime,
        place: shop::put_order,
        count: Box::new(count_each),
        every: 1,
    }))
}
