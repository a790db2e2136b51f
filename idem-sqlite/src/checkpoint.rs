//! Keeps the write-ahead log short without stalling the writer for long.
//!
//! A thread copies the log into the database while the writer goes on. It cannot finish under constant
//! load, since the log grows meanwhile; so the writer copies the little that came, after its next commit,
//! and the log starts over. Without that second half the log would not start over, and every copy would
//! be one for nothing.

use std::{sync::Arc, time::Duration};

use idem_core::locks::{Condvar, Mutex};
use rusqlite::{Connection, hooks::Wal};

use crate::{options::Config, schema};

/// Pages in the log, beyond those already copied, from which on they are copied into the database: the
/// engine's own default.
const COPY_AT: i32 = 1000;

/// Pages from which on new writers are held up for a moment, so that the log can start over: readers of its
/// old content were in the way until then.
const RESTART_AT: i32 = 8 * COPY_AT;

/// How long starting the log over may hold up writers, waiting for readers of its old content.
const RESTART_PATIENCE: Duration = Duration::from_millis(100);

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Idle,
    /// The thread is asked to copy, or copies.
    Copying,
    /// The thread has copied so many pages.
    Copied(i32),
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
                // It has started over, and what was copied of the old one says nothing of this one.
                copy_at = COPY_AT;
                checkpoints.start_over();
            }
            last_pages = pages;
            if pages < copy_at {
                return Ok(());
            }
            match checkpoints.ask() {
                Stage::Idle | Stage::Copying => {}
                Stage::Copied(copied) => {
                    copy_at = pages.saturating_add(COPY_AT);
                    // Only what has come since is the writer's: what readers hold up is too much for it.
                    if pages - copied <= COPY_AT {
                        // The commit has happened: a copy that cannot be done is no failure of it.
                        drop(wal.checkpoint());
                    }
                }
            }
            Ok(())
        }))
    }

    /// Works until it is closed.
    pub(crate) fn work(&self, config: &Config) {
        let mut connection = None;
        let mut restart_at = RESTART_AT;
        while self.wait() {
            // What cannot be done now is asked for again, some pages later.
            let copied = copy(&mut connection, config, &mut restart_at).unwrap_or(0);
            self.0.state.lock().stage = Stage::Copied(copied);
        }
    }

    pub(crate) fn close(&self) {
        self.0.state.lock().closed = true;
        self.0.changed.notify_all();
    }

    /// How far the copying is. If nobody copies, the thread is asked to; if it has copied, it is idle again.
    fn ask(&self) -> Stage {
        let mut state = self.0.state.lock();
        let stage = state.stage;
        state.stage = match stage {
            Stage::Idle | Stage::Copying => Stage::Copying,
            Stage::Copied(_) => Stage::Idle,
        };
        if stage == Stage::Idle {
            self.0.changed.notify_all();
        }
        stage
    }

    fn start_over(&self) {
        let mut state = self.0.state.lock();
        if matches!(state.stage, Stage::Copied(_)) {
            state.stage = Stage::Idle;
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

/// Copies what readers let it, and starts the log over if it is long; returns how many pages are copied.
fn copy(
    connection: &mut Option<Connection>,
    config: &Config,
    restart_at: &mut i32,
) -> rusqlite::Result<i32> {
    let connection = match connection {
        Some(connection) => connection,
        None => connection.insert(open(config)?),
    };
    let (_, pages, copied) = checkpoint(connection, "PRAGMA wal_checkpoint(PASSIVE)")?;
    if pages < *restart_at {
        return Ok(copied);
    }
    let (busy, pages, copied) = checkpoint(connection, "PRAGMA wal_checkpoint(RESTART)")?;
    // A reader that stays makes every attempt hold up writers in vain: fewer of them, then.
    *restart_at = if busy == 0 { RESTART_AT } else { pages.saturating_mul(2) };
    Ok(copied)
}

/// Whether something was in the way (0 or 1), the pages in the log, and how many of them are copied.
fn checkpoint(connection: &Connection, pragma: &str) -> rusqlite::Result<(i32, i32, i32)> {
    connection.query_row(pragma, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
}

fn open(config: &Config) -> rusqlite::Result<Connection> {
    let connection = config.connect()?;
    connection.busy_timeout(RESTART_PATIENCE)?;
    schema::configure(&connection, config.options.synchronous)?;
    Ok(connection)
}
