//! What all handles of a store share.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use idem_core::{Clock, Error, ErrorKind, HotValues, Record, Span, Timestamp};
use redis::Cmd;
use tokio::sync::{RwLock, RwLockReadGuard};

use crate::{
    create::Create,
    failure::Failure,
    glance::glance,
    link::Link,
    names::Prefix,
    reentry,
    script::{Answer, Applied, Commit, LOOK, Question, Seen},
    server_time::ServerTime,
};

pub(crate) struct Inner {
    pub(crate) link: Link,
    pub(crate) prefix: Prefix,
    /// Whose clock decides, if it is not the server's.
    pub(crate) clock: Option<Box<dyn Clock>>,
    pub(crate) server_time: ServerTime,
    pub(crate) speculative: bool,
    /// How long after a record may be purged the server removes it by itself.
    pub(crate) grace: Span,
    pub(crate) nonces: AtomicU64,
    pub(crate) closed: AtomicBool,
    pub(crate) hot_values: Arc<HotValues>,
    /// Held for reading by every call that is under way, so that closing waits for them.
    pub(crate) calls: RwLock<()>,
}

impl Inner {
    /// Enters a call, unless the store is closed or another process's, or the call comes from an effect.
    pub(crate) fn enter(&self) -> Result<RwLockReadGuard<'_, ()>, Error> {
        self.link.check_process()?;
        reentry::check()?;
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::nothing_done(ErrorKind::Closed));
        }
        // It is only taken while the store is being closed: nobody waits for that, and least of all one whom
        // an effect waits for.
        self.calls.try_read().map_err(|_| Error::nothing_done(ErrorKind::Closed))
    }

    /// The time by the clock that decides, as far as it is known without asking.
    pub(crate) fn estimated_now(&self) -> Timestamp {
        self.clock.as_ref().map_or_else(|| self.server_time.now(), |clock| clock.now())
    }

    /// The time by the clock that decides, when the server said `now`.
    pub(crate) fn decided_now(&self, now: Timestamp) -> Timestamp {
        self.clock.as_ref().map_or(now, |clock| clock.now())
    }

    /// When records that may be purged are removed by the server: under its own clock alone.
    pub(crate) fn grace(&self) -> Option<Span> {
        self.clock.is_none().then_some(self.grace)
    }

    /// Reads a record and values, once.
    pub(crate) async fn look(&self, record: &[u8], values: &[Vec<u8>]) -> Result<Seen, Failure> {
        let nonce = self.next_nonce();
        let seen = if values.is_empty() && !self.link.is_cluster() {
            glance(&self.link, record, nonce).await?
        } else {
            let question = Question::plain(nonce);
            let fill = |command: &mut Cmd| {
                command.arg(1 + values.len()).arg(record).arg(values).arg(question.as_bytes());
            };
            let answer = self.link.eval(&LOOK, fill).await?;
            let seen = question.answer(answer).and_then(|answer| answer.seen(values.len()));
            seen.ok_or_else(|| self.link.misunderstood())?
        };
        self.server_time.learn(seen.now);
        Ok(seen)
    }

    /// As [`Inner::look`], until it works or there is no use in it.
    pub(crate) async fn look_patiently(
        &self,
        record: &[u8],
        values: &[Vec<u8>],
    ) -> Result<Seen, Error> {
        let mut patience = self.link.patience();
        loop {
            match self.look(record, values).await {
                Ok(seen) => return Ok(seen),
                Err(failure) => patience.bear_reading(failure).await?,
            }
        }
    }

    /// Sends a commit, once. `now` is the server's time, if it has just told; from the server's time `before`
    /// on the commit must not be applied.
    pub(crate) async fn apply(
        &self,
        commit: &Commit<'_>,
        now: Option<Timestamp>,
        before: Option<Timestamp>,
    ) -> Result<Applied, Failure> {
        let nonce = self.next_nonce();
        let now = now.unwrap_or_else(|| self.server_time.now()).as_millis();
        let valid = i64::try_from(self.validity().as_millis()).unwrap_or(i64::MAX);
        let last = before.map_or(i64::MAX, |before| before.as_millis().saturating_sub(1));
        let not_after = Timestamp::from_millis(now.saturating_add(valid).min(last));
        let applied = match Create::of(commit) {
            Some(create) => create.send(&self.link, nonce, not_after).await?,
            None => {
                let question = Question::until(not_after, nonce, "");
                let fill = |command: &mut Cmd| commit.fill(&question, command);
                let answer = self.link.eval(commit.script(), fill).await?;
                let applied = question.answer(answer).and_then(Answer::applied);
                applied.ok_or_else(|| self.link.misunderstood())?
            }
        };
        if let Some(now) = applied.now() {
            self.server_time.learn(now);
        }
        Ok(applied)
    }

    /// How long a commit may be on its way. One whose answer is lost is waited out for as long.
    pub(crate) fn validity(&self) -> Duration {
        self.link.timeouts().response.min(Duration::from_secs(1))
    }

    fn next_nonce(&self) -> u64 {
        self.nonces.fetch_add(1, Ordering::Relaxed)
    }
}

/// The record in what lies under its name.
pub(crate) fn decode(stored: Option<Bytes>, name: &[u8]) -> Result<Option<Record>, Error> {
    let Some(stored) = stored else { return Ok(None) };
    Record::from_bytes(&stored).map(Some).map_err(|error| named(error, name))
}

/// The same error, which says under what name the record lies, so that an operator finds it.
pub(crate) fn named(error: Error, name: &[u8]) -> Error {
    error.stored_in(
        &format!("the key {:?}", String::from_utf8_lossy(name)),
        "restore it, or delete that key to have it run anew",
    )
}
