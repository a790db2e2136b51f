//! Sending a commit until it is known what became of it.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use bytes::Bytes;
use idem_core::{Certainty, Change, Error, ErrorKind, Timestamp, Token};
use tokio::time::sleep;

use crate::{
    failure::{Failure, Meaning, damaged},
    inner::Inner,
    link::Patience,
    script::{Applied, Becomes, Commit},
};

/// How many values a commit may compare and write.
const MOST_VALUES: usize = 100_000;

/// How many bytes a commit may send: unless told otherwise a server takes 512 MB in one argument and a GB in
/// all, and it holds them more than once while the script runs.
const MOST_BYTES: usize = 128 << 20;

/// What every server takes in one argument, whatever it was told (`proto-max-bulk-len`).
const LEAST_LIMIT: usize = 1 << 20;

/// What is added to the time that a lost commit is waited out for, since clocks run unlike.
const MARGIN: Duration = Duration::from_millis(5);

/// How often a commit is sent anew because it reached the server after its time.
const MOST_LATE: u32 = 8;

/// What became of a commit.
#[derive(Debug)]
pub(crate) enum Fate {
    /// It is done, with this token if it was to be the next one.
    Done { now: Timestamp, token: Option<Token> },
    /// Something had changed, and nothing was done: this is the record now, and the place of the value among what was
    /// read, if it was one.
    Refused { now: Timestamp, record: Option<Bytes>, read: Option<usize> },
}

/// Whether a commit of this call may have been applied, or may yet be, without our knowing.
#[derive(Debug, Default)]
pub(crate) struct Doubt(AtomicBool);

impl Doubt {
    pub(crate) fn is_there(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    fn arises(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// The same error, as unknown to have done nothing if that is so.
    pub(crate) fn of(&self, error: Error) -> Error {
        if self.is_there() { error.with_certainty(Certainty::Unknown) } else { error }
    }
}

/// Whether a commit may be sent again after its answer was lost: it is then found to have come before, or does
/// the same again.
pub(crate) fn may_resend(change: &Change, commit: &Commit<'_>) -> bool {
    match change {
        Change::Claim { .. } | Change::Complete { .. } => true,
        Change::Remove | Change::Extend { .. } | Change::End | Change::Keep => {
            commit.writes.is_empty()
        }
    }
}

/// A call may read and write so many values at most.
pub(crate) fn check_values(values: usize) -> Result<(), Error> {
    if values > MOST_VALUES {
        let kind = ErrorKind::TooManyValues { values, limit: MOST_VALUES };
        return Err(Error::nothing_done(kind));
    }
    Ok(())
}

fn check_size(commit: &Commit<'_>) -> Result<(), Error> {
    check_values(commit.reads.len() + commit.writes.len())?;
    let bytes = commit.size();
    if bytes > MOST_BYTES {
        return Err(Error::nothing_done(ErrorKind::TooLarge { bytes, limit: Some(MOST_BYTES) }));
    }
    Ok(())
}

/// Sends a commit until it is known what became of it, or gives up.
pub(crate) async fn settle(
    store: &Inner,
    commit: &Commit<'_>,
    may_resend: bool,
    doubt: &Doubt,
) -> Result<Fate, Error> {
    check_size(commit)?;
    let mut sending = Sending {
        store,
        commit,
        doubt,
        patience: store.link.patience(),
        told: None,
        late: 0,
        traceless_from: commit.traceless_from(store.estimated_now()),
    };
    loop {
        let failure = match sending.once().await {
            Ok(Applied::Done { now, token }) => return Ok(Fate::Done { now, token }),
            Ok(Applied::Stale { now, record, read }) => {
                return Ok(Fate::Refused { now, record, read });
            }
            Ok(Applied::Damaged) => {
                return Err(damaged("the last token of the tenant is no number below 2^63 - 1"));
            }
            Ok(Applied::Late { now }) => {
                sending.was_late(now)?;
                continue;
            }
            Err(failure) => failure,
        };
        sending.failed(failure, may_resend).await?;
    }
}

/// A commit that is being sent.
struct Sending<'s> {
    store: &'s Inner,
    commit: &'s Commit<'s>,
    doubt: &'s Doubt,
    patience: Patience,
    /// What time it was on the server, if it has just told.
    told: Option<Timestamp>,
    late: u32,
    /// From when on a commit that was applied when it was first sent may have been purged: it would not be
    /// found any more.
    traceless_from: Option<Timestamp>,
}

impl Sending<'_> {
    async fn once(&mut self) -> Result<Applied, Failure> {
        // By a clock of the store's own it is asked before, and not by the server.
        let traceless_from = self.traceless_from.filter(|_| self.store.clock.is_none());
        let not_after = if self.doubt.is_there() { traceless_from } else { None };
        self.store.apply(self.commit, self.told.take(), not_after).await
    }

    fn was_late(&mut self, now: Timestamp) -> Result<(), Error> {
        self.check_traces()?;
        self.late += 1;
        if self.late > MOST_LATE {
            let waited = self.store.link.timeouts().response;
            return Err(Error::nothing_done(ErrorKind::Unreachable { waited }));
        }
        self.told = Some(now);
        Ok(())
    }

    /// Fails if a commit that is in doubt would leave no trace any more.
    fn check_traces(&self) -> Result<(), Error> {
        let now = self.store.estimated_now();
        if self.doubt.is_there() && self.traceless_from.is_some_and(|from| from <= now) {
            let waited = self.store.link.timeouts().response;
            return Err(Error::new(ErrorKind::Unreachable { waited }, Certainty::Unknown));
        }
        Ok(())
    }

    /// Takes note of a failure, and waits if it may pass.
    async fn failed(&mut self, failure: Failure, may_resend: bool) -> Result<(), Error> {
        let is_lost = failure.meaning == Meaning::Lost;
        let limit = match self.commit.longest() {
            // The server ends the connection after that, so that its reason may be lost.
            longest if is_lost && longest > LEAST_LIMIT => {
                self.store.link.longest_argument().await.filter(|limit| longest > *limit)
            }
            _ => None,
        };
        if limit.is_some() || failure.is_too_large() {
            let kind = ErrorKind::TooLarge { bytes: self.commit.size(), limit };
            return Err(Error::nothing_done(kind).with_source(failure.cause));
        }
        if !self.commit.does_something() {
            return self.patience.bear_reading(failure).await;
        }
        if is_lost {
            self.doubt.arises();
            if !may_resend {
                return Err(failure.into_error(self.store.link.timeouts().response));
            }
            // Until it is settled by its time what becomes of a request that may still be on its way: it must not
            // come into force after this call has ended.
            sleep(self.store.validity() + MARGIN).await;
        }
        self.patience.bear(failure).await?;
        self.check_traces()
    }
}

impl Commit<'_> {
    /// From when on this commit, applied at `now`, may be purged; none if there is nothing to purge.
    fn traceless_from(&self, now: Timestamp) -> Option<Timestamp> {
        match &self.becomes {
            Becomes::Set(draft) => draft.gone_at(now),
            Becomes::Kept | Becomes::Removed => None,
        }
    }
}
