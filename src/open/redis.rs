//! `redis:`, `rediss:`, `redis+unix:`, `redis+cluster:`, `rediss+cluster:`

use std::fmt::Write as _;

use form_urlencoded::byte_serialize;
use idem_core::{
    Error,
    url::{Url, invalid, millis},
};
use idem_redis::{RedisBuilder, RedisStore};

const MILLIS: &str = "a number of milliseconds";

const OPTIONS: &str = "`prefix`, `speculative`, `connection_timeout_ms` and `response_timeout_ms`";

/// As [`OPTIONS`], of a socket.
const ALL_OF_SOCKETS: &str = "`db`, `user`, `pass`, `prefix`, `speculative` (`true` or `false`), `connection_timeout_ms` and \
                     `response_timeout_ms` (numbers of milliseconds)";

/// What other URLs say before the host, a socket's says in options.
const OF_SOCKETS: [&str; 3] = ["db", "user", "pass"];

pub(super) async fn open(scheme: &str, url: &Url<'_>) -> Result<RedisStore, Error> {
    let mut builder = RedisStore::builder();
    // The rest is the driver's: a password may hold escapes that must not be undone here.
    let mut server = format!("{scheme}:{}", url.raw_path());
    let is_socket = scheme == "redis+unix";
    for (name, value) in url.options() {
        if is_socket && OF_SOCKETS.contains(&name) {
            let sign = if server.contains('?') { '&' } else { '?' };
            let value: String = byte_serialize(value.as_bytes()).collect();
            // Writing to a string never fails.
            let _ = write!(server, "{sign}{name}={value}");
            continue;
        }
        builder = with_option(builder, name, value).map_err(|error| match is_socket {
            // What follows an `&` in its password looks like an option: so none is shown.
            true => invalid(
                "option",
                format!("one is unknown or has a bad value: the URL of a socket takes {ALL_OF_SOCKETS}; in a password write `&` as %26"),
            ),
            false => error,
        })?;
    }
    builder.open(&server).await
}

fn with_option(builder: RedisBuilder, name: &str, value: &str) -> Result<RedisBuilder, Error> {
    Ok(match name {
        "prefix" => builder.prefix(value),
        "speculative" => {
            builder.speculative(value.parse().map_err(|_| bad(name, "`true` or `false`"))?)
        }
        "connection_timeout_ms" => {
            builder.connection_timeout(millis(name, value).map_err(|_| bad(name, MILLIS))?)
        }
        "response_timeout_ms" => {
            builder.response_timeout(millis(name, value).map_err(|_| bad(name, MILLIS))?)
        }
        // Its name is not shown, nor the value of any: what follows a `?` in a password looks like an option, if the
        // URL was cut before its `@`.
        _ => {
            let problem =
                format!("one is unknown: it has {OPTIONS}; in a password write `?` as %3F");
            return Err(invalid("option", problem));
        }
    })
}

fn bad(name: &str, wanted: &str) -> Error {
    invalid("option", format!("`{name}` has another value: give {wanted}"))
}
