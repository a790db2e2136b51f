//! The store's own file beside the engine's: who has the folder, and how much must be found in it.
//!
//! The engine takes a folder whose files are gone, or a log that was cut short, for what was always there. The
//! marker says how many batches had been committed when the store was last opened or closed, and of which size the
//! engine's segments are, which the engine's own file of settings may have lost.

use std::{
    fs::{File, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
};

use idem_core::{Error, ErrorKind};

use crate::segments::Segments;

/// The version of all that this library keeps in the folder. Before 2 nothing was kept in pieces.
pub(crate) const FORMAT: i64 = 2;

const NAME: &str = "idem";
const TITLE: &str = "idem-sled";

/// The open marker, and the lock on the folder as long as it is.
pub(crate) struct Marker(File);

/// What a marker says.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    /// How many batches there must be.
    pub(crate) batches: u64,
    pub(crate) segments: Segments,
}

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

    /// What is marked; none if nothing ever was.
    ///
    /// # Errors
    /// [`ErrorKind::SchemaNewer`] if a newer version of this library wrote it; [`ErrorKind::CannotOpen`] if none
    /// did, or it cannot be read.
    pub(crate) fn read(&mut self, folder: &Path) -> Result<Option<Mark>, Error> {
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
        let version = fields.next().and_then(|version| version.parse().ok()).ok_or_else(bad)?;
        if version > FORMAT {
            return Err(newer(folder, version));
        }
        let batches = fields.next().and_then(|batches| batches.parse().ok());
        let segments = match version {
            FORMAT => fields.next().and_then(|size| size.parse().ok()).and_then(Segments::of_size),
            1 => Some(Segments::FORMER),
            _ => None,
        };
        let mark = batches.zip(segments).map(|(batches, segments)| Mark { batches, segments });
        mark.map(Some).ok_or_else(bad)
    }

    /// Says, durably, how many batches there must be from now on, and the size of their segments.
    pub(crate) fn set(&mut self, Mark { batches, segments }: Mark) -> io::Result<()> {
        self.0.seek(SeekFrom::Start(0))?;
        // Always as long, so that one write replaces all of it.
        let text = format!("{TITLE} {FORMAT} {batches:020} {:08}\n", segments.size());
        self.0.write_all(text.as_bytes())?;
        self.0.sync_all()
    }
}

/// What is in the folder is of a later version than this library knows.
pub(crate) fn newer(folder: &Path, found: i64) -> Error {
    let location = folder.display().to_string();
    Error::nothing_done(ErrorKind::SchemaNewer { location, found, supported: FORMAT })
}
