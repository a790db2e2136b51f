//! `memory:`

use std::{num::NonZeroUsize, sync::Arc};

use idem_core::{DynStore, Error, erase};
use idem_memory::MemoryStore;

use super::{Url, bad_value, invalid, unknown_option};

pub(super) fn open(url: Url<'_>) -> Result<Arc<DynStore>, Error> {
    if !url.path.is_empty() {
        return Err(invalid("URL", "`memory:` takes no path: leave it out".to_string()));
    }
    let mut builder = MemoryStore::builder();
    for (name, value) in &url.options {
        match &**name {
            "capacity" => {
                let entries: NonZeroUsize = value
                    .parse()
                    .map_err(|_| bad_value(name, value, "a number of entries, 1 or more"))?;
                builder = builder.capacity(entries.get());
            }
            _ => return Err(unknown_option("memory", name, "`capacity`")),
        }
    }
    Ok(erase(builder.build()))
}
