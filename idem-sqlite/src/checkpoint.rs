//! Keeps the write-ahead log short without stalling the writer.

use std::{sync::Arc, time::Duration};

use parking_lot::{Condvar, Mutex};
use rusqlite::{Connection, hooks::Wal};

use crate::{schema, store::Config};

/// Pages in the log from which on it is copied into the database: the engine's own default.
const COPY_AT: i32 = 1000;

/// Pages from which on new writers are held up for a moment, so that the log can start over: under constant
/// load a copy never catches up otherwise.
const RESTART_AT: i64 = 4 * COPY_AT as i64;

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
    wanted: bool,
    closed: bool,
}

impl Checkpoints {
    /// Asks for a checkpoint whenever a commit of `connection` leaves a long log.
    pub(crate) fn watch(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        let checkpoints = self.clone();
        connection.wal_hook(Some(move |wal: &mut Wal, pages| {
            if pages >= COPY_AT {
                checkpoints.want();
            }
            if pages >= BACKSTOP_AT {
                // The commit has happened: a checkpoint that cannot be done is no failure of it.
                drop(wal.checkpoint());
            }
            Ok(())
        }))
    }

    /// Works until it is closed.
    pub(crate) fn work(&self, config: &Config) {
        let mut connection = None;
        while self.wait() {
            // One that cannot be done is asked for again by the next commit.
            drop(checkpoint(&mut connection, config));
        }
    }

    pub(crate) fn close(&self) {
        self.0.state.lock().closed = true;
        self.0.changed.notify_all();
    }

    fn want(&self) {
        let mut state = self.0.state.lock();
        if !std::mem::replace(&mut state.wanted, true) {
            self.0.changed.notify_all();
        }
    }

    /// Waits until a checkpoint is wanted; false when closed.
    fn wait(&self) -> bool {
        let mut state = self.0.state.lock();
        while !state.wanted && !state.closed {
            self.0.changed.wait(&mut state);
        }
        state.wanted = false;
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
