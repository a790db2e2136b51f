//! What things are called in the trees: every name says how long its parts are, none is joined by a separator.

use idem_core::{Error, ErrorKind, Key, Record};

/// Names of the store's own trees begin so.
pub(crate) const OWN: &[u8] = b"idem.";

/// Records under keys.
pub(crate) const RECORDS: &str = "idem.records";
/// Values of effects under spaces and names.
pub(crate) const VALUES: &str = "idem.values";
/// Which records may be purged, and when.
pub(crate) const EXPIRY: &str = "idem.expiry";
/// What follows the first pieces of what is too long for one entry.
pub(crate) const PIECES: &str = "idem.pieces";
/// What the store knows of itself.
pub(crate) const META: &str = "idem.meta";

/// What is changed only to have the engine move pages.
pub(crate) const SWEEP: &str = "idem.sweep";

/// Which batch was begun to be written last, in the tree that the engine writes first.
pub(crate) const BEGUN: &str = "idem.begun";
/// Which batch was written to its end last, in the tree that the engine writes last.
pub(crate) const ENDED: &str = "idem.ended";

/// In [`META`]: the version of all of this.
pub(crate) const VERSION: &[u8] = b"version";
/// In [`META`]: the last fencing token.
pub(crate) const TOKEN: &[u8] = b"token";
/// In [`META`]: how many batches were committed.
pub(crate) const BATCH: &[u8] = b"batch";

/// A number as it is kept in [`META`].
pub(crate) fn read_number(bytes: &[u8]) -> Result<u64, Error> {
    let bytes =
        bytes.try_into().map_err(|_| damaged("a number of the store's own is no number"))?;
    Ok(u64::from_be_bytes(bytes))
}

/// The key of an entry in [`RECORDS`].
pub(crate) fn key(name: &[u8]) -> Result<Key, Error> {
    Key::from_bytes(name).map_err(|error| named(error, name))
}

/// The record in what lies under a name in [`RECORDS`].
pub(crate) fn record(name: &[u8], stored: &[u8]) -> Result<Record, Error> {
    Record::from_slice(stored).map_err(|error| named(error, name))
}

pub(crate) fn damaged(problem: &str) -> Error {
    Error::nothing_done(ErrorKind::Damaged { problem: problem.to_string() })
}

/// The same error, which says whose record it is, so that an operator finds it.
fn named(error: Error, name: &[u8]) -> Error {
    let whose = match Key::from_bytes(name) {
        Ok(key) => format!("{key:?}"),
        Err(_) => format!("b\"{}\"", name.escape_ascii()),
    };
    error.stored_in(
        &format!("the record of {whose} in the tree `{RECORDS}`"),
        "restore the folder, or remove that entry to have it run anew",
    )
}
