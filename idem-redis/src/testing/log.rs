//! What a server printed.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

/// The file that takes the standard output and error of a server, of its latest start only.
#[derive(Debug)]
pub(crate) struct Log(PathBuf);

impl Log {
    pub(crate) fn new(folder: &Path) -> Self {
        Self(folder.join("log"))
    }

    /// Empties it, for a new start.
    pub(crate) fn create(&self) -> io::Result<File> {
        File::create(&self.0)
    }

    pub(crate) fn text(&self) -> String {
        let bytes = fs::read(&self.0).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Explains why the server ended.
    pub(crate) fn explain(&self, program: &str, code: Option<i32>) -> io::Error {
        let text = self.text();
        if text.contains("Address already in use") {
            return io::Error::new(io::ErrorKind::AddrInUse, text);
        }
        // What a shell answers if it cannot run the program.
        if matches!(code, Some(126 | 127)) {
            let message = format!(
                "cannot run `{program}`: install it (`apt-get install redis-server`), or name it in \
                 the environment variable IDEM_REDIS_SERVER:\n{text}"
            );
            return io::Error::new(io::ErrorKind::NotFound, message);
        }
        io::Error::other(format!("`{program}` ended at once, code {code:?}:\n{text}"))
    }
}
