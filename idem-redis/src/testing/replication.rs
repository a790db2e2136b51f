//! A server that follows another.

use std::io;

use super::{Server, wait::until};

impl Server {
    /// Makes this a replica of `primary`, and returns when it has a copy of the data and follows. After a
    /// restart it does not follow any more.
    ///
    /// # Errors
    ///
    /// If one of them does not run, or the replica does not follow in 20 seconds.
    pub fn replicate_from(&self, primary: &Self) -> io::Result<()> {
        if let Some(password) = primary.password() {
            self.tell(&["CONFIG", "SET", "masterauth", password])?;
        }
        let address = primary.address();
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        self.tell(&["REPLICAOF", &host, &port])?;
        until("the replica to follow", || {
            let state: String = self.query(&["INFO", "replication"]).map_err(io::Error::other)?;
            Ok(state.contains("master_link_status:up").then_some(()))
        })
    }

    /// Makes this replica a primary of its own, with the data that it has.
    ///
    /// # Errors
    ///
    /// If it does not run.
    pub fn promote(&self) -> io::Result<()> {
        self.tell(&["REPLICAOF", "NO", "ONE"])
    }
}
