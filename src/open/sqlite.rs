//! `sqlite:`

use std::sync::Arc;

use idem_core::{DynStore, Error, erase};
use idem_sqlite::{SqliteStore, Synchronous};

use super::{Url, bad_value, invalid, millis, unknown_option};

const OPTIONS: &str = "`synchronous`, `busy_timeout_ms` and `dedicated_writer`";

pub(super) async fn open(url: Url<'_>) -> Result<Arc<DynStore>, Error> {
    if url.path.starts_with("//") {
        let problem = "`sqlite://` would begin a host: write `sqlite:orders.db`, or `sqlite:/` and \
                       the rest of an absolute path";
        return Err(invalid("URL", problem.to_string()));
    }
    if url.path.is_empty() || (url.path.starts_with(':') && url.path != ":memory:") {
        let problem = "its path names no file: write `sqlite:orders.db`, or `sqlite::memory:`";
        return Err(invalid("URL", problem.to_string()));
    }
    let mut builder = SqliteStore::builder();
    for (name, value) in &url.options {
        builder = match &**name {
            "synchronous" => builder.synchronous(match &**value {
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
    Ok(erase(builder.open(&*url.path).await?))
}
