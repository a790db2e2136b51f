//! How a store is opened.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64},
    },
    time::Duration,
};

use idem_core::{Clock, Error, ErrorKind, Span};
use tokio::sync::RwLock;

use crate::{
    RedisStore,
    inner::Inner,
    link::{Link, Timeouts},
    names::Prefix,
    server,
    server_time::ServerTime,
    target::{Options, Target},
};

/// Options for a [`RedisStore`]. Made by [`RedisStore::builder`].
#[must_use = "options do nothing until a store is opened"]
pub struct RedisBuilder {
    prefix: String,
    clock: Option<Box<dyn Clock>>,
    speculative: bool,
    connection_timeout: Duration,
    response_timeout: Duration,
    #[cfg(feature = "tls")]
    root_certificates: Option<Vec<u8>>,
}

impl Default for RedisBuilder {
    fn default() -> Self {
        Self {
            prefix: "idem".to_string(),
            clock: None,
            speculative: false,
            connection_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(5),
            #[cfg(feature = "tls")]
            root_certificates: None,
        }
    }
}

impl fmt::Debug for RedisBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBuilder")
            .field("prefix", &self.prefix)
            .field("speculative", &self.speculative)
            .field("connection_timeout", &self.connection_timeout)
            .field("response_timeout", &self.response_timeout)
            .finish_non_exhaustive()
    }
}

impl RedisBuilder {
    /// How long after a record may be purged the server removes it by itself, under its own clock: at least, see
    /// [`RedisBuilder::grace`].
    const GRACE: Duration = Duration::from_secs(60);

    /// What all keys of the store begin with: 1 to 255 bytes without braces and control characters. `idem` unless
    /// told.
    ///
    /// Stores with different prefixes share nothing.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The clock that decides, for tests: the server's unless told.
    ///
    /// All who share the data must go by one clock. Under a clock of its own the store sets no expiry on the
    /// server's keys: they go by [`Store::purge`](idem_core::Store::purge) alone.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Box::new(clock));
        self
    }

    /// Whether a call runs its effect first and reads afterwards. It does not, unless told.
    ///
    /// It saves a round trip where most keys are new. An effect then runs, and is thrown away, for a
    /// duplicate too; and the life of a receipt counts from the commit. An effect that reads values takes the
    /// other way after its first try.
    pub fn speculative(mut self, speculative: bool) -> Self {
        self.speculative = speculative;
        self
    }

    /// How long opening a connection may take, a handshake included. 5 s unless told.
    pub fn connection_timeout(mut self, timeout: Duration) -> Self {
        self.connection_timeout = timeout;
        self
    }

    /// How long the server may take to answer one command. 5 s unless told.
    ///
    /// A call that fails in a way that may pass tries again for as long as this after the first failure: a call on
    /// a server that does not answer takes twice this, one on a server that cannot be reached this once, besides the
    /// connection timeout. A commit whose answer is lost is first waited out, for a second at most.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// Root certificates in PEM that a server's certificate may be signed by, instead of the system's.
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    pub fn root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.root_certificates = Some(pem.into());
        self
    }

    /// What a URL names, with how long is waited for it.
    pub(crate) fn target(&self, url: &str) -> Result<(Target, Timeouts), Error> {
        let timeouts = Timeouts {
            connection: timeout("connection timeout", self.connection_timeout)?,
            response: timeout("response timeout", self.response_timeout)?,
        };
        let options = Options {
            timeouts,
            #[cfg(feature = "tls")]
            root_certificates: self.root_certificates.clone(),
        };
        Ok((Target::of(url, &options)?, timeouts))
    }

    /// While a call may still send a commit again, which must find that it was applied, the record stays.
    fn grace(&self) -> Duration {
        Self::GRACE.max(self.response_timeout.saturating_mul(4))
    }

    /// Opens a store on the server, or the cluster, that a URL names.
    ///
    /// - `redis://user:password@host:6379/0`: user, password, port and database number may be left out;
    /// - `rediss://..`, the same over TLS (feature `tls`);
    /// - `redis+unix:///path/to/socket?db=0&user=..&pass=..`;
    /// - `redis+cluster://user:password@a:7000,b:7000,c`, some of a cluster's servers (feature `cluster`), and
    ///   `rediss+cluster://`.
    ///
    /// In a user's name and a password `@`, `:`, `/`, `?`, `#` and `%` are written `%40`, `%3A`, `%2F`, `%3F`, `%23` and
    /// `%25`, in those of a socket `&` and `+` as `%26` and `%2B`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSetting`] for a URL, a prefix or a timeout that is not acceptable;
    /// [`ErrorKind::Denied`], [`ErrorKind::Unreachable`] and the like for a server that does not let us in;
    /// [`ErrorKind::CannotOpen`] for one older than Redis 7. No error shows the URL, which may hold a password.
    ///
    /// # Cancel safety
    /// Dropping the future opens nothing.
    pub async fn open(self, url: &str) -> Result<RedisStore, Error> {
        let (target, timeouts) = self.target(url)?;
        let grace = Span::new("grace", self.grace())?;
        let prefix = Prefix::new(&self.prefix)?;
        let link = Link::new(target, timeouts);
        let now = server::check_version(&link).await?;
        Ok(RedisStore::new(Inner {
            link,
            prefix,
            clock: self.clock,
            server_time: ServerTime::new(now),
            speculative: self.speculative,
            grace,
            nonces: AtomicU64::new(0),
            hot_values: Arc::default(),
            closed: AtomicBool::new(false),
            calls: RwLock::new(()),
        }))
    }
}

/// A timeout that the driver and the runtime can keep.
pub(crate) fn timeout(field: &'static str, timeout: Duration) -> Result<Duration, Error> {
    // A day is what no timer of the runtime minds.
    if timeout < Duration::from_millis(1) || timeout > Duration::from_secs(24 * 60 * 60) {
        let problem = "give a millisecond to a day";
        let kind = ErrorKind::InvalidDuration { field, duration: timeout, problem };
        return Err(Error::nothing_done(kind));
    }
    Ok(timeout)
}
