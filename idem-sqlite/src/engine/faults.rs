//! Tests in which the engine fails at each point of each operation in turn.
//!
//! The engine asks at nearly every instruction of a statement whether it is to go on, and once more when the statement
//! is done: a COMMIT can be interrupted that is in the file. Where not each of these points is tried, `IDEM_SEED` says
//! which, and `IDEM_ROUNDS` makes them more.

mod groups;
mod lone;
mod place;

use idem_conformance::{
    chance::{rounds, seed},
    operations::Operation,
};
use idem_core::Error;
use rusqlite::{Connection, ErrorCode, ffi};

use super::Engine;
use crate::{
    countdown::{Countdown, Lasts},
    failure,
};

/// What fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The engine is interrupted.
    Interrupt,
    /// A statement of the store fails for the disk.
    Statement,
    /// A commit fails for the disk, when it is in the file or before.
    Commit { after: bool },
}

/// How a store is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// On a file, without a sync at each commit: the engine's instructions are the same.
    File,
    /// On a file, as it is unless told but that only the writer thread commits.
    Dedicated,
    Memory,
}

/// What is tried.
#[derive(Clone, Copy, Debug)]
struct Case {
    operation: Operation,
    fault: Fault,
    lasts: Lasts,
    kind: Kind,
}

impl Fault {
    /// Has it come over the connections of a new engine when the countdown says so.
    fn threaten(self, engine: &Engine, countdown: &Countdown) {
        let interrupt = |connection: &mut Connection| {
            let countdown = countdown.clone();
            connection.progress_handler(1, Some(move || countdown.strikes())).unwrap();
        };
        engine.queue.borrow_writer(|writer| match self {
            Self::Interrupt => interrupt(writer.connection_mut()),
            Self::Statement => writer.tables().sql.fail_at(countdown),
            Self::Commit { after } => {
                writer.fail_commits(countdown.clone(), ffi::SQLITE_IOERR_FSYNC, after);
            }
        });
        let Some(readers) = &engine.readers else { return };
        readers.borrow(|connection, sql| match self {
            Self::Interrupt => interrupt(connection),
            Self::Statement => sql.fail_at(countdown),
            Self::Commit { .. } => {}
        });
    }

    /// Whether it is what the error tells of, and not something that came of it.
    fn is_told_by(self, error: &Error) -> bool {
        let code = match self {
            Self::Interrupt => ErrorCode::OperationInterrupted,
            Self::Statement | Self::Commit { .. } => ErrorCode::SystemIoFailure,
        };
        failure::engine_code(error) == Some(code)
    }
}

impl Case {
    fn of(
        operations: &[Operation],
        fault: Fault,
        lasts: Lasts,
        kind: Kind,
    ) -> impl Iterator<Item = Self> {
        operations.iter().map(move |&operation| Self { operation, fault, lasts, kind })
    }

    /// Tries the points from the first one on, so many apart, until there is none left to fail at.
    async fn fails_at_each<F: Future<Output = bool>>(
        self,
        first: usize,
        apart: usize,
        fails_at: fn(Self, usize) -> F,
    ) {
        let mut number = first;
        while fails_at(self, number).await {
            number += apart;
        }
        let (before, after) = self.operation.states();
        let has_failed = number > first;
        match self.fault {
            // In memory, where there is one connection, what only reads may commit as well.
            Fault::Commit { .. } if before == after && self.kind == Kind::Memory => {}
            Fault::Commit { .. } => assert_eq!(has_failed, before != after, "{self:?}"),
            _ => assert!(has_failed, "{self:?}"),
        }
    }
}

/// Tries points of all these cases, so many apart.
async fn try_all<F: Future<Output = bool> + Send + 'static>(
    cases: impl Iterator<Item = Case>,
    apart: usize,
    fails_at: fn(Case, usize) -> F,
) {
    let apart = apart.div_ceil(rounds(1).max(1));
    let first = if apart == 1 { 1 } else { fastrand::Rng::with_seed(seed()).usize(1..=apart) };
    let tried = cases.map(|case| tokio::spawn(case.fails_at_each(first, apart, fails_at)));
    for tried in tried.collect::<Vec<_>>() {
        tried.await.unwrap();
    }
}
