//! What things are called in the trees: every name says how long its parts are, none is joined by a separator.

use idem_core::{Error, Key};

/// Names of the store's own trees begin so.
pub(crate) const OWN: &[u8] = b"idem.";

/// Records under keys.
pub(crate) const RECORDS: &str = "idem.records";
/// Values of effects under spaces and names.
pub(crate) const VALUES: &str = "idem.values";
/// Which records may be purged, and when.
pub(crate) const EXPIRY: &str = "idem.expiry";
/// What the store knows of itself.
pub(crate) const META: &str = "idem.meta";

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

pub(crate) fn key(bytes: &[u8]) -> Result<Key, Error> {
    Key::from_bytes(bytes)
}

pub(crate) fn damaged(problem: &str) -> Error {
    Error::nothing_done(idem_core::ErrorKind::Damaged { problem: problem.to_string() })
}
