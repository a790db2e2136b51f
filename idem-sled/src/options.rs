//! How a store is opened.

use std::{fmt, path::Path, sync::Arc, time::Duration};

use idem_core::{Clock, Error, Span, SystemClock, runtime};

use crate::{SledStore, opening};

/// How far a commit is written through before its caller is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Synchronous {
    /// To the disk: it survives a crash of the machine.
    #[default]
    Full,
    /// As far as the engine's own `flush` does: it survives a crash of the process; after one of the machine
    /// the last commits may be lost.
    Flush,
}

/// Options for opening a [`SledStore`]. Made by [`SledStore::builder`].
#[derive(Clone)]
#[must_use = "options do nothing until something is opened"]
pub struct SledBuilder {
    pub(crate) synchronous: Synchronous,
    pub(crate) busy_timeout: Duration,
    pub(crate) cache_capacity: Option<u64>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl fmt::Debug for SledBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SledBuilder")
            .field("synchronous", &self.synchronous)
            .field("busy_timeout", &self.busy_timeout)
            .field("cache_capacity", &self.cache_capacity)
            .finish_non_exhaustive()
    }
}

impl Default for SledBuilder {
    fn default() -> Self {
        Self {
            synchronous: Synchronous::default(),
            busy_timeout: Duration::from_secs(5),
            cache_capacity: None,
            clock: Arc::new(SystemClock),
        }
    }
}

impl SledBuilder {
    /// How far a commit is written through. [`Synchronous::Full`] unless told.
    pub fn synchronous(mut self, synchronous: Synchronous) -> Self {
        self.synchronous = synchronous;
        self
    }

    /// How long opening waits for whoever has the folder, and closing for whoever still has a handle of the
    /// engine. 5 seconds unless told.
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = timeout;
        self
    }

    /// How many bytes of pages the engine keeps in memory at most. The engine's own default, 1 GiB, unless told.
    pub fn cache_capacity(mut self, bytes: u64) -> Self {
        self.cache_capacity = Some(bytes);
        self
    }

    /// The clock that decides. The system's unless told.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Opens the store in the folder at `path`, and creates the folder and what is missing in it.
    ///
    /// A folder is open once: clone the store to share it. Whoever opens it while it is open, in this process or
    /// another, waits for the busy timeout and is refused. A database of the engine that is there already is
    /// kept, with its trees.
    ///
    /// # Errors
    /// [`ErrorKind::CannotOpen`](idem_core::ErrorKind::CannotOpen), naming the path, if somebody has it open, if a folder was open in a
    /// process that this one was forked from, if
    /// the engine cannot read what is there, or if less is there than there was when the store was last opened or
    /// closed; [`ErrorKind::SchemaNewer`](idem_core::ErrorKind::SchemaNewer) if a newer version of this library
    /// wrote it, which stays untouched; [`ErrorKind::Damaged`](idem_core::ErrorKind::Damaged) if what the store
    /// keeps of itself makes no sense; [`ErrorKind::InvalidSetting`](idem_core::ErrorKind::InvalidSetting) or
    /// [`ErrorKind::InvalidDuration`](idem_core::ErrorKind::InvalidDuration) for a bad option.
    ///
    /// # Cancel safety
    /// Opening goes on in the background, and what it opened is closed again.
    pub async fn open(self, path: impl AsRef<Path>) -> Result<SledStore, Error> {
        Span::new("busy timeout", self.busy_timeout)?;
        let path = path.as_ref().to_path_buf();
        // Opening waits for the disk and for other handles: not on the caller's thread.
        let open = move || SledStore::start(&self, opening::open(&self, &path)?);
        runtime::run("idem-sled-open", open).await?
    }
}
