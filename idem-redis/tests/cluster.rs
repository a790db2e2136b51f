//! Clusters: each node serves its part of the keys and sends clients to the others for theirs.

use std::sync::Arc;

use idem_redis::testing::{Cluster, Server};

#[test]
fn every_node_serves_its_keys_and_knows_whose_the_others_are() {
    let cluster = Cluster::shared().unwrap();
    assert!(Arc::ptr_eq(&cluster, &Cluster::shared().unwrap()));
    assert_eq!((cluster.nodes().len(), cluster.urls().len()), (3, 3));
    let mut served = [0; 3];
    for number in 0..60 {
        let key = format!("key-{number}");
        let owner = cluster.node_of(&key).unwrap();
        for (index, node) in cluster.nodes().iter().enumerate() {
            let reply = node.command(&["SET", &key, "value"]);
            if index == owner {
                reply.unwrap();
                served[index] += 1;
                continue;
            }
            let error = reply.unwrap_err();
            assert_eq!(error.code(), Some("MOVED"));
            let (address, _slot) = error.redirect_node().unwrap();
            assert_eq!(address, cluster.nodes()[owner].address().to_string());
        }
    }
    assert!(served.iter().all(|count| *count > 0), "{served:?}");
}

#[test]
fn a_node_that_was_restarted_is_of_the_cluster_again() {
    let builder = Server::builder().password("secret").arg("--cluster-node-timeout", "2000");
    let mut cluster = Cluster::start_with(3, &builder).unwrap();
    let key = (0..).map(|number| format!("key-{number}"));
    let key = { key }.find(|key| cluster.node_of(key).unwrap() == 1).unwrap();
    let node = &mut cluster.nodes_mut()[1];
    let before = node.address();
    node.kill().unwrap();
    node.restart().unwrap();
    assert_eq!(node.address(), before);
    cluster.settle().unwrap();
    cluster.nodes()[1].command(&["SET", &key, "value"]).unwrap();
    let error = cluster.nodes()[0].command(&["GET", &key]).unwrap_err();
    assert_eq!(error.redirect_node().unwrap().0, before.to_string());
}
