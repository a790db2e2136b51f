//! Making what is committed durable.
//!
//! The engine's `flush` writes its log and calls `sync_file_range`, which empties no cache of the disk and
//! writes no metadata: it survives a crash of the process only. A value, or a page of a tree, of more than a quarter
//! of a segment the engine writes to a file of its own under `blobs/`, and never syncs that file. So the store syncs
//! both, on descriptors of its own.

use std::{
    collections::HashSet,
    ffi::OsString,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use crate::{
    Synchronous,
    database::Database,
    failure::{Trouble, guarded},
};

/// How a batch becomes durable.
pub(crate) trait Disk: Send {
    /// Returns when all that was applied before the call is as durable as the store declares.
    fn make_durable(&mut self, database: &Database) -> Result<(), Trouble>;

    /// Returns when all that was applied before the call survives a crash of the machine.
    fn sync(&mut self, database: &Database) -> Result<(), Trouble>;
}

/// The engine's files.
pub(crate) struct Files {
    synchronous: Synchronous,
    log: File,
    blobs: Blobs,
}

impl Files {
    /// Of the open database in `folder`.
    pub(crate) fn new(folder: &Path, synchronous: Synchronous) -> io::Result<Self> {
        let log = File::options().read(true).write(true).open(log_path(folder))?;
        Ok(Self { synchronous, log, blobs: Blobs::new(folder.join("blobs")) })
    }

    /// Makes durable that the engine's files are there at all, and its settings, which it never syncs.
    pub(crate) fn sync_folders(&self, folder: &Path) -> io::Result<()> {
        File::options().write(true).open(settings_path(folder))?.sync_all()?;
        sync_folder(&self.blobs.folder)?;
        sync_folder(folder)?;
        match folder.parent() {
            Some(parent) if parent.as_os_str().is_empty() => sync_folder(Path::new(".")),
            Some(parent) => sync_folder(parent),
            None => Ok(()),
        }
    }
}

impl Disk for Files {
    fn make_durable(&mut self, database: &Database) -> Result<(), Trouble> {
        match self.synchronous {
            Synchronous::Full => self.sync(database),
            Synchronous::Flush => Ok(guarded(|| database.db.flush()).map(drop)?),
        }
    }

    fn sync(&mut self, database: &Database) -> Result<(), Trouble> {
        guarded(|| database.db.flush())?;
        self.blobs.sync()?;
        Ok(self.log.sync_data()?)
    }
}

/// Where the engine keeps its log.
pub(crate) fn log_path(folder: &Path) -> PathBuf {
    folder.join("db")
}

/// Where the engine keeps its settings.
pub(crate) fn settings_path(folder: &Path) -> PathBuf {
    folder.join("conf")
}

/// How coarse a file system's times may be.
const COARSE: Duration = Duration::from_secs(2);

/// The folder of what is too large for the log.
struct Blobs {
    folder: PathBuf,
    known: HashSet<OsString>,
    /// Those that were new the last time. Another thread of the engine may have been writing them then; the log
    /// refers to them only once they are whole, and so only from the next flush on.
    again: Vec<OsString>,
    /// The folder's time of change when it was last looked through, if any change since must show in it.
    unchanged_since: Option<SystemTime>,
}

impl Blobs {
    fn new(folder: PathBuf) -> Self {
        Self { folder, known: HashSet::new(), again: Vec::new(), unchanged_since: None }
    }

    /// Syncs what is new since the last call. The engine must have been flushed.
    fn sync(&mut self) -> io::Result<()> {
        let changed = fs::metadata(&self.folder)?.modified()?;
        let new = match self.unchanged_since {
            Some(since) if since == changed => Vec::new(),
            _ => self.look(changed)?,
        };
        for name in self.again.iter().chain(&new) {
            match File::open(self.folder.join(name)) {
                Ok(blob) => blob.sync_all()?,
                // The engine removes what it no longer needs.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        if !new.is_empty() {
            sync_folder(&self.folder)?;
        }
        self.again = new;
        Ok(())
    }

    /// The names that were not there the last time.
    fn look(&mut self, changed: SystemTime) -> io::Result<Vec<OsString>> {
        // Within the clock's grain a later change may have the same time: look again.
        let age = SystemTime::now().duration_since(changed);
        self.unchanged_since = age.is_ok_and(|age| age > COARSE).then_some(changed);
        let mut found = HashSet::new();
        for entry in fs::read_dir(&self.folder)? {
            found.insert(entry?.file_name());
        }
        let new = found.difference(&self.known).cloned().collect();
        self.known = found;
        Ok(new)
    }
}

/// Makes the names in a folder durable.
fn sync_folder(folder: &Path) -> io::Result<()> {
    // Elsewhere a folder cannot be opened so, and its names are the file system's own business.
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segments::Segments;

    #[test]
    fn what_is_new_is_synced_when_it_appears_and_once_more() {
        let folder = tempfile::tempdir().unwrap();
        let mut blobs = Blobs::new(folder.path().to_path_buf());
        fs::write(folder.path().join("1"), "a").unwrap();
        blobs.sync().unwrap();
        assert_eq!(blobs.again, ["1"]);
        fs::write(folder.path().join("2"), "b").unwrap();
        blobs.sync().unwrap();
        assert_eq!(blobs.again, ["2"]);
        fs::remove_file(folder.path().join("2")).unwrap();
        blobs.sync().unwrap();
        assert_eq!(blobs.again, [""; 0]);
    }

    /// The names that a batch of these values made the store sync.
    fn synced(lengths: &[usize], synchronous: Synchronous) -> usize {
        let folder = tempfile::tempdir().unwrap();
        let db = sled::open(folder.path()).unwrap();
        let database = Database::new(db, Segments::FORMER).unwrap();
        let mut files = Files::new(folder.path(), synchronous).unwrap();
        files.make_durable(&database).unwrap();
        for (number, length) in lengths.iter().enumerate() {
            database.values.insert(number.to_be_bytes(), vec![7; *length]).unwrap();
        }
        files.make_durable(&database).unwrap();
        files.blobs.again.len()
    }

    #[test]
    fn the_files_of_large_values_and_of_pages_of_smaller_ones_are_synced() {
        // A quarter of the engine's segment of 512 KiB, less its headers and the key's few bytes.
        let limit = (512 << 10) / 4 - 20 - 32;
        assert_eq!(synced(&[limit - 100], Synchronous::Full), 0);
        assert_eq!(synced(&[limit + 1], Synchronous::Full), 1);
        assert!(synced(&[20_000; 30], Synchronous::Full) > 0, "pages are written as a whole");
        assert_eq!(synced(&[1_000; 100], Synchronous::Full), 0);
        assert_eq!(synced(&[300_000], Synchronous::Flush), 0, "it was told to leave that out");
    }

    #[test]
    fn a_folder_that_has_not_changed_for_long_is_not_looked_through() {
        let folder = tempfile::tempdir().unwrap();
        let mut blobs = Blobs::new(folder.path().to_path_buf());
        blobs.sync().unwrap();
        assert_eq!(blobs.unchanged_since, None, "it changed just now");
        let long_ago = SystemTime::now() - Duration::from_secs(60);
        File::open(folder.path()).unwrap().set_modified(long_ago).unwrap();
        blobs.sync().unwrap();
        assert!(blobs.unchanged_since.is_some());
        fs::write(folder.path().join("1"), "a").unwrap();
        blobs.sync().unwrap();
        assert_eq!(blobs.again, ["1"]);
    }
}
