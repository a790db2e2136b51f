//! Whose turn it is to take the write lock, among the processes that share a file.
//!
//! The engine's lock has no queue: whoever asks while it is free gets it, and a busy process asks again at once after
//! each commit. So a process that finds the lock taken waits for the turn first, which is a lock on a file beside the
//! database. The one that has the turn asks for the write lock at short intervals. All others leave the write lock alone
//! meanwhile, also those that have just committed.
//!
//! The turn decides who is next, and never who may write. So a failure of its file costs fairness only, and is no error.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior, ffi};
use uuid::Uuid;

use crate::location::Location;

/// For so long a process may write without a look at whether others wait: a look costs a microsecond or two.
const BURST: Duration = Duration::from_millis(2);

/// The first pause of the one process that asks for the write lock. Later ones grow with how long it has had the turn.
const SHORTEST_ASK: Duration = Duration::from_micros(500);

/// The pauses of those that wait for the turn: first long, then short, so that who came first is likely first.
const FIRST_WAIT: Duration = Duration::from_millis(12);
const SHORTEST_WAIT: Duration = Duration::from_millis(2);

/// No pause is longer. All get so long in the end, so that a long wait costs no processor to speak of.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// After so long without the turn a process asks for the write lock once all the same: the one that has the turn may
/// have been stopped.
const IMPATIENT: Duration = Duration::from_millis(500);

/// Begins a transaction that has the write lock.
pub(crate) fn begin(connection: &Connection) -> rusqlite::Result<Transaction<'_>> {
    take(connection, || Transaction::new_unchecked(connection, TransactionBehavior::Immediate))
}

/// Does what needs the write lock on a connection that waits for locks by itself; tries for as long as that would.
pub(crate) fn take<T>(
    connection: &Connection,
    mut lock: impl FnMut() -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let timeout = connection.query_row("PRAGMA busy_timeout", [], |row| row.get::<_, u32>(0))?;
    let patience = Duration::from_millis(timeout.into());
    let path = connection.path().filter(|path| !path.is_empty());
    let (Some(path), false) = (path, patience.is_zero()) else {
        // A busy handler of the user's could not be set back: it waits in its own way.
        return lock();
    };
    connection.busy_timeout(Duration::ZERO)?;
    let locked = Turns::beside(Path::new(path)).take(patience, lock);
    connection.busy_timeout(patience)?;
    locked
}

/// The turns at one database.
#[derive(Debug)]
pub(crate) struct Turns {
    /// None in memory, where there is one connection.
    place: Option<Place>,
    /// When this process last saw that nobody waits.
    seen_free: Option<Instant>,
}

#[derive(Debug)]
struct Place {
    database: PathBuf,
    /// What is locked by the one that is next.
    turn: PathBuf,
}

impl Turns {
    /// The turns at a database that exists.
    pub(crate) fn at(location: &Location) -> Self {
        match location {
            Location::File(path) => Self::beside(path),
            Location::Memory(_) => Self { place: None, seen_free: None },
        }
    }

    fn beside(database: &Path) -> Self {
        let database = fs::canonicalize(database).unwrap_or_else(|_| database.to_path_buf());
        let mut turn = database.clone();
        turn.as_mut_os_string().push("-turn");
        Self { place: Some(Place { database, turn }), seen_free: None }
    }

    /// Does what needs the write lock, when it is this process's turn; tries for as long as `patience`.
    ///
    /// `lock` must not wait by itself. Without patience it runs once, or not at all if others wait.
    pub(crate) fn take<T>(
        &mut self,
        patience: Duration,
        mut lock: impl FnMut() -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        let start = Instant::now();
        let mut locked = if self.others_wait(start) { Err(others_first()) } else { lock() };
        let mut turn = None;
        let mut asked = start;
        while is_taken(&locked) {
            let left = patience.saturating_sub(start.elapsed());
            if left.is_zero() {
                // Once more at the deadline, or what was let go in the last pause is missed.
                return if patience.is_zero() { locked } else { lock() };
            }
            if turn.is_none() {
                turn = self.try_turn();
            }
            let pause = match &turn {
                Some(turn) => turn.pause(),
                None => pause_before_turn(start.elapsed()),
            };
            if turn.is_some() || asked.elapsed() >= IMPATIENT {
                asked = Instant::now();
                locked = lock();
                if !is_taken(&locked) {
                    break;
                }
            }
            thread::sleep(jittered(pause).min(left));
        }
        locked
    }

    /// Removes the file, unless somebody has the turn.
    pub(crate) fn close(&self) {
        if let Some(place) = &self.place
            && let Ok(file) = File::open(&place.turn)
            && file.metadata().is_ok_and(|found| found.is_file() && found.len() == 0)
            && file.try_lock().is_ok()
        {
            drop(fs::remove_file(&place.turn));
        }
    }

    /// Whether another process, or another store of this one, waits for the write lock.
    fn others_wait(&mut self, now: Instant) -> bool {
        let Some(place) = &self.place else { return false };
        if self.seen_free.is_some_and(|seen| now.duration_since(seen) < BURST) {
            return false;
        }
        // The file is made by the first that waits.
        let others_wait = File::open(&place.turn)
            .is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)));
        if !others_wait {
            self.seen_free = Some(now);
        }
        others_wait
    }

    /// Takes the turn, if nobody has it.
    fn try_turn(&self) -> Option<Turn> {
        let file = self.place.as_ref().and_then(|place| place.open().ok());
        let is_others = file
            .as_ref()
            .is_some_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)));
        (!is_others).then(|| Turn { _file: file, since: Instant::now() })
    }
}

impl Place {
    /// Opens the file of the turn, and makes it for all who may open the database.
    fn open(&self) -> io::Result<File> {
        match File::open(&self.turn) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        let mut create = OpenOptions::new();
        let file = create.write(true).create(true).truncate(false).open(&self.turn)?;
        if let Ok(database) = fs::metadata(&self.database) {
            // Another user's process may have to open it.
            drop(file.set_permissions(database.permissions()));
        }
        Ok(file)
    }
}

/// The turn, until it is dropped.
struct Turn {
    /// Locked, unless there is no file to lock: then each asks for the write lock at short intervals.
    _file: Option<File>,
    since: Instant,
}

impl Turn {
    /// How long to wait before the write lock is asked for again.
    fn pause(&self) -> Duration {
        (self.since.elapsed() / 32).clamp(SHORTEST_ASK, LONGEST_PAUSE)
    }
}

/// How long to wait before the turn is asked for again.
fn pause_before_turn(waited: Duration) -> Duration {
    let later = (waited / 256).clamp(SHORTEST_WAIT, LONGEST_PAUSE);
    FIRST_WAIT.saturating_sub(waited / 16).max(later)
}

/// Half as long to one and a half times as long, so that no two keep missing each other's moments.
fn jittered(pause: Duration) -> Duration {
    let random = Uuid::new_v4().as_bytes()[0];
    pause / 2 + pause * u32::from(random) / 255
}

fn is_taken<T>(locked: &rusqlite::Result<T>) -> bool {
    let code = locked.as_ref().err().and_then(rusqlite::Error::sqlite_error_code);
    code == Some(ErrorCode::DatabaseBusy)
}

fn others_first() -> rusqlite::Error {
    let busy = ffi::Error::new(ffi::SQLITE_BUSY);
    rusqlite::Error::SqliteFailure(busy, Some("another process is next to write".to_string()))
}
