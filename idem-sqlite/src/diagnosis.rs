//! What keeps a file from being opened: the engine says only that it cannot be.

use std::{
    fs::{self, Metadata},
    io,
    path::{Path, PathBuf},
};

/// What is at fault, and what to do, when the engine cannot open or write the database at `path`.
///
/// No file of the database is opened here: closing it would drop the process's locks.
pub(crate) fn of(path: &Path) -> String {
    if path.is_dir() {
        return "it is a folder: give the path of a file in it".to_string();
    }
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if let Some(problem) = of_folder(folder) {
        return problem;
    }
    if let Ok(database) = fs::metadata(path) {
        let beside = ["-wal", "-shm"].map(|suffix| beside(path, suffix));
        if let Some(problem) = beside.iter().find_map(|file| of_companion(file, &database)) {
            return problem;
        }
    }
    let folder = folder.display();
    format!(
        "this process's user may not read and write the file, or not make files in the folder {folder}: give the \
         user these permissions"
    )
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut beside = path.to_path_buf();
    beside.as_mut_os_string().push(suffix);
    beside
}

fn of_folder(folder: &Path) -> Option<String> {
    let shown = folder.display();
    match fs::read_dir(folder) {
        Ok(_) => None,
        Err(error) if has_no_descriptor(&error) => Some(
            "too many files are open: close some, or raise the limit of the process (`ulimit -n`) or the system"
                .to_string(),
        ),
        Err(error) => Some(match error.kind() {
            io::ErrorKind::NotFound => format!("the folder {shown} does not exist: create it"),
            io::ErrorKind::NotADirectory => {
                format!("{shown} is not a folder: give a path in a folder")
            }
            // A folder that cannot be listed may be used all the same.
            io::ErrorKind::PermissionDenied if fs::metadata(folder.join(".")).is_ok() => {
                return None;
            }
            _ => format!("the folder {shown} cannot be used: see that this process's user may enter it"),
        }),
    }
}

fn has_no_descriptor(error: &io::Error) -> bool {
    const OF_SYSTEM: i32 = 23;
    const OF_PROCESS: i32 = 24;
    cfg!(unix) && matches!(error.raw_os_error(), Some(OF_SYSTEM | OF_PROCESS))
}

/// The engine makes the files of its log with the owner and the permissions of the database.
fn of_companion(file: &Path, database: &Metadata) -> Option<String> {
    let found = fs::metadata(file).ok()?;
    let shown = file.display();
    if !found.is_file() {
        return Some(format!("{shown} is not a file: move it away"));
    }
    if is_alike(&found, database) {
        return None;
    }
    Some(format!(
        "{shown} has another owner or other permissions than the database: give it those of the database, or close \
         the database in the process that made the file"
    ))
}

#[cfg(unix)]
fn is_alike(found: &Metadata, database: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    let access = |file: &Metadata| (file.uid(), file.gid(), file.mode());
    access(found) == access(database)
}

#[cfg(not(unix))]
fn is_alike(found: &Metadata, database: &Metadata) -> bool {
    found.permissions() == database.permissions()
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_at_fault_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        assert!(of(folder.path()).contains("is a folder"));
        assert!(of(&folder.path().join("missing/store.db")).contains("missing does not exist"));
        assert!(of(&path).contains("make files in the folder"));
        fs::write(&path, "").unwrap();
        assert!(of(&path.join("store.db")).contains("store.db is not a folder"));
        for suffix in ["-wal", "-shm"] {
            let companion = beside(&path, suffix);
            fs::write(&companion, "").unwrap();
            fs::set_permissions(&companion, fs::metadata(&path).unwrap().permissions()).unwrap();
            assert!(of(&path).contains("make files in the folder"), "it is like the database");
            fs::set_permissions(&companion, fs::Permissions::from_mode(0o400)).unwrap();
            assert!(of(&path).contains(&format!("store.db{suffix} has another owner")));
            fs::remove_file(&companion).unwrap();
            fs::create_dir(&companion).unwrap();
            assert!(of(&path).contains(&format!("store.db{suffix} is not a file")));
            fs::remove_dir(&companion).unwrap();
        }
    }
}
