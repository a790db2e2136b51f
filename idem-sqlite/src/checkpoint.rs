//! Keeps the write-ahead log short without stalling the writer for long.
//!
//! A thread copies the log into the database while the writer goes on. It cannot finish under constant
//! load, since the log grows meanwhile; so the writer copies the little that came, after its next commit,
//! and the log starts over. Without that second half the log would not start over, and every copy would
//! be one for nothing.

use std::{sync::Arc, time::Duration};

use parking_lot::{Condvar, Mutex};
use rusqlite::{Connection, hooks::Wal};

use crate::{options::Config, schema};

/// Pages in the log, beyond those already copied, from which on they are copied into the database: the
/// engine's own default.
const COPY_AT: i32 = 1000;

/// Pages from which on new writers are held up for a moment, so that the log can start over: readers of its
/// old content were in the way until then.
const RESTART_AT: i64 = 8 * COPY_AT as i64;

/// Pages from which on the writer itself copies, should the checkpoint connection fail to.
const BACKSTOP_AT: i32 = 16 * COPY_AT;

/// How long starting the log over may hold up writers, waiting for readers of its old content.
const RESTART_PATIENCE: Duration = Duration::from_millis(50);

/// Asks for checkpoints. A clone asks the same thread.
#[derive(Clone, Default)]
pub(crate) struct Checkpoints(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    stage: Stage,
    closed: bool,
}

/// How far the copying of the log is.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Idle,
    /// The thread is asked to copy, or copies.
    Copying,
    /// The thread has copied what there was: the rest is the writer's.
    Copied,
}

impl Checkpoints {
    /// Has the log copied whenever a commit of `connection` leaves a long one.
    pub(crate) fn watch(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        let checkpoints = self.clone();
        // From how many pages on it is copied; more after a copy that a reader kept from being complete.
        let mut copy_at = COPY_AT;
        let mut last_pages = 0;
        connection.wal_hook(Some(move |wal: &mut Wal, pages: i32| {
            if pages < last_pages {
                copy_at = COPY_AT;
            }
            last_pages = pages;
            if pages < copy_at {
                return Ok(());
            }
            if pages >= BACKSTOP_AT || checkpoints.take_over() {
                // The commit has happened: a checkpoint that cannot be done is no failure of it.
                drop(wal.checkpoint());
                copy_at = pages.saturating_add(COPY_AT);
            }
            Ok(())
        }))
    }

    /// Works until it is closed.
    pub(crate) fn work(&self, config: &Config) {
        let mut connection = None;
        while self.wait() {
            // One that cannot be done is left to the writer.
            drop(checkpoint(&mut connection, config));
            self.0.state.lock().stage = Stage::Copied;
        }
    }

    pub(crate) fn close(&self) {
        self.0.state.lock().closed = true;
        self.0.changed.notify_all();
    }

    /// Whether the writer is to copy now. If nothing was copied yet, the thread is asked to.
    fn take_over(&self) -> bool {
        let mut state = self.0.state.lock();
        match state.stage {
            Stage::Idle => {
                state.stage = Stage::Copying;
                self.0.changed.notify_all();
                false
            }
            Stage::Copying => false,
            Stage::Copied => {
                state.stage = Stage::Idle;
                true
            }
        }
    }

    /// Waits until a copy is asked for; false when closed.
    fn wait(&self) -> bool {
        let mut state = self.0.state.lock();
        while state.stage != Stage::Copying && !state.closed {
            self.0.changed.wait(&mut state);
        }
        !state.closed
    }
}

fn checkpoint(connection: &mut Option<Connection>, config: &Config) -> rusqlite::Result<()> {
    let connection = match connection {
        Some(connection) => connection,
        None => connection.insert(open(config)?),
    };
    let pages = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get(1))?;
    if RESTART_AT <= pages {
        connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(()))?;
    }
    Ok(())
}

fn open(config: &Config) -> rusqlite::Result<Connection> {
    let connection = config.location.connect()?;
    connection.busy_timeout(RESTART_PATIENCE)?;
    schema::configure(&connection, config.options.synchronous)?;
    Ok(connection)
}
