//! Receiving: what others left in flight, then what is new.

use std::{mem, sync::LazyLock, time::Duration};

use idem_core::Error;
use idem_core::locks::Mutex;
use redis::Cmd;

use super::{
    inner::Inner,
    reply::{self, Delivered},
};
use crate::{
    failure::{Failure, Meaning},
    link::{Link, Patience, Timeouts},
    script::Script,
    target::Target,
};

/// It needs no memory: what was taken over was in flight before.
static CLAIM: LazyLock<Script> =
    LazyLock::new(|| Script::new("#!lua flags=allow-oom", include_str!("claim.lua")));

/// How many entries are received at once, so that the server is not held up.
const MOST: usize = 1_000;

/// How many entries in flight a receive goes through that finds none to take, at least. A look goes through ten times
/// as many as are still wanted: once some were taken, through fewer.
const LOOKED_THROUGH: usize = 1_000;

/// The connections of those who wait for entries. Each has one of its own: a command that waits on the server holds
/// up all that come after it on its connection.
pub(super) struct Waiting {
    target: Target,
    timeouts: Timeouts,
    idle: Mutex<Vec<Link>>,
}

impl Waiting {
    /// `target` must bear with a command that waits.
    pub(super) fn new(target: Target, timeouts: Timeouts) -> Self {
        Self { target, timeouts, idle: Mutex::new(Vec::new()) }
    }

    /// A connection that is nobody else's until it is put back; one that is dropped instead is closed.
    fn take(&self) -> Link {
        let idle = self.idle.lock().pop();
        idle.unwrap_or_else(|| Link::new(self.target.clone(), self.timeouts))
    }

    fn put_back(&self, link: Link) {
        self.idle.lock().push(link);
    }
}

/// How far the search for what was left in flight has come.
#[derive(Debug)]
pub(super) struct Search {
    /// The entry to go on with.
    cursor: String,
    /// Whether the last receive found as much as it wanted, and so did not look for new entries.
    is_full: bool,
}

impl Default for Search {
    fn default() -> Self {
        Self { cursor: "0-0".to_string(), is_full: false }
    }
}

impl Inner {
    pub(super) async fn receive(&self, max: usize) -> Result<Vec<Delivered>, Error> {
        if max == 0 {
            return Ok(Vec::new());
        }
        let link = self.waiting.take();
        let received = self.receive_by(&link, max.min(MOST)).await;
        self.waiting.put_back(link);
        received
    }

    async fn receive_by(&self, link: &Link, max: usize) -> Result<Vec<Delivered>, Error> {
        // Entries that are given back again and again must not keep new ones from being delivered.
        if mem::take(&mut self.search.lock().is_full) {
            let new = self.read(link, max, None).await?;
            if !new.is_empty() {
                return Ok(new);
            }
        }
        let mut received = self.claim(link, max).await?;
        let wanted = max - received.len();
        self.search.lock().is_full = wanted == 0;
        if wanted > 0 {
            let block = received.is_empty().then_some(self.block);
            match self.read(link, wanted, block).await {
                Ok(new) => received.extend(new),
                Err(error) if received.is_empty() => return Err(error),
                // The next receive meets it as well; what has been taken over must not wait for its visibility.
                Err(_) => {}
            }
        }
        Ok(received)
    }

    /// Takes over what has been in flight for longer than its visibility.
    async fn claim(&self, link: &Link, max: usize) -> Result<Vec<Delivered>, Error> {
        let cursor = self.search.lock().cursor.clone();
        let looks = LOOKED_THROUGH.div_ceil(10 * max) + 1;
        let fill = |command: &mut Cmd| {
            command.arg(1).arg(&self.stream).arg(&self.group).arg(&self.consumer);
            command.arg(self.visibility.as_millis()).arg(&cursor).arg(max).arg(looks);
        };
        let mut patience = link.patience();
        loop {
            let answer = link.eval(&CLAIM, fill).await;
            let claimed = answer
                .and_then(|answer| reply::claimed(answer).ok_or_else(|| link.misunderstood()));
            match claimed {
                Ok((cursor, taken)) => {
                    self.search.lock().cursor = cursor;
                    return Ok(taken);
                }
                Err(failure) => self.bear(link, &mut patience, failure).await?,
            }
        }
    }

    /// Reads what nobody has read yet, and waits for it if so told.
    async fn read(
        &self,
        link: &Link,
        max: usize,
        block: Option<Duration>,
    ) -> Result<Vec<Delivered>, Error> {
        let mut command = redis::cmd("XREADGROUP");
        command.arg("GROUP").arg(&self.group).arg(&self.consumer).arg("COUNT").arg(max);
        if let Some(block) = block {
            command.arg("BLOCK").arg(u64::try_from(block.as_millis()).unwrap_or(u64::MAX));
        }
        command.arg("STREAMS").arg(&self.stream).arg(">");
        let mut patience = link.patience();
        loop {
            let answer = link.send(&command).await;
            let read =
                answer.and_then(|answer| reply::read(answer).ok_or_else(|| link.misunderstood()));
            match read {
                Ok(new) => return Ok(new),
                Err(failure) => self.bear(link, &mut patience, failure).await?,
            }
        }
    }

    /// Bears a failure to receive. A group that is gone is made again.
    async fn bear(
        &self,
        link: &Link,
        patience: &mut Patience,
        mut failure: Failure,
    ) -> Result<(), Error> {
        if failure.cause.code() == Some("NOGROUP") {
            match self.create_group(link).await {
                Ok(()) => failure.meaning = Meaning::Wait,
                Err(not_created) => failure = not_created,
            }
        }
        patience.bear(failure).await
    }

    /// Makes the group, unless it is there, and the stream with it: from the stream's start, so that nothing which
    /// was sent before is missed.
    pub(super) async fn create_group(&self, link: &Link) -> Result<(), Failure> {
        let mut command = redis::cmd("XGROUP");
        command.arg("CREATE").arg(&self.stream).arg(&self.group).arg("0").arg("MKSTREAM");
        match link.send(&command).await {
            Err(failure) if failure.cause.code() == Some("BUSYGROUP") => Ok(()),
            created => created.map(drop),
        }
    }
}
