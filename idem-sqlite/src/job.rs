//! What waits for the writer.

use idem_core::{BoxStep, Committed, Error, Key};
use tokio::sync::oneshot;

use crate::{SqliteTransaction, writer::Writer};

/// Something to do on the write connection.
pub(crate) enum Job {
    /// A step, in a transaction that it may share with others.
    Step(StepJob),
    /// Anything else, between two transactions and on the writer thread.
    Call(Call),
}

/// Gets the writer, or the reason why not.
pub(crate) type Call = Box<dyn FnOnce(Result<&mut Writer, Error>) + Send>;

pub(crate) struct StepJob {
    pub(crate) key: Key,
    pub(crate) step: BoxStep<SqliteTransaction>,
    pub(crate) reply: oneshot::Sender<Result<Committed, Error>>,
    /// Runs in a transaction of its own, since a group with it has failed.
    pub(crate) alone: bool,
}

impl Job {
    /// Answers without having done anything.
    pub(crate) fn refuse(self, error: Error) {
        match self {
            Self::Step(job) => job.answer(Err(error)),
            Self::Call(call) => call(Err(error)),
        }
    }
}

impl StepJob {
    /// Whether the caller is gone, so that the step need not run.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    /// Tells the caller, who may be gone: what is committed stays committed.
    pub(crate) fn answer(self, answer: Result<Committed, Error>) {
        quietly(|| drop(self.reply.send(answer)));
        quietly(|| drop(self.step));
    }

    /// Drops a step that need not run.
    pub(crate) fn abandon(self) {
        quietly(|| drop(self.step));
    }
}

/// Drops what an effect's author made, an effect or an error. Its destructors are the author's code, and must
/// not take down whoever leads.
pub(crate) fn quietly(drop: impl FnOnce()) {
    if let Err(payload) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(drop)) {
        std::mem::forget(payload);
    }
}
