//! How much of the disk a folder takes.

use std::{
    fs::{self, DirEntry},
    io,
    path::Path,
};

use idem_core::{Error, runtime};

use crate::{SledStore, failure::Trouble};

/// How large a store's folder is. Given by [`SledStore::size_on_disk`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FolderSize {
    /// The lengths of all files in the folder together, in bytes: the engine's log, its settings and its snapshot, the
    /// files under `blobs/`, and the store's own file.
    pub bytes: u64,
    /// How many files there are under `blobs/`, where the engine keeps what is too large for its log. Some of them may
    /// be needed no more, and the engine removes those late or never.
    pub blobs: u64,
    /// The lengths of the files under `blobs/` together, in bytes.
    pub blob_bytes: u64,
}

impl SledStore {
    /// How large the folder is now, by the lengths of its files.
    ///
    /// It asks the file system once for each file, on a thread of its own, and waits for no commit: files that come
    /// and go meanwhile are counted or not.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`](idem_core::ErrorKind::Closed);
    /// [`ErrorKind::Store`](idem_core::ErrorKind::Store) if the folder cannot be read.
    ///
    /// # Cancel safety
    /// Nothing is changed; the look goes on in the background.
    pub async fn size_on_disk(&self) -> Result<FolderSize, Error> {
        // It says so once it is closed: the folder may be another's then.
        let engine = self.at_home()?;
        engine.read(|_| Ok(()))?;
        let folder = engine.folder.clone();
        let look = move || measure(&folder).map_err(|error| Trouble::from(error).nothing_done());
        runtime::run("idem-sled-size", look).await?
    }
}

fn measure(folder: &Path) -> io::Result<FolderSize> {
    let (_, own) = lengths(folder)?;
    let (blobs, blob_bytes) = lengths(&folder.join("blobs"))?;
    Ok(FolderSize { bytes: own + blob_bytes, blobs, blob_bytes })
}

/// How many files lie in a folder, and their lengths together.
fn lengths(folder: &Path) -> io::Result<(u64, u64)> {
    let (mut files, mut bytes) = (0, 0);
    for entry in fs::read_dir(folder)? {
        if let Some(length) = length(&entry?)? {
            files += 1;
            bytes += length;
        }
    }
    Ok((files, bytes))
}

/// The length of a file; none if it is no file, or gone meanwhile.
fn length(entry: &DirEntry) -> io::Result<Option<u64>> {
    match entry.metadata() {
        Ok(found) => Ok(found.is_file().then_some(found.len())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_counts_and_those_of_large_values_by_themselves() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("blobs")).unwrap();
        fs::write(folder.path().join("db"), [1; 1_000]).unwrap();
        fs::write(folder.path().join("conf"), [1; 70]).unwrap();
        for (name, length) in [("1", 20_000), ("2", 30_000)] {
            fs::write(folder.path().join("blobs").join(name), vec![1; length]).unwrap();
        }
        let size = FolderSize { bytes: 51_070, blobs: 2, blob_bytes: 50_000 };
        assert_eq!(measure(folder.path()).unwrap(), size);
    }
}
