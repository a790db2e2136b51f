//! A store by its URL: `sqlite:orders.db?synchronous=normal`.

use idem_core::{
    Error,
    url::{Url, bad_value, invalid, millis, unknown_option},
};

use crate::{SqliteBuilder, SqliteStore, Synchronous};

const OPTIONS: &str = "`synchronous`, `busy_timeout_ms` and `dedicated_writer`";

impl SqliteStore {
    /// Opens the database that a URL names: `sqlite:orders.db`, or `sqlite::memory:` for one of its own in memory.
    ///
    /// Options follow a `?` and are separated by `&`: `synchronous` (`full` or `normal`), `busy_timeout_ms` and
    /// `dedicated_writer` (`true` or `false`). In the path, `%`, `?` and `#` are written `%25`, `%3F` and `%23`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), idem_core::Error> {
    /// use idem_sqlite::SqliteStore;
    /// let store = SqliteStore::open_url("sqlite::memory:?busy_timeout_ms=500").await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSetting`](idem_core::ErrorKind::InvalidSetting) for another scheme, a path that names no file,
    /// or an option that is unknown, given twice or of no good value; else as [`SqliteBuilder::open`].
    pub async fn open_url(url: &str) -> Result<Self, Error> {
        Self::builder().open_url(url).await
    }
}

impl SqliteBuilder {
    /// Opens the database that a URL names, as [`SqliteStore::open_url`]; an option of the URL replaces that of the
    /// builder.
    ///
    /// # Errors
    /// As [`SqliteStore::open_url`].
    pub async fn open_url(self, url: &str) -> Result<SqliteStore, Error> {
        let url = Url::of_scheme(url, "sqlite")?;
        if url.path().starts_with("//") {
            let problem = "`sqlite://` would begin a host: write `sqlite:orders.db`, or `sqlite:/` and \
                           the rest of an absolute path";
            return Err(invalid("URL", problem));
        }
        if url.path().is_empty() || (url.path().starts_with(':') && url.path() != ":memory:") {
            let problem = "its path names no file: write `sqlite:orders.db`, or `sqlite::memory:`";
            return Err(invalid("URL", problem));
        }
        let mut builder = self;
        for (name, value) in url.options() {
            builder = match name {
                "synchronous" => builder.synchronous(match value {
                    "full" => Synchronous::Full,
                    "normal" => Synchronous::Normal,
                    _ => return Err(bad_value(name, value, "`full` or `normal`")),
                }),
                "busy_timeout_ms" => builder.busy_timeout(millis(name, value)?),
                "dedicated_writer" => {
                    let dedicated =
                        value.parse().map_err(|_| bad_value(name, value, "`true` or `false`"))?;
                    builder.dedicated_writer(dedicated)
                }
                _ => return Err(unknown_option("sqlite", name, OPTIONS)),
            };
        }
        builder.open(url.path()).await
    }
}
