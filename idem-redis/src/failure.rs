//! What a failed command means: whether it may have run, whether to try again, what a caller is told.

use std::time::Duration;

use idem_core::{Certainty, Error, ErrorKind};
use redis::{ErrorKind as DriverKind, RedisError};

/// How a command ended without an answer.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) cause: RedisError,
    pub(crate) meaning: Meaning,
}

/// What a failure means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// It did not run: there was no connection.
    NotSent,
    /// It may have run, or may run yet: the connection broke, or no answer came in time.
    Lost,
    /// It did not run, and may a little later.
    Wait,
    /// It did not run: this server takes no writes. Another connection may lead to one that does.
    ReadOnly,
    /// It did not run, and will not.
    Refused,
    /// It did not run: the server does not know the script.
    NoScript,
}

impl Failure {
    /// A failure to connect.
    pub(crate) fn to_connect(cause: RedisError) -> Self {
        let meaning = match meaning(&cause) {
            Meaning::Lost => Meaning::NotSent,
            meaning => meaning,
        };
        Self { cause, meaning }
    }

    /// A failure of a command that was sent.
    pub(crate) fn of_command(cause: RedisError) -> Self {
        let meaning = meaning(&cause);
        Self { cause, meaning }
    }

    /// Nobody has opened a connection in time.
    pub(crate) fn no_connection() -> Self {
        let cause = (DriverKind::Io, "no connection was opened in time").into();
        Self { cause, meaning: Meaning::NotSent }
    }

    /// An answer that is none to what was asked: the connection hands them to the wrong commands.
    pub(crate) fn misunderstood() -> Self {
        let cause = (DriverKind::Parse, "the answer is none to what was asked").into();
        Self { cause, meaning: Meaning::Lost }
    }

    /// Whether an argument was more than the server takes; it then closes the connection besides.
    pub(crate) fn is_too_large(&self) -> bool {
        let says = self.cause.detail().unwrap_or_default();
        self.cause.code() == Some("ERR") && says.contains("Protocol error: invalid bulk length")
    }

    /// Whether the key is on another server of a cluster.
    pub(crate) fn is_redirect(&self) -> bool {
        matches!(self.cause.code(), Some("MOVED" | "ASK"))
    }

    /// Whether to try again.
    pub(crate) fn may_pass(&self) -> bool {
        !matches!(self.meaning, Meaning::Refused | Meaning::NoScript)
    }

    /// What the caller is told who has waited this long, with nothing done by any command of the call.
    pub(crate) fn into_error(self, waited: Duration) -> Error {
        let kind = match self.meaning {
            Meaning::NotSent | Meaning::Lost => ErrorKind::Unreachable { waited },
            Meaning::Wait => ErrorKind::Busy { waited },
            Meaning::ReadOnly => ErrorKind::ReadOnly,
            Meaning::Refused | Meaning::NoScript => refusal(&self.cause),
        };
        let certainty = match self.meaning {
            Meaning::Lost => Certainty::Unknown,
            _ => Certainty::NothingDone,
        };
        Error::new(kind, certainty).with_source(self.cause)
    }
}

fn meaning(cause: &RedisError) -> Meaning {
    match cause.code() {
        Some("NOSCRIPT") => return Meaning::NoScript,
        Some("READONLY") => return Meaning::ReadOnly,
        Some(
            "LOADING" | "BUSY" | "CLUSTERDOWN" | "MASTERDOWN" | "TRYAGAIN" | "NOREPLICAS"
            | "UNBLOCKED" | "MISCONF",
        ) => return Meaning::Wait,
        Some(_) => return Meaning::Refused,
        None => {}
    }
    match cause.kind() {
        // An answer that cannot be read says no more than none.
        DriverKind::Io | DriverKind::Parse | DriverKind::ClusterConnectionNotFound => Meaning::Lost,
        _ => Meaning::Refused,
    }
}

/// Why the server, or the driver, will not do it.
fn refusal(cause: &RedisError) -> ErrorKind {
    match cause.code() {
        Some("OOM") => ErrorKind::Full,
        Some("NOAUTH" | "WRONGPASS" | "NOPERM") => ErrorKind::Denied,
        Some("WRONGTYPE") => ErrorKind::Damaged {
            problem:
                "a key under the prefix, or of the stream, holds another type (another program \
                      writes there, give each names of its own)"
                    .to_string(),
        },
        Some("MOVED" | "ASK") => ErrorKind::InvalidSetting {
            field: "URL",
            problem: "the server is part of a cluster: name it by `redis+cluster://`".to_string(),
        },
        _ if is_no_cluster(cause) => ErrorKind::InvalidSetting {
            field: "URL",
            problem: "the server is not part of a cluster: name it by `redis://`".to_string(),
        },
        _ if cause.kind() == DriverKind::AuthenticationFailed => ErrorKind::Denied,
        // The driver's own words: it gives no code.
        _ if cause.to_string().contains("refused to switch database") => no_database(cause),
        _ if lacks_a_right(cause) => ErrorKind::Denied,
        _ => ErrorKind::Store,
    }
}

/// Why the database of the URL cannot be had.
fn no_database(cause: &RedisError) -> ErrorKind {
    if cause.detail().is_some_and(|detail| detail.contains("no permissions")) {
        return ErrorKind::Denied;
    }
    let problem = "the server has no such database: see the source".to_string();
    ErrorKind::InvalidSetting { field: "URL", problem }
}

/// Whether a single server was asked for the slots of a cluster: that has no code of its own.
fn is_no_cluster(cause: &RedisError) -> bool {
    cause.detail().is_some_and(|detail| detail.contains("cluster support disabled"))
}

/// Whether a command within the script was refused for want of a right: that has no code of its own (7.0, 7.2).
fn lacks_a_right(cause: &RedisError) -> bool {
    let says = cause.detail().unwrap_or_default();
    ["The user executing the script can't", "ACL failure in script"]
        .iter()
        .any(|start| says.starts_with(start))
}

/// What an answer that this library's script cannot have given means.
pub(crate) fn damaged(problem: impl Into<String>) -> Error {
    Error::nothing_done(ErrorKind::Damaged { problem: problem.into() })
}
