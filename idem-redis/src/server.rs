//! What the server says of itself.

use std::fmt;

use idem_core::{Error, ErrorKind, Timestamp};
use redis::{Cmd, FromRedisValue};

use crate::{
    failure::damaged,
    link::Link,
    nodes::{self, Node},
};

/// The oldest major version whose scripts can say what must be checked before they run.
const OLDEST: u32 = 7;

/// What endangers receipts; see [`RedisStore::check`](crate::RedisStore::check).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hazard {
    /// The server removes keys when its memory is full: live receipts too. Set `maxmemory-policy noeviction`.
    Evicts {
        /// The policy that it has.
        policy: String,
    },
    /// Nothing survives the server's process. Set `appendonly yes`.
    NotPersistent,
    /// A crash loses what came after the last snapshot. Set `appendonly yes`.
    SnapshotsOnly,
    /// A crash of the machine loses what came after the last sync. `appendfsync always` loses nothing.
    LateSync {
        /// When the server syncs its log.
        appendfsync: String,
    },
    /// This server is a replica: it takes no writes, and has what its primary had a while ago.
    Replica,
    /// The server would not tell its configuration, so that this is only what its statistics show.
    Unknown {
        /// The setting that could not be read.
        setting: &'static str,
    },
}

impl fmt::Display for Hazard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Evicts { policy } => write!(
                f,
                "the server removes keys when its memory is full (`{policy}`): set `maxmemory-policy noeviction`"
            ),
            Self::NotPersistent => {
                f.write_str("nothing survives the server's process: set `appendonly yes`")
            }
            Self::SnapshotsOnly => {
                f.write_str("a crash loses what came after the last snapshot: set `appendonly yes`")
            }
            Self::LateSync { appendfsync } => write!(
                f,
                "a crash of the machine loses what came after the last sync (`{appendfsync}`): `appendfsync \
                 always` loses nothing"
            ),
            Self::Replica => f.write_str("the server is a replica: name its primary"),
            Self::Unknown { setting } => {
                write!(f, "the server does not tell its `{setting}`: let this user ask for it")
            }
        }
    }
}

/// Checks the versions, and asks for the time. Of a cluster, one primary must answer.
pub(crate) async fn check_version(link: &Link) -> Result<Timestamp, Error> {
    let mut answer = None;
    for node in nodes::of(link).await? {
        match version_and_time(link, &node).await {
            Err(error) if matches!(error.kind(), ErrorKind::Unreachable { .. }) => {
                answer.get_or_insert(Err(error));
            }
            Err(error) => return Err(error),
            Ok(now) => answer = Some(Ok(now)),
        }
    }
    answer.unwrap_or_else(|| Err(damaged("the cluster has no primary")))
}

async fn version_and_time(link: &Link, node: &Node) -> Result<Timestamp, Error> {
    let info: String = ask(link, node, redis::cmd("INFO").arg("server")).await?;
    let version = field(&info, "redis_version").unwrap_or_default();
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_none_or(|major| major < OLDEST) {
        let problem = format!("it has version `{version}`: Redis {OLDEST} or later is needed");
        let kind = ErrorKind::CannotOpen { location: "the Redis server".to_string(), problem };
        return Err(Error::nothing_done(kind));
    }
    let (seconds, micros): (i64, i64) = ask(link, node, &redis::cmd("TIME")).await?;
    Ok(Timestamp::from_millis(seconds * 1000 + micros / 1000))
}

/// What endangers receipts on any of the servers.
pub(crate) async fn hazards(link: &Link) -> Result<Vec<Hazard>, Error> {
    let mut hazards = Vec::new();
    for node in nodes::of(link).await? {
        let found = hazards_of(link, &node).await?;
        hazards.extend(
            found.into_iter().filter(|hazard| !hazards.contains(hazard)).collect::<Vec<_>>(),
        );
    }
    Ok(hazards)
}

async fn hazards_of(link: &Link, node: &Node) -> Result<Vec<Hazard>, Error> {
    let info: String = ask(link, node, &redis::cmd("INFO")).await?;
    let mut hazards = Vec::new();
    if field(&info, "role") == Some("slave") {
        hazards.push(Hazard::Replica);
    }
    match field(&info, "maxmemory_policy") {
        Some("noeviction") => {}
        Some(policy) => hazards.push(Hazard::Evicts { policy: policy.to_string() }),
        None => hazards.push(Hazard::Unknown { setting: "maxmemory-policy" }),
    }
    let appends = field(&info, "aof_enabled") == Some("1");
    let asked = if appends { "appendfsync" } else { "save" };
    hazards.extend(match setting(link, node, asked).await? {
        None => Some(Hazard::Unknown { setting: asked }),
        Some(appendfsync) if appends => {
            (appendfsync != "always").then_some(Hazard::LateSync { appendfsync })
        }
        Some(save) if save.is_empty() => Some(Hazard::NotPersistent),
        Some(_) => Some(Hazard::SnapshotsOnly),
    });
    Ok(hazards)
}

/// A setting of a server's; none if it does not let us see it.
async fn setting(link: &Link, node: &Node, name: &str) -> Result<Option<String>, Error> {
    let answer: Result<Vec<String>, Error> =
        ask(link, node, redis::cmd("CONFIG").arg("GET").arg(name)).await;
    match answer {
        Ok(pair) => Ok(pair.into_iter().nth(1)),
        // Managed servers rename the command away, or forbid it.
        Err(error) if matches!(error.kind(), ErrorKind::Denied | ErrorKind::Store) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn ask<T: FromRedisValue>(link: &Link, node: &Node, command: &Cmd) -> Result<T, Error> {
    let mut patience = link.patience();
    let answer = loop {
        match nodes::send(link, node, command).await {
            Ok(answer) => break answer,
            Err(failure) => patience.bear_reading(failure).await?,
        }
    };
    redis::from_redis_value(answer)
        .map_err(|error| Error::nothing_done(ErrorKind::Store).with_source(error))
}

/// The value of a field in the text of INFO.
fn field<'i>(info: &'i str, name: &str) -> Option<&'i str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}
