//! `sled:`

use std::sync::Arc;

use idem_core::{DynStore, Error, erase};
use idem_sled::{SledStore, Synchronous};

use super::{Url, bad_value, invalid, millis, unknown_option};

pub(super) async fn open(url: Url<'_>) -> Result<Arc<DynStore>, Error> {
    if url.path.starts_with("//") {
        let problem = "`sled://` would begin a host: write `sled:orders`, or `sled:/` and the rest of an \
                       absolute path";
        return Err(invalid("URL", problem.to_string()));
    }
    if url.path.is_empty() {
        return Err(invalid("URL", "its path names no folder: write `sled:orders`".to_string()));
    }
    let mut builder = SledStore::builder();
    for (name, value) in &url.options {
        builder = match &**name {
            "synchronous" => builder.synchronous(match &**value {
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
    Ok(erase(builder.open(&*url.path).await?))
}
