//! The servers that keys are spread over.

use std::fmt;

use idem_core::Error;
use redis::{Cmd, Value};

use crate::{failure::Failure, link::Link};

/// A server that holds keys: the only one, or a primary of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Node {
    Only,
    Primary { host: String, port: u16 },
}

impl Node {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text == "only" {
            return Some(Self::Only);
        }
        let (host, port) = text.rsplit_once(':')?;
        Some(Self::Primary { host: host.to_string(), port: port.parse().ok()? })
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Only => f.write_str("only"),
            Self::Primary { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

/// All servers that hold keys, in order.
pub(crate) async fn of(link: &Link) -> Result<Vec<Node>, Error> {
    if !link.is_cluster() {
        return Ok(vec![Node::Only]);
    }
    let mut patience = link.patience();
    loop {
        match link.send(redis::cmd("CLUSTER").arg("SLOTS")).await {
            Ok(slots) => return primaries(slots, link.first_host()),
            Err(failure) => patience.bear_reading(failure).await?,
        }
    }
}

/// The primaries in the answer to CLUSTER SLOTS: ranges of slots, each with its servers, the primary first. A server
/// without a host is on the host that was asked.
fn primaries(slots: Value, asked: &str) -> Result<Vec<Node>, Error> {
    let unreadable = || crate::failure::damaged("the cluster's slots cannot be read");
    let Value::Array(ranges) = slots else { return Err(unreadable()) };
    let mut nodes = Vec::new();
    for range in ranges {
        let Value::Array(fields) = range else { return Err(unreadable()) };
        let Some(Value::Array(primary)) = fields.into_iter().nth(2) else {
            return Err(unreadable());
        };
        let mut fields = primary.into_iter();
        let host = match fields.next() {
            Some(Value::BulkString(host)) => String::from_utf8(host).map_err(|_| unreadable())?,
            Some(Value::Nil) => String::new(),
            _ => return Err(unreadable()),
        };
        let Some(Value::Int(port)) = fields.next() else { return Err(unreadable()) };
        let host = if host.is_empty() { asked.to_string() } else { host };
        let port = u16::try_from(port).map_err(|_| unreadable())?;
        nodes.push(Node::Primary { host, port });
    }
    nodes.sort();
    nodes.dedup();
    Ok(nodes)
}

/// Sends a command to one of them.
pub(crate) async fn send(link: &Link, node: &Node, command: &Cmd) -> Result<Value, Failure> {
    match node {
        Node::Only => link.send(command).await,
        Node::Primary { host, port } => link.send_to(host, *port, command).await,
    }
}
