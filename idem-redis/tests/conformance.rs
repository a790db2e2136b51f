//! The suite on the Redis store: as it is, speculative, and on a cluster of three servers.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

use async_trait::async_trait;
use idem_conformance::Fixture;
use idem_core::ManualClock;
use idem_redis::{RedisStore, testing::Server};

/// A server of its own for each case.
struct OnServer<const SPECULATIVE: bool>(Server);

#[async_trait]
impl<const SPECULATIVE: bool> Fixture for OnServer<SPECULATIVE> {
    type Store = RedisStore;

    async fn create() -> Self {
        Self(Server::start().unwrap())
    }

    async fn open(&self, clock: ManualClock) -> RedisStore {
        let builder = RedisStore::builder().clock(clock).speculative(SPECULATIVE);
        builder.open(&self.0.url()).await.unwrap()
    }

    /// By a server that has used up its memory.
    async fn refuse_receipts(&self, refuse: bool) {
        let bytes = if refuse { "1" } else { "0" };
        self.0.command(&["CONFIG", "SET", "maxmemory", bytes]).unwrap();
    }
}

mod on_server {
    use super::OnServer;
    idem_conformance::suite! {
        fixture: OnServer<false>,
        reopen: yes,
        receipt_faults: yes,
        hostile_effects: no("its transaction is buffered: there is nothing to end"),
    }
}

mod speculative {
    use super::OnServer;
    idem_conformance::suite! {
        fixture: OnServer<true>,
        reopen: yes,
        receipt_faults: yes,
        hostile_effects: no("its transaction is buffered: there is nothing to end"),
    }
}

#[cfg(feature = "cluster")]
mod on_cluster {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use async_trait::async_trait;
    use idem_conformance::Fixture;
    use idem_core::ManualClock;
    use idem_redis::{RedisStore, testing::Cluster};

    /// A prefix of its own for each case.
    struct OnCluster {
        cluster: Arc<Cluster>,
        prefix: String,
    }

    #[async_trait]
    impl Fixture for OnCluster {
        type Store = RedisStore;

        async fn create() -> Self {
            static PREFIXES: AtomicUsize = AtomicUsize::new(0);
            let prefix = format!("case-{}", PREFIXES.fetch_add(1, Ordering::Relaxed));
            Self { cluster: Cluster::shared().unwrap(), prefix }
        }

        async fn open(&self, clock: ManualClock) -> RedisStore {
            let hosts: Vec<_> =
                self.cluster.nodes().iter().map(|n| n.address().to_string()).collect();
            let builder = RedisStore::builder().clock(clock).prefix(&self.prefix);
            builder.open(&format!("redis+cluster://{}", hosts.join(","))).await.unwrap()
        }
    }

    idem_conformance::suite! {
        fixture: OnCluster,
        reopen: yes,
        receipt_faults: no("all cases share the cluster's memory"),
        hostile_effects: no("its transaction is buffered: there is nothing to end"),
    }
}

const NATIVE: &str = "an_effect_that_ends_the_transaction_harms_only_itself";
const BUFFERED: (&str, &str) = (NATIVE, "its transaction is buffered: there is nothing to end");
const PORTABLE: (&str, &str) = (NATIVE, "a portable transaction has nothing to end");

#[test]
fn what_the_suite_omits_is_known() {
    assert_eq!(on_server::concrete::OMITTED, [BUFFERED]);
    assert_eq!(on_server::dynamic::OMITTED, [PORTABLE]);
    assert_eq!(speculative::concrete::OMITTED, [BUFFERED]);
    assert_eq!(speculative::dynamic::OMITTED, [PORTABLE]);
}

#[cfg(feature = "cluster")]
#[test]
fn what_the_suite_omits_on_a_cluster_is_known() {
    let fault = "an_error_between_effect_and_receipt_leaves_neither";
    let shared = (fault, "all cases share the cluster's memory");
    assert_eq!(on_cluster::concrete::OMITTED, [shared, BUFFERED]);
    assert_eq!(on_cluster::dynamic::OMITTED, [shared, PORTABLE]);
}
