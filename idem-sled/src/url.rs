//! A store by its URL: `sled:orders?synchronous=flush`.

use idem_core::{
    Error,
    url::{Url, bad_value, invalid, millis, unknown_option},
};

use crate::{SledBuilder, SledStore, Synchronous};

impl SledStore {
    /// Opens the folder that a URL names: `sled:orders`.
    ///
    /// Options follow a `?` and are separated by `&`: `synchronous` (`full` or `flush`) and `busy_timeout_ms`. In the
    /// path, `%`, `?` and `#` are written `%25`, `%3F` and `%23`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSetting`](idem_core::ErrorKind::InvalidSetting) for another scheme, a path that names no
    /// folder, or an option that is unknown, given twice or of no good value; else as [`SledBuilder::open`].
    pub async fn open_url(url: &str) -> Result<Self, Error> {
        Self::builder().open_url(url).await
    }
}

impl SledBuilder {
    /// Opens the folder that a URL names, as [`SledStore::open_url`]; an option of the URL replaces that of the builder.
    ///
    /// # Errors
    /// As [`SledStore::open_url`].
    pub async fn open_url(self, url: &str) -> Result<SledStore, Error> {
        let url = Url::of_scheme(url, "sled")?;
        if url.path().starts_with("//") {
            let problem = "`sled://` would begin a host: write `sled:orders`, or `sled:/` and the rest of an \
                           absolute path";
            return Err(invalid("URL", problem));
        }
        if url.path().is_empty() {
            return Err(invalid("URL", "its path names no folder: write `sled:orders`"));
        }
        let mut builder = self;
        for (name, value) in url.options() {
            builder = match name {
                "synchronous" => builder.synchronous(match value {
                    "full" => Synchronous::Full,
                    "flush" => Synchronous::Flush,
                    _ => return Err(bad_value(name, value, "`full` or `flush`")),
                }),
                "busy_timeout_ms" => builder.busy_timeout(millis(name, value)?),
                _ => {
                    let known = "`synchronous` and `busy_timeout_ms`";
                    return Err(unknown_option("sled", name, known));
                }
            };
        }
        builder.open(url.path()).await
    }
}
