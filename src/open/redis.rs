//! `redis:`, `rediss:`, `redis+unix:`, `redis+cluster:`, `rediss+cluster:`

use std::{fmt::Write as _, sync::Arc};

use form_urlencoded::byte_serialize;
use idem_core::{DynStore, Error, erase};
use idem_redis::RedisStore;

use super::{Url, bad_value, millis, unknown_option};

const OPTIONS: &str = "`prefix`, `speculative`, `connection_timeout_ms` and `response_timeout_ms`";

/// Of a socket.
const OF_SOCKETS: &str = "`db`, `user`, `pass`, `prefix`, `speculative`, `connection_timeout_ms` and `response_timeout_ms`";

pub(super) async fn open(scheme: &str, url: Url<'_>) -> Result<Arc<DynStore>, Error> {
    let mut builder = RedisStore::builder();
    // The rest is the driver's: a password may hold escapes that must not be undone here.
    let mut server = format!("{scheme}:{}", url.raw_path);
    for (name, value) in &url.options {
        builder = match &**name {
            "prefix" => builder.prefix(&**value),
            "speculative" => {
                let speculative =
                    value.parse().map_err(|_| bad_value(name, "`true` or `false`"))?;
                builder.speculative(speculative)
            }
            "connection_timeout_ms" => builder.connection_timeout(millis(name, value)?),
            "response_timeout_ms" => builder.response_timeout(millis(name, value)?),
            // What other URLs say before the host, a socket's says here.
            "db" | "user" | "pass" if scheme == "redis+unix" => {
                let sign = if server.contains('?') { '&' } else { '?' };
                let value: String = byte_serialize(value.as_bytes()).collect();
                // Writing to a string never fails.
                let _ = write!(server, "{sign}{name}={value}");
                builder
            }
            _ if scheme == "redis+unix" => return Err(unknown_option(scheme, name, OF_SOCKETS)),
            _ => return Err(unknown_option(scheme, name, OPTIONS)),
        };
    }
    Ok(erase(builder.open(&server).await?))
}
