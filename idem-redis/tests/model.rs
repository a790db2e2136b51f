//! The Redis store against the rules, as it is and speculative: random programs, and random histories of several
//! clients.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use idem_conformance::{
    Fixture,
    model::{self, Options, Wrong},
};
use idem_core::ManualClock;
use idem_redis::{RedisStore, testing::Server};

/// A prefix of its own on a server that all places share.
struct OnServer<const SPECULATIVE: bool> {
    server: Arc<Server>,
    prefix: String,
}

#[async_trait]
impl<const SPECULATIVE: bool> Fixture for OnServer<SPECULATIVE> {
    type Store = RedisStore;

    async fn create() -> Self {
        static PREFIXES: AtomicUsize = AtomicUsize::new(0);
        let prefix = format!("place-{}", PREFIXES.fetch_add(1, Ordering::Relaxed));
        Self { server: Server::shared().unwrap(), prefix }
    }

    async fn open(&self, clock: ManualClock) -> RedisStore {
        let builder = RedisStore::builder().clock(clock).prefix(&self.prefix);
        builder.speculative(SPECULATIVE).open(&self.server.url()).await.unwrap()
    }
}

mod as_it_is {
    use super::*;

    #[test]
    fn each_caller_is_told_what_the_rules_say() -> Result<(), Wrong> {
        model::sequential::<OnServer<false>>(Options::default().reopens().programs(60))
    }

    #[test]
    fn every_history_has_an_order_that_the_rules_allow() -> Result<(), Wrong> {
        model::histories::<OnServer<false>>(Options::default())
    }
}

mod speculative {
    use super::*;

    #[test]
    fn each_caller_is_told_what_the_rules_say() -> Result<(), Wrong> {
        model::sequential::<OnServer<true>>(Options::default().reopens().programs(60))
    }

    #[test]
    fn every_history_has_an_order_that_the_rules_allow() -> Result<(), Wrong> {
        model::histories::<OnServer<true>>(Options::default().histories(1_000))
    }
}
