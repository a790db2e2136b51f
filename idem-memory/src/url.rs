//! A store by its URL: `memory:?capacity=1000`.

use std::num::NonZeroUsize;

use idem_core::{
    Error,
    url::{Url, bad_value, invalid, unknown_option},
};

use crate::{MemoryBuilder, MemoryStore};

impl MemoryStore {
    /// Makes an empty store by a URL: `memory:`, or `memory:?capacity=1000` for one with at most so many receipts and
    /// values together.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSetting`](idem_core::ErrorKind::InvalidSetting) for another scheme, a path, or an option that
    /// is unknown, given twice or of no good value.
    pub fn open_url(url: &str) -> Result<Self, Error> {
        Self::builder().open_url(url)
    }
}

impl MemoryBuilder {
    /// Makes an empty store by a URL, as [`MemoryStore::open_url`]; an option of the URL replaces that of the builder.
    ///
    /// # Errors
    /// As [`MemoryStore::open_url`].
    pub fn open_url(self, url: &str) -> Result<MemoryStore, Error> {
        let url = Url::of_scheme(url, "memory")?;
        if !url.path().is_empty() {
            return Err(invalid("URL", "`memory:` takes no path: leave it out"));
        }
        let mut builder = self;
        for (name, value) in url.options() {
            match name {
                "capacity" => {
                    let entries: NonZeroUsize = value
                        .parse()
                        .map_err(|_| bad_value(name, value, "a number of entries, 1 or more"))?;
                    builder = builder.capacity(entries.get());
                }
                _ => return Err(unknown_option("memory", name, "`capacity`")),
            }
        }
        Ok(builder.build())
    }
}
