//! A store by its URL.

use std::sync::Arc;

use idem_core::{
    DynStore, Error,
    url::{Url, invalid},
};

#[cfg(feature = "redis")]
mod redis;

/// Every scheme that there is, and the feature that brings it.
const SCHEMES: [(&str, &str); 8] = [
    ("memory", "memory"),
    ("sqlite", "sqlite"),
    ("sled", "sled"),
    ("redis", "redis"),
    ("redis+unix", "redis"),
    ("rediss", "redis-tls"),
    ("redis+cluster", "redis-cluster"),
    ("rediss+cluster", "redis-cluster"),
];

/// Opens the store that a URL names, for a program that chooses at run time.
///
/// | URL | store | options |
/// | --- | --- | --- |
/// | `memory:` | a new one in memory | `capacity`: receipts and values at most, together |
/// | `sqlite:orders.db` | that file | `synchronous`: `full` or `normal`; `busy_timeout_ms`; `dedicated_writer`: `true` or `false` |
/// | `sqlite::memory:` | a new one in SQLite's memory | as above |
/// | `sled:orders` | that folder | `synchronous`: `full` or `flush`; `busy_timeout_ms` |
/// | `redis://user:password@host:6379/0` | that server and database | `prefix`; `speculative`: `true` or `false`; `connection_timeout_ms`, of one connection; `response_timeout_ms`, of one answer, and of trying again after a first failure |
/// | `rediss://host`, `redis+unix:///path`, `redis+cluster://a,b,c` | over TLS, a socket, a cluster | as above; of a socket also `db`, `user`, `pass` |
///
/// Options follow a `?` and are separated by `&`: `sqlite:orders.db?synchronous=normal`. In a path, `%`, `?`
/// and `#` are written `%25`, `%3F` and `%23`, in a user's name and a password `@`, `:` and `/` as `%40`, `%3A` and `%2F` as
/// well, and in an option `&` as `%26`. With a store chosen so, effects have the portable
/// [`Transaction`](idem_core::Transaction).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), idem_store::Error> {
/// use idem_store::{Idem, Key, Outcome, Request, Transaction};
/// let idem = Idem::new(idem_store::open("memory:?capacity=1000").await?);
/// let request = Request::new(Key::new("north", "sign-up", "intent-a")?);
/// let outcome = idem
///     .execute(&request, |tx| {
///         tx.put(b"signed-up", b"yes")?;
///         Ok(1)
///     })
///     .await?;
/// assert_eq!(outcome, Outcome::Created(1));
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`ErrorKind::InvalidSetting`](crate::ErrorKind::InvalidSetting) for what is no URL, an unknown scheme, one whose
/// feature is off, or an option that is unknown, given twice or of no good value; and whatever the store has to say of
/// the rest.
///
/// # Cancel safety
/// As opening that store.
pub async fn open(url: &str) -> Result<Arc<DynStore>, Error> {
    let parts = Url::parse(url)?;
    // Schemes have no case: RFC 3986, section 3.1.
    match &*parts.scheme().to_ascii_lowercase() {
        #[cfg(feature = "memory")]
        "memory" => Ok(idem_core::erase(idem_memory::MemoryStore::open_url(url)?)),
        #[cfg(feature = "redis")]
        scheme @ ("redis" | "redis+unix" | "rediss" | "redis+cluster" | "rediss+cluster") => {
            Ok(idem_core::erase(redis::open(scheme, &parts).await?))
        }
        #[cfg(feature = "sled")]
        "sled" => Ok(idem_core::erase(idem_sled::SledStore::open_url(url).await?)),
        #[cfg(feature = "sqlite")]
        "sqlite" => Ok(idem_core::erase(idem_sqlite::SqliteStore::open_url(url).await?)),
        scheme => Err(unknown_scheme(scheme, parts.raw_path())),
    }
}

fn unknown_scheme(scheme: &str, rest: &str) -> Error {
    if let Some((_, feature)) = SCHEMES.iter().find(|(known, _)| *known == scheme) {
        return invalid("URL", format!("build with the feature `{feature}` to open `{scheme}:`"));
    }
    let known = SCHEMES.map(|(known, _)| format!("`{known}:`")).join(", ");
    // Before an `@`, what looks like a scheme may be a part of a password.
    let shown = if rest.contains('@') { "its scheme" } else { &format!("`{scheme}:`") };
    invalid("URL", format!("{shown} is no scheme that is known: use one of {known}"))
}
