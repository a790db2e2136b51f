//! Servers that share the keys among them.

use std::{io, sync::Arc};

use super::{Builder, Server, shared::Shared, wait::until};

/// How many slots the keys of a cluster have.
const SLOTS: usize = 16_384;

/// A Redis cluster of one's own: primaries that have the slots in equal parts and in order, and no replicas.
///
/// Dropping it kills all its nodes.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Server>,
}

impl Cluster {
    /// Starts so many nodes, at least one, and returns when each serves the cluster. Redis takes more than two
    /// seconds for that.
    ///
    /// # Errors
    ///
    /// As [`Builder::start`], and if the nodes do not find each other in 20 seconds.
    pub fn start(nodes: usize) -> io::Result<Self> {
        Self::start_with(nodes, &Server::builder())
    }

    /// Like [`Cluster::start`], with the settings of each node.
    ///
    /// # Errors
    ///
    /// As [`Cluster::start`].
    pub fn start_with(nodes: usize, builder: &Builder) -> io::Result<Self> {
        let start = |_| builder.clone().cluster().start();
        let cluster = Self { nodes: (0..nodes).map(start).collect::<io::Result<_>>()? };
        cluster.share_slots()?;
        cluster.meet()?;
        cluster.settle()?;
        Ok(cluster)
    }

    /// Returns when each node serves the cluster: after a restart of one, that takes two seconds again.
    ///
    /// # Errors
    ///
    /// If one of them does not run, or they do not agree in 20 seconds.
    pub fn settle(&self) -> io::Result<()> {
        self.nodes.iter().try_for_each(|node| {
            until("the nodes of the cluster to agree", || self.is_known_to(node))
        })
    }

    /// The cluster of three nodes that the tests of a program share. It ends when the last test that holds it
    /// does.
    ///
    /// Tests run at the same time: each should use keys of its own, and none may disturb the nodes.
    ///
    /// # Errors
    ///
    /// As [`Cluster::start`].
    pub fn shared() -> io::Result<Arc<Self>> {
        static SHARED: Shared<Cluster> = Shared::new();
        SHARED.get(|| Self::start(3))
    }

    /// The URLs of the nodes, for clients.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::url).collect()
    }

    /// The nodes, in the order of their slots.
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// The nodes, for those who want to kill one.
    pub fn nodes_mut(&mut self) -> &mut [Server] {
        &mut self.nodes
    }

    /// The index of the node that was given the slot of `key` at the start.
    ///
    /// # Errors
    ///
    /// If the first node does not run.
    pub fn node_of(&self, key: &str) -> io::Result<usize> {
        let slot: usize =
            self.nodes[0].query(&["CLUSTER", "KEYSLOT", key]).map_err(io::Error::other)?;
        Ok((1..self.nodes.len()).filter(|index| self.first_slot(*index) <= slot).count())
    }

    fn first_slot(&self, index: usize) -> usize {
        index * SLOTS / self.nodes.len()
    }

    fn share_slots(&self) -> io::Result<()> {
        for (index, node) in self.nodes.iter().enumerate() {
            // Different, or the nodes would have to settle first which of them is older.
            node.tell(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()])?;
            let first = self.first_slot(index).to_string();
            let last = (self.first_slot(index + 1) - 1).to_string();
            node.tell(&["CLUSTER", "ADDSLOTSRANGE", &first, &last])?;
        }
        Ok(())
    }

    /// Introduces each to each: gossip alone would take longer.
    fn meet(&self) -> io::Result<()> {
        for (index, node) in self.nodes.iter().enumerate() {
            for other in &self.nodes[index + 1..] {
                let (port, bus) = (other.address().port().to_string(), other.bus().to_string());
                node.tell(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus])?;
            }
        }
        Ok(())
    }

    fn is_known_to(&self, node: &Server) -> io::Result<Option<()>> {
        let state: String = node.query(&["CLUSTER", "INFO"]).map_err(io::Error::other)?;
        let size = format!("cluster_size:{}", self.nodes.len());
        let expected = ["cluster_state:ok", &size];
        let is_so = |line: &str| state.lines().any(|found| found == line);
        Ok(expected.into_iter().all(is_so).then_some(()))
    }
}
