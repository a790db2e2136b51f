//! Which files this process has open by stores, so that a forked child does not open them again.
//!
//! SQLite keeps for each file which locks its process has, and takes none that it has already. A child inherits that
//! list, but none of the locks: a connection that it opens to such a file believes itself locked, and another process
//! may delete the log under it. Nothing but another program gets rid of the list.

use std::{
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use idem_core::locks::{Mutex, MutexGuard};
use idem_core::{Error, ErrorKind, HomeProcess};

use crate::{failure, location::Location};

/// Locked for a moment only; in a forked child for ever, if that was the moment of the fork.
static OPEN: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

/// Pauses while somebody else has the list locked.
const POLL: Duration = Duration::from_millis(1);

/// Why the list may be locked for so long, and what to do.
const OPENING: &str = "another thread opened a store when this process was forked: open stores before or after a fork, \
                       and not meanwhile";

/// What the system tells files apart by.
type FileId = (u64, u64);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    home: HomeProcess,
    path: PathBuf,
    /// None while the file is being created.
    file: Option<FileId>,
}

/// A file that this process has open, until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenPlace(Entry);

impl OpenPlace {
    /// Enters the file before it is opened. A database in memory is none.
    ///
    /// # Errors
    /// [`ErrorKind::CannotOpen`] if another process, from which this one was forked, had it open.
    pub(crate) fn enter(location: &Location, patience: Duration) -> Result<Option<Self>, Error> {
        let Location::File(path) = location else { return Ok(None) };
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let entry = Entry { home: HomeProcess::here(), file: file_id(&path), path };
        let mut open = lock(patience)?;
        if let Some(inherited) = open.iter().find(|other| other.is_inherited_of(&entry)) {
            return Err(inherited.refusal(location));
        }
        open.push(entry.clone());
        Ok(Some(Self(entry)))
    }

    /// Notes which file it is, now that it exists.
    pub(crate) fn opened(&mut self) {
        let file = file_id(&self.0.path);
        let mut open = OPEN.lock();
        if let Some(entry) = open.iter_mut().find(|entry| **entry == self.0) {
            entry.file = file;
        }
        self.0.file = file;
    }
}

impl Drop for OpenPlace {
    fn drop(&mut self) {
        if !self.0.home.is_here() {
            return;
        }
        let mut open = OPEN.lock();
        if let Some(index) = open.iter().position(|entry| *entry == self.0) {
            open.swap_remove(index);
        }
    }
}

impl Entry {
    /// Whether it is the same file as that of `entry`, from before a fork.
    fn is_inherited_of(&self, entry: &Self) -> bool {
        if self.home.is_here() {
            return false;
        }
        match (self.file.or_else(|| file_id(&self.path)), entry.file) {
            (Some(file), Some(other)) => file == other,
            (None, None) => self.path == entry.path,
            _ => false,
        }
    }

    fn refusal(&self, location: &Location) -> Error {
        let problem = "a store had it open when this process was forked, and SQLite takes the locks of that process for \
                       this one's: close the store before the fork, open it only after, or start another program";
        let kind =
            ErrorKind::CannotOpen { location: location.to_string(), problem: problem.to_string() };
        let error = Error::nothing_done(kind);
        match self.home.check() {
            Ok(()) => error,
            Err(source) => error.with_source(source),
        }
    }
}

fn lock(patience: Duration) -> Result<MutexGuard<'static, Vec<Entry>>, Error> {
    let deadline = Instant::now() + patience;
    loop {
        // Nothing wakes a forked child that waits for a thread of its parent.
        match OPEN.try_lock() {
            Some(open) => return Ok(open),
            None if Instant::now() >= deadline => {
                return Err(failure::busy(patience, OPENING, None));
            }
            None => thread::sleep(POLL),
        }
    }
}

#[cfg(unix)]
fn file_id(path: &Path) -> Option<FileId> {
    use std::os::unix::fs::MetadataExt;
    let file = std::fs::metadata(path).ok()?;
    Some((file.dev(), file.ino()))
}

/// Nothing forks there.
#[cfg(not(unix))]
fn file_id(_: &Path) -> Option<FileId> {
    None
}
