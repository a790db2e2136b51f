//! A Redis server of a side's own, fresh for each round.

use std::time::Duration;

use idem_core::BoxError;
use idem_redis::testing::{Mode, Proxy, Server};

use crate::side::Stored;

/// What a network adds to each message between callers and a server that is far.
const DELAY: Duration = Duration::from_micros(500);

/// A server that keeps nothing on disk, and what is before it.
pub(crate) struct RedisServer {
    proxy: Option<Proxy>,
    server: Server,
}

impl RedisServer {
    pub(crate) fn start() -> Result<Self, BoxError> {
        Ok(Self { proxy: None, server: Server::start()? })
    }

    /// Behind a slow network.
    pub(crate) fn start_far() -> Result<Self, BoxError> {
        let server = Server::start()?;
        let proxy = Proxy::before(&server)?;
        proxy.set(Mode::DelayAll(DELAY));
        Ok(Self { proxy: Some(proxy), server })
    }

    pub(crate) fn url(&self) -> String {
        self.proxy.as_ref().map_or_else(|| self.server.url(), Proxy::url)
    }

    /// Counts the keys that match the patterns.
    pub(crate) fn count(&self, orders: &str, receipts: &str) -> Result<Stored, BoxError> {
        // Nobody else waits for this server.
        let count = |pattern| {
            self.server.query(&["EVAL", "return #redis.call('KEYS', ARGV[1])", "0", pattern])
        };
        Ok(Stored { orders: count(orders)?, receipts: count(receipts)? })
    }
}
