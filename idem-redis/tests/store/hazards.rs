//! What a server is configured for, and what of that endangers receipts.

#[cfg(feature = "cluster")]
use idem_redis::testing::Cluster;
use idem_redis::{Hazard, RedisStore, testing::Server};

use crate::setup::*;

async fn hazards(server: &Server) -> Vec<Hazard> {
    RedisStore::open(&server.url()).await.unwrap().check().await.unwrap()
}

#[tokio::test]
async fn a_safe_server_has_none() {
    let builder = Server::builder().arg("--appendonly", "yes").arg("--appendfsync", "always");
    let server = builder.arg("--maxmemory-policy", "noeviction").start().unwrap();
    assert_eq!(hazards(&server).await, []);
}

#[tokio::test]
async fn each_hazard_is_reported_alone() {
    let builder = Server::builder().arg("--appendonly", "yes").arg("--appendfsync", "always");
    let server = builder.start().unwrap();
    let store = RedisStore::open(&server.url()).await.unwrap();
    for policy in ["allkeys-lru", "volatile-ttl", "allkeys-random", "volatile-lfu"] {
        set(&server, "maxmemory-policy", policy);
        let expected = Hazard::Evicts { policy: policy.to_string() };
        assert_eq!(store.check().await.unwrap(), [expected]);
    }
    set(&server, "maxmemory-policy", "noeviction");
    for appendfsync in ["everysec", "no"] {
        set(&server, "appendfsync", appendfsync);
        let expected = Hazard::LateSync { appendfsync: appendfsync.to_string() };
        assert_eq!(store.check().await.unwrap(), [expected]);
    }
    set(&server, "appendonly", "no");
    assert_eq!(store.check().await.unwrap(), [Hazard::NotPersistent]);
    set(&server, "save", "3600 1");
    assert_eq!(store.check().await.unwrap(), [Hazard::SnapshotsOnly]);
    // And all that there are, together.
    set(&server, "maxmemory-policy", "allkeys-lru");
    let primary = Server::start().unwrap();
    server.replicate_from(&primary).unwrap();
    let evicts = Hazard::Evicts { policy: "allkeys-lru".to_string() };
    let expected = [Hazard::Replica, evicts, Hazard::SnapshotsOnly];
    assert_eq!(store.check().await.unwrap(), expected);
}

#[tokio::test]
async fn a_server_that_does_not_tell_is_unknown() {
    let builder = Server::builder().arg("--appendonly", "yes").arg("--appendfsync", "always");
    let server = builder.start().unwrap();
    server.command(&["ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", "-config"]).unwrap();
    let store = RedisStore::open(&format!("redis://app:pw@{}", server.address())).await.unwrap();
    assert_eq!(store.check().await.unwrap(), [Hazard::Unknown { setting: "appendfsync" }]);
}

#[cfg(feature = "cluster")]
#[tokio::test]
async fn a_hazard_of_any_node_is_the_clusters() {
    let builder = Server::builder().arg("--appendonly", "yes").arg("--appendfsync", "always");
    let cluster = Cluster::start_with(3, &builder).unwrap();
    let url = cluster_url(&cluster);
    let store = RedisStore::open(&url).await.unwrap();
    assert_eq!(store.check().await.unwrap(), []);
    set(&cluster.nodes()[2], "appendfsync", "no");
    set(&cluster.nodes()[1], "maxmemory-policy", "allkeys-lru");
    let found = store.check().await.unwrap();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.contains(&Hazard::LateSync { appendfsync: "no".to_string() }));
    assert!(found.contains(&Hazard::Evicts { policy: "allkeys-lru".to_string() }));
}
