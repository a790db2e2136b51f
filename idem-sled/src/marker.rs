//! The store's own file beside the engine's: who has the folder, and how much must be found in it.
//!
//! The engine takes a folder whose files are gone, or a log that was cut short, for what was always there. The
//! marker says how many batches had been committed when the store was last opened or closed.

use std::{
    fs::{File, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
};

use idem_core::{Error, ErrorKind};

/// The version of all that this library keeps in the folder.
pub(crate) const FORMAT: i64 = 1;

const NAME: &str = "idem";
const TITLE: &str = "idem-sled";

/// The open marker, and the lock on the folder as long as it is.
pub(crate) struct Marker(File);

impl Marker {
    /// Opens the marker of a folder and locks it; none if somebody else has the lock.
    pub(crate) fn lock(folder: &Path) -> io::Result<Option<Self>> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(folder.join(NAME))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// How many batches there must be; none if nothing was ever marked.
    ///
    /// # Errors
    /// [`ErrorKind::SchemaNewer`] if a newer version of this library wrote it; [`ErrorKind::CannotOpen`] if none
    /// did, or it cannot be read.
    pub(crate) fn batches(&mut self, folder: &Path) -> Result<Option<u64>, Error> {
        let mut text = String::new();
        let read = self.0.seek(SeekFrom::Start(0)).and_then(|_| self.0.read_to_string(&mut text));
        let bad = || {
            let kind = ErrorKind::CannotOpen {
                location: folder.display().to_string(),
                problem: format!(
                    "its file `{NAME}` is damaged: see that the store is whole, and remove that file"
                ),
            };
            Error::nothing_done(kind)
        };
        read.map_err(|error| bad().with_source(error))?;
        if text.is_empty() {
            return Ok(None);
        }
        let mut fields = text.split_whitespace();
        if fields.next() != Some(TITLE) {
            return Err(bad());
        }
        match fields.next().and_then(|version| version.parse().ok()) {
            Some(FORMAT) => {}
            Some(found) if found > FORMAT => return Err(newer(folder, found)),
            _ => return Err(bad()),
        }
        fields.next().and_then(|batches| batches.parse().ok()).map(Some).ok_or_else(bad)
    }

    /// Says, durably, how many batches there must be from now on.
    pub(crate) fn set_batches(&mut self, batches: u64) -> io::Result<()> {
        self.0.seek(SeekFrom::Start(0))?;
        // Always as long, so that one write replaces all of it.
        self.0.write_all(format!("{TITLE} {FORMAT} {batches:020}\n").as_bytes())?;
        self.0.sync_all()
    }
}

/// What is in the folder is of a later version than this library knows.
pub(crate) fn newer(folder: &Path, found: i64) -> Error {
    let location = folder.display().to_string();
    Error::nothing_done(ErrorKind::SchemaNewer { location, found, supported: FORMAT })
}
