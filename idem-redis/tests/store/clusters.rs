//! A cluster: a tenant is where its slot is, the others are elsewhere, and a node that is gone takes its own
//! tenants along and no others.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use idem_core::{
    Certainty, Change, Error, ErrorKind, Idem, Key, ManualClock, Outcome, Request, Space, State,
    Timestamp,
    consumer::{Marked, Recorder},
};
use idem_redis::{
    RedisStore,
    testing::{Cluster, Server},
};

use crate::setup::*;

async fn store(cluster: &Cluster, prefix: &str) -> Front {
    open_with(RedisStore::builder().prefix(prefix), &cluster_url(cluster)).await
}

fn order(tenant: &str) -> Request {
    Request::new(Key::new(tenant, "order", "k").unwrap())
}

async fn run(idem: &Front, tenant: &str) -> Result<Outcome<u64>, Error> {
    idem.execute(&order(tenant), |tx| add(tx, "n")).await
}

/// The names of keys of a prefix, and the node that each is on.
fn names(cluster: &Cluster, prefix: &str) -> Vec<(usize, String)> {
    let of = |(index, node): (usize, &Server)| {
        let names: Vec<String> = node.query(&["KEYS", &format!("{prefix}:*")]).unwrap();
        names.into_iter().map(move |name| (index, name))
    };
    cluster.nodes().iter().enumerate().flat_map(of).collect()
}

fn slot(cluster: &Cluster, name: &str) -> u32 {
    cluster.nodes()[0].query(&["CLUSTER", "KEYSLOT", name]).unwrap()
}

const ODD: [&str; 12] =
    ["", "{", "}", "{}", "a{b}c", "%", "%7B", "%25", "ténant", "日本", "a:b", "}:r:1:o:k"];

#[tokio::test]
async fn all_that_is_of_one_tenant_shares_a_slot() {
    let cluster = Cluster::shared().unwrap();
    for (number, tenant) in ODD.into_iter().enumerate() {
        let prefix = format!("slots-{number}");
        let idem = store(&cluster, &prefix).await;
        assert_eq!(run(&idem, tenant).await.unwrap(), Outcome::Created(1), "{tenant:?}");
        assert_eq!(run(&idem, tenant).await.unwrap(), Outcome::Replayed(1));
        let request = Request::new(Key::new(tenant, "order", "claim{x}").unwrap());
        assert!(transact(&idem, request.key(), claim_of(&request)).await.unwrap().ran);
        let space = Space::tenant(tenant).unwrap();
        assert_eq!(count_in(&idem, &space, "n").await, 1);
        let found = names(&cluster, &prefix);
        assert_eq!(found.len(), 4, "two records, a value and a token: {found:?}");
        let slots: BTreeSet<_> = found.iter().map(|(_, name)| slot(&cluster, name)).collect();
        assert_eq!(slots.len(), 1, "{found:?}");
        let listed = idem.list(None, 10).await.unwrap().records;
        assert!(listed.iter().all(|(key, _)| key.tenant() == tenant));
        assert_eq!(listed.len(), 2);
    }
}

#[tokio::test]
async fn tenants_and_consumers_are_spread() {
    let cluster = Cluster::shared().unwrap();
    let idem = store(&cluster, "spread").await;
    for number in 0..60 {
        let name = number.to_string();
        assert_eq!(run(&idem, &name).await.unwrap(), Outcome::Created(1));
        assert_eq!(idem.mark_processed(&name, "7").await.unwrap(), Marked::First);
    }
    let found = names(&cluster, "spread");
    assert_eq!(found.len(), 3 * 60);
    let mut per_node = BTreeMap::<_, u32>::new();
    found.iter().for_each(|(node, _)| *per_node.entry(node).or_default() += 1);
    assert!(per_node.len() == 3 && per_node.values().all(|count| *count > 20), "{per_node:?}");
}

#[tokio::test]
async fn listing_and_purging_go_through_all_nodes() {
    let cluster = Cluster::shared().unwrap();
    let clock = ManualClock::at(Timestamp::from_millis(1_000));
    let builder = RedisStore::builder().prefix("swept").clock(clock.clone());
    let idem = open_with(builder, &cluster_url(&cluster)).await;
    for number in 0..90 {
        let request = order(&number.to_string()).retain(Duration::from_secs(1 + number % 2));
        let outcome = idem.execute(&request, |tx| add(tx, "n")).await.unwrap();
        assert_eq!(outcome, Outcome::Created(1));
    }
    for limit in [1, 7, 1_000] {
        let (mut listed, mut after) = (Vec::new(), None);
        loop {
            let page = idem.list(after.as_ref(), limit).await.unwrap();
            listed.extend(page.records.iter().map(|(key, _)| key.tenant().to_string()));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let distinct: BTreeSet<_> = listed.iter().collect();
        assert_eq!((listed.len(), distinct.len()), (90, 90), "{limit}");
    }
    clock.advance(Duration::from_secs(1));
    assert_eq!(idem.purge(1_000).await.unwrap().removed, 45);
    assert_eq!(idem.list(None, 1_000).await.unwrap().records.len(), 45);
}

#[tokio::test]
async fn a_node_that_has_forgotten_its_scripts_gets_them_again() {
    let cluster = Cluster::shared().unwrap();
    let idem = store(&cluster, "flushed").await;
    for node in cluster.nodes() {
        node.command(&["SCRIPT", "FLUSH"]).unwrap();
        for number in 0..9 {
            let name = format!("{}-{number}", node.address().port());
            assert_eq!(run(&idem, &name).await.unwrap(), Outcome::Created(1));
            assert_eq!(idem.mark_processed(&name, "7").await.unwrap(), Marked::First);
        }
    }
}

/// The driver of a cluster sends a command again by itself; but another's extension is not one's own.
#[tokio::test]
async fn a_lease_is_extended_as_far_as_was_asked() {
    let cluster = Cluster::shared().unwrap();
    let idem = store(&cluster, "extended").await;
    let request = order("north");
    let claim = transact(&idem, request.key(), claim_of(&request)).await.unwrap().after.unwrap();
    let by = |seconds| Change::Extend { lease: lease(Duration::from_secs(seconds)) };
    let first = as_holder(&idem, request.key(), &claim, by(60)).await;
    // It does not know of the first.
    let second = as_holder(&idem, request.key(), &claim, by(3_600)).await;
    assert!(first.ran && second.ran);
    let State::Claimed { until, .. } = second.after.unwrap().state else { panic!() };
    assert_eq!(until.as_millis(), second.now.as_millis() + 3_600_000);
}

/// A cluster whose other nodes serve what they have when one is gone.
fn breakable() -> Cluster {
    let builder = Server::builder()
        .arg("--appendonly", "yes")
        .arg("--appendfsync", "always")
        .arg("--cluster-require-full-coverage", "no")
        .arg("--cluster-node-timeout", "1000");
    Cluster::start_with(3, &builder).unwrap()
}

/// A tenant on each node.
fn tenants(cluster: &Cluster) -> [String; 3] {
    [0, 1, 2].map(|node| {
        let names = (0..).map(|number: u32| format!("tenant-{number}"));
        let is_there =
            |name: &String| cluster.node_of(&format!("idem:{{t{name}}}")).unwrap() == node;
        { names }.find(is_there).unwrap()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_gone_fails_its_own_tenants_and_no_others() {
    let mut cluster = breakable();
    let tenants = tenants(&cluster);
    let idem = Idem::new(hasty(500).open(&cluster_url(&cluster)).await.unwrap());
    for tenant in &tenants {
        assert_eq!(run(&idem, tenant).await.unwrap(), Outcome::Created(1));
    }
    cluster.nodes_mut()[1].kill().unwrap();
    let started = Instant::now();
    let error = run(&idem, &tenants[1]).await.unwrap_err();
    let waited = started.elapsed();
    let is_away = matches!(error.kind(), ErrorKind::Unreachable { .. } | ErrorKind::Busy { .. });
    assert!(is_away, "{error:?}");
    assert_eq!(error.certainty(), Certainty::NothingDone, "it only looked: {error:?}");
    // An answer, patience, another answer; and what a busy machine adds.
    assert!(waited < Duration::from_secs(5), "{waited:?}");
    for tenant in [&tenants[0], &tenants[2]] {
        assert_eq!(run(&idem, tenant).await.unwrap(), Outcome::Replayed(1), "{tenant}");
        let request = Request::new(Key::new(tenant, "order", "meanwhile").unwrap());
        let outcome = idem.execute(&request, |tx| add(tx, "n")).await.unwrap();
        assert_eq!(outcome, Outcome::Created(2), "{tenant}");
    }
    // Another store opens all the same.
    let other = store(&cluster, "idem").await;
    assert_eq!(run(&other, &tenants[0]).await.unwrap(), Outcome::Replayed(1));
    cluster.nodes_mut()[1].restart().unwrap();
    cluster.settle().unwrap();
    assert_eq!(run(&idem, &tenants[1]).await.unwrap(), Outcome::Replayed(1));
    assert_eq!(idem.list(None, 100).await.unwrap().records.len(), 5);
}

/// Connections to all nodes are ended while many callers are at work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_connections_do_nothing_twice() {
    let cluster = breakable();
    let idem = open(&cluster_url(&cluster)).await;
    let callers = idem.clone();
    let callers = (0..16).map(move |caller| {
        let idem = callers.clone();
        async move {
            for call in 0..10 {
                let tenant = format!("{caller}-{call}");
                assert_eq!(run(&idem, &tenant).await.unwrap(), Outcome::Created(1), "{tenant}");
            }
        }
    });
    let callers = tokio::spawn(together(callers));
    while !callers.is_finished() {
        for node in cluster.nodes() {
            let _: i64 = node.query(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap_or_default();
        }
        // How often, not until when: callers must get something done in between.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    joined("the callers", callers).await;
    for tenant in (0..16).flat_map(|caller| (0..10).map(move |call| format!("{caller}-{call}"))) {
        let space = Space::tenant(&tenant).unwrap();
        assert_eq!(count_in(&idem, &space, "n").await, 1, "{tenant}");
    }
}

#[tokio::test]
async fn a_single_server_that_is_named_as_a_cluster_is_told_as_such() {
    let server = Server::start().unwrap();
    let url = server.url().replace("redis://", "redis+cluster://");
    let url = url.split("/0").next().unwrap();
    let Err(error) = RedisStore::open(url).await else { panic!("it is no cluster") };
    assert!(matches!(error.kind(), ErrorKind::InvalidSetting { field: "URL", .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("not part of a cluster: name it by `redis://`"), "{text}");
    assert_eq!(error.certainty(), Certainty::NothingDone);
}
