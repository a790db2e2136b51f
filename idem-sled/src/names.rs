//! What things are called in the trees: every name says how long its parts are, none is joined by a separator.

use idem_core::{Error, Key, Kind, Space};

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

/// A value's name: the space's kind, the length of its owner, the owner, then the name as the effect gave it.
pub(crate) fn of_value(space: &Space, name: &[u8]) -> Vec<u8> {
    let owner = space.owner().as_bytes();
    let kind = match space.kind() {
        Kind::Request => b'r',
        Kind::Event => b'e',
    };
    let length = u8::try_from(owner.len()).expect("an owner is a key's part: 255 bytes at most");
    [&[kind, length], owner, name].concat()
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_owners_that_look_alike_have_names_of_their_own() {
        let a = of_value(&Space::tenant("a").unwrap(), b"bc");
        let ab = of_value(&Space::tenant("ab").unwrap(), b"c");
        let consumer = of_value(&Space::consumer("a").unwrap(), b"bc");
        let default = of_value(&Space::tenant("").unwrap(), b"abc");
        let names = [a, ab, consumer, default];
        for (number, name) in names.iter().enumerate() {
            assert!(!names[..number].contains(name));
        }
    }
}
