//! Opening a folder, and finding out whether what is in it is whole.

use std::{
    error::Error as StdError,
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use idem_core::{Error, ErrorKind};

use crate::{
    SledBuilder,
    database::Database,
    disk::{Disk, Files, log_path},
    failure::{Trouble, guarded},
    marker::{self, FORMAT, Marker},
    names,
};

/// How often a lock is asked for again: locks of files tell nobody when they are let go.
const POLL: Duration = Duration::from_millis(5);

/// An open folder.
pub(crate) struct Opened {
    pub(crate) folder: PathBuf,
    pub(crate) marker: Marker,
    pub(crate) database: Database,
    pub(crate) files: Files,
    /// How many batches were committed.
    pub(crate) batches: u64,
}

/// Opens the store in `folder`, and creates what is missing. Blocks.
pub(crate) fn open(options: &SledBuilder, folder: &Path) -> Result<Opened, Error> {
    check_folder(folder)?;
    let deadline = Instant::now() + options.busy_timeout;
    let mut marker = lock(folder, deadline)?;
    let marked = marker.batches(folder)?;
    if marked.is_some() && fs::metadata(log_path(folder)).map_or(0, |log| log.len()) == 0 {
        return Err(lost(folder, "its file `db` is gone or empty".to_string()));
    }
    let db = open_engine(options, folder, deadline)?;
    let database = guarded(|| Database::new(db)).map_err(|trouble| damaged(folder, trouble))?;
    let batches = check_content(folder, &database, marked)?;
    let mut files = Files::new(folder, options.synchronous)
        .map_err(|error| cannot_open(folder, "its files cannot be opened", error))?;
    let mut prepare = || -> Result<(), Trouble> {
        if marked.is_none() {
            database.accept()?;
            let version = FORMAT.cast_unsigned().to_be_bytes();
            guarded(|| database.meta.insert(names::VERSION, &version))?;
        }
        files.sync(&database)?;
        files.sync_folders(folder)?;
        // Only now: it must not ask for more than what is there.
        Ok(marker.set_batches(batches)?)
    };
    prepare().map_err(|trouble| cannot_open(folder, "it cannot be written to", trouble))?;
    Ok(Opened { folder: folder.to_path_buf(), marker, database, files, batches })
}

fn check_folder(folder: &Path) -> Result<(), Error> {
    if folder.as_os_str().is_empty() {
        let problem = "it is empty: give the path of a folder".to_string();
        return Err(Error::nothing_done(ErrorKind::InvalidSetting { field: "path", problem }));
    }
    match fs::create_dir(folder) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match folder.is_dir() {
            true => Ok(()),
            false => Err(cannot_open(folder, "it is no folder: give the path of one", error)),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(cannot_open(folder, "there is no folder to create it in", error))
        }
        Err(error) => Err(cannot_open(folder, "it cannot be created", error)),
    }
}

fn lock(folder: &Path, deadline: Instant) -> Result<Marker, Error> {
    loop {
        match Marker::lock(folder) {
            Ok(Some(marker)) => return Ok(marker),
            Ok(None) if Instant::now() < deadline => thread::sleep(POLL),
            Ok(None) => return Err(in_use(folder)),
            Err(error) => return Err(cannot_open(folder, "it cannot be written to", error)),
        }
    }
}

fn open_engine(options: &SledBuilder, folder: &Path, deadline: Instant) -> Result<sled::Db, Error> {
    let mut config = sled::Config::new().path(folder);
    if let Some(bytes) = options.cache_capacity {
        config = config.cache_capacity(bytes);
    }
    let mut was_let_go = false;
    loop {
        let trouble = match guarded(|| config.open()) {
            Ok(db) => return Ok(db),
            Err(trouble) => trouble,
        };
        // The engine has no kind of error for its lock: ask the lock, and once more, as it may just have been let
        // go.
        if is_let_go(folder) {
            if was_let_go {
                return Err(damaged(folder, trouble));
            }
            was_let_go = true;
            continue;
        }
        was_let_go = false;
        if Instant::now() >= deadline {
            return Err(in_use(folder).with_source(trouble));
        }
        thread::sleep(POLL);
    }
}

/// Whether nobody has the engine's lock on its log.
pub(crate) fn is_let_go(folder: &Path) -> bool {
    let Ok(log) = File::options().read(true).write(true).open(log_path(folder)) else {
        return true;
    };
    !matches!(log.try_lock(), Err(TryLockError::WouldBlock))
}

/// Waits until the engine has let go of its log, which can take a moment after its last handle is dropped.
pub(crate) fn wait_until_let_go(folder: &Path, patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    while !is_let_go(folder) {
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(POLL);
    }
    true
}

/// How many batches there are, which must not be fewer than were marked.
fn check_content(folder: &Path, database: &Database, marked: Option<u64>) -> Result<u64, Error> {
    let version = database.number(names::VERSION)?.map(u64::cast_signed);
    match version {
        Some(FORMAT) => {}
        Some(found) if found > FORMAT => return Err(marker::newer(folder, found)),
        None if marked.is_none() => {}
        _ => return Err(lost(folder, "what the store keeps of itself is gone".to_string())),
    }
    if marked.is_some() && database.is_torn()? {
        let problem = "the disk failed in the middle of a commit, of which some is there and some not: restore the whole \
                       folder, or remove its file `idem` to go on with what there is. Keys whose callers were told that \
                       it is unknown may then have a receipt without its effect, or an effect without its receipt";
        return Err(cannot_open_for(folder, problem.to_string()));
    }
    let batches = database.number(names::BATCH)?.unwrap_or(0);
    match marked {
        Some(marked) if batches < marked => {
            Err(lost(folder, format!("{marked} commits were marked, and {batches} are found")))
        }
        _ => Ok(batches),
    }
}

fn lost(folder: &Path, what: String) -> Error {
    let problem = format!(
        "{what}: restore the whole folder, or remove its file `idem` to go on without what is lost"
    );
    cannot_open_for(folder, problem)
}

fn in_use(folder: &Path) -> Error {
    let problem = "somebody has it open: clone the store that is open, or close it first; after a failure of the disk \
                   start the process again that has it";
    cannot_open_for(folder, problem.to_string())
}

fn damaged(folder: &Path, trouble: Trouble) -> Error {
    let problem = match trouble {
        Trouble::Engine(sled::Error::Io(_)) | Trouble::Disk(_) => "the engine cannot use its files",
        _ => "the engine finds its files damaged, or of another version",
    };
    cannot_open(folder, problem, trouble)
}

fn cannot_open(
    folder: &Path,
    problem: &str,
    source: impl Into<Box<dyn StdError + Send + Sync>>,
) -> Error {
    cannot_open_for(folder, problem.to_string()).with_source(source)
}

fn cannot_open_for(folder: &Path, problem: String) -> Error {
    let location = folder.display().to_string();
    Error::nothing_done(ErrorKind::CannotOpen { location, problem })
}
