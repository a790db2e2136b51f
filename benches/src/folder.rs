//! Where data and reports go.

use std::{env, fs, io, path::PathBuf};

use tempfile::TempDir;

/// The folder of the reports: `idem-bench` in the folder that cargo builds in.
///
/// # Errors
/// If it cannot be made.
pub fn target() -> io::Result<PathBuf> {
    let program = env::current_exe()?;
    // Cargo marks the folder it builds in so.
    let target = program.ancestors().find(|folder| folder.join("CACHEDIR.TAG").exists());
    let folder = target.map_or_else(|| PathBuf::from("target"), PathBuf::from).join("idem-bench");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// A fresh folder that goes when it is dropped.
///
/// Beside the reports and not where the system keeps temporary files: that may be in memory, where a sync
/// costs nothing.
///
/// # Errors
/// If it cannot be made.
pub fn fresh() -> io::Result<TempDir> {
    TempDir::new_in(target()?)
}
