//! Opening a folder, and finding out whether what is in it is whole.

use std::{
    error::Error as StdError,
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use idem_core::{Error, ErrorKind};

use crate::{
    SledBuilder,
    database::Database,
    disk::{Disk, Files, log_path, settings_path},
    failure::{Trouble, guarded},
    marker::{self, FORMAT, Mark, Marker},
    names,
    segments::Segments,
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
    check_process(folder)?;
    check_folder(folder)?;
    let deadline = Instant::now() + options.busy_timeout;
    let mut marker = lock(folder, deadline)?;
    let marked = marker.read(folder)?;
    if marked.is_some() && fs::metadata(log_path(folder)).map_or(0, |log| log.len()) == 0 {
        return Err(lost(folder, "its file `db` is gone or empty".to_string()));
    }
    let sizes = possible_segments(folder, marked)?;
    let (db, segments) = open_engine(options, folder, deadline, &sizes)?;
    let database =
        guarded(|| Database::new(db, segments)).map_err(|trouble| damaged(folder, trouble))?;
    let (version, batches) = check_content(folder, &database, marked)?;
    let mut files = Files::new(folder, options.synchronous)
        .map_err(|error| cannot_open(folder, "its files cannot be opened", error))?;
    let mut prepare = || -> Result<(), Trouble> {
        if marked.is_none() {
            database.accept()?;
        }
        if version != Some(FORMAT) {
            let version = FORMAT.cast_unsigned().to_be_bytes();
            guarded(|| database.meta.insert(names::VERSION, &version))?;
        }
        files.sync(&database)?;
        files.sync_folders(folder)?;
        // Only now: it must not ask for more than what is there.
        Ok(marker.set(Mark { batches, segments })?)
    };
    prepare().map_err(|trouble| cannot_open(folder, "it cannot be written to", trouble))?;
    Ok(Opened { folder: folder.to_path_buf(), marker, database, files, batches })
}

/// The engine has threads and locks of its own, whatever folder it works on. In a child that was forked since, it waits
/// for them for ever.
fn check_process(folder: &Path) -> Result<(), Error> {
    /// The process that the engine runs in; zero if it never ran.
    static ENGINE: AtomicU32 = AtomicU32::new(0);
    let here = process::id();
    match ENGINE.compare_exchange(0, here, Ordering::AcqRel, Ordering::Acquire) {
        Err(home) if home != here => {
            let problem = format!(
                "the engine has run in process {home}, from which this one was forked: open a store only after the \
                 fork, or start another program"
            );
            Err(cannot_open_for(folder, problem))
        }
        _ => Ok(()),
    }
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

/// Which segments the folder may have. The engine refuses all but those that it was made with; if it has lost its
/// settings it takes any, and misreads the log.
fn possible_segments(folder: &Path, marked: Option<Mark>) -> Result<Vec<Segments>, Error> {
    if let Some(mark) = marked {
        return Ok(vec![mark.segments]);
    }
    let length = |file: PathBuf| fs::metadata(file).map_or(0, |file| file.len());
    // The engine takes settings of that length for none.
    let has_settings = length(settings_path(folder)) > 8;
    match (has_settings, length(log_path(folder))) {
        (true, _) => Ok(vec![Segments::NEW, Segments::FORMER]),
        (false, 0) => Ok(vec![Segments::NEW]),
        (false, _) => {
            let problem = "its files `conf` and `idem` are gone, and without them its log cannot be read: restore the \
                           whole folder";
            Err(cannot_open_for(folder, problem.to_string()))
        }
    }
}

/// Opens the engine with the first segments that it does not refuse.
fn open_engine(
    options: &SledBuilder,
    folder: &Path,
    deadline: Instant,
    possible: &[Segments],
) -> Result<(sled::Db, Segments), Error> {
    let mut possible = possible.iter().copied().peekable();
    let mut was_let_go = false;
    loop {
        let segments = *possible.peek().expect("one is left to try");
        let mut config = sled::Config::new().path(folder).segment_size(segments.size());
        if let Some(bytes) = options.cache_capacity {
            config = config.cache_capacity(bytes);
        }
        let trouble = match guarded(|| config.open()) {
            Ok(db) => return Ok((db, segments)),
            Err(trouble) => trouble,
        };
        let is_refused = matches!(trouble, Trouble::Engine(sled::Error::Unsupported(_)));
        if is_refused && possible.len() > 1 {
            possible.next();
            continue;
        }
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

/// The version of what is there, none if there is nothing yet, and how many batches there are, which must not be
/// fewer than were marked.
fn check_content(
    folder: &Path,
    database: &Database,
    marked: Option<Mark>,
) -> Result<(Option<i64>, u64), Error> {
    let version = database.number(names::VERSION)?.map(u64::cast_signed);
    match version {
        Some(1..=FORMAT) => {}
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
        Some(Mark { batches: marked, .. }) if batches < marked => {
            Err(lost(folder, format!("{marked} commits were marked, and {batches} are found")))
        }
        _ => Ok((version, batches)),
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
