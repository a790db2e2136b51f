//! Where the database is.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use idem_core::{Error, ErrorKind};
use rusqlite::{Connection, OpenFlags};

use crate::diagnosis;

/// Where a store's database is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    File(PathBuf),
    /// In memory: one of many.
    Memory(u64),
}

impl Location {
    pub(crate) fn file(path: &Path) -> Result<Self, Error> {
        let name = path.as_os_str();
        if name == ":memory:" {
            return Ok(Self::memory());
        }
        if name.is_empty() {
            let problem = "it is empty: give the path of a file, or `:memory:`".to_string();
            return Err(Error::nothing_done(ErrorKind::InvalidSetting { field: "path", problem }));
        }
        // The engine takes a name that begins so for a URI.
        let is_uri = path.as_os_str().to_string_lossy().starts_with("file:");
        Ok(Self::File(if is_uri { Path::new(".").join(path) } else { path.to_path_buf() }))
    }

    pub(crate) fn memory() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self::Memory(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The same place under its one name, whichever way it was named. The file must exist.
    pub(crate) fn resolve(&self) -> Result<Self, Error> {
        match self {
            Self::File(path) => {
                let resolved = fs::canonicalize(path);
                let resolved = resolved.map_err(|error| self.cannot_open("it is gone", error))?;
                Ok(Self::File(resolved))
            }
            Self::Memory(_) => Ok(self.clone()),
        }
    }

    /// What keeps it from being opened.
    pub(crate) fn diagnosis(&self) -> String {
        match self {
            Self::File(path) => diagnosis::of(path),
            Self::Memory(_) => "the engine failed".to_string(),
        }
    }

    pub(crate) fn is_memory(&self) -> bool {
        matches!(self, Self::Memory(_))
    }

    pub(crate) fn connect(&self, more: OpenFlags) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | more;
        match self {
            Self::File(path) => Connection::open_with_flags(path, flags),
            Self::Memory(_) => Connection::open_in_memory_with_flags(flags),
        }
    }

    pub(crate) fn cannot_open(
        &self,
        problem: &str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Error {
        let kind =
            ErrorKind::CannotOpen { location: self.to_string(), problem: problem.to_string() };
        Error::nothing_done(kind).with_source(source)
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Memory(_) => f.write_str(":memory:"),
        }
    }
}
