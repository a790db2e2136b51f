//! What the fuzz targets begin with, and what has failed there: each input once more, as an ordinary test.

#![cfg(all(feature = "redis-cluster", feature = "redis-tls"))]
// The checks are those of the fuzz targets; what else their sources hold is used elsewhere.
#![allow(clippy::unwrap_used, dead_code, missing_docs, unreachable_pub)]

#[path = "../fuzz/src/lib.rs"]
mod checks;

use std::{fs, path::Path};

/// Tries a check on each file of its corpus.
fn replay(name: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let files: Vec<_> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(files.len() >= 10, "the corpus of {name} must be there: {files:?}");
    for file in files {
        println!("{}", file.display());
        check(&fs::read(&file).unwrap());
    }
}

#[test]
fn records() {
    replay("record", checks::record);
}

#[test]
fn keys() {
    replay("key", checks::key);
}

#[test]
fn urls() {
    replay("url", checks::url);
}

#[test]
fn fingerprints() {
    replay("fingerprint", checks::fingerprint);
}
