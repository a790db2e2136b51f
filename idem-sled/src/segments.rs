//! The size of the engine's segments, and how large an entry may be for its space to be used again.
//!
//! The engine writes a page of a tree as one message. A message over a quarter of a segment goes to a file of its
//! own under `blobs/`, and the engine forgets some of these files: when a page that is one such file is split or
//! merged, and when the process ends before the segment is full in which the page was replaced. So no page may
//! become so large. A page has up to 16 entries, one more before it is split, and those of neighbours that were
//! merged into it meanwhile: 32 are more than were ever seen.

use idem_core::{Error, ErrorKind};

/// The size in bytes of the segments of a folder that this version makes.
///
/// To open such a folder with the engine alone, while the store is closed, tell the engine:
/// `sled::Config::new().path(folder).segment_size(SEGMENT_SIZE)`. It refuses any other size than the one the folder
/// was made with, which for folders of earlier versions, and of the engine's own making, is its default.
pub const SEGMENT_SIZE: usize = 4 << 20;

/// The engine's own default, and so that of folders which earlier versions made.
const FORMER_SIZE: usize = 512 << 10;

/// A message larger than this part of a segment is no part of the log.
const MESSAGES: usize = 4;
/// The most entries of a page.
const ENTRIES: usize = 32;

/// The longest name of a portable value, with the tenant's.
const LONGEST_NAME: usize = 4 << 10;

/// The segment size of a folder, which it keeps for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segments {
    size: usize,
}

impl Segments {
    pub(crate) const NEW: Self = Self { size: SEGMENT_SIZE };
    pub(crate) const FORMER: Self = Self { size: FORMER_SIZE };

    /// Segments of that size, if there are folders that have them.
    pub(crate) fn of_size(size: usize) -> Option<Self> {
        [Self::NEW, Self::FORMER].into_iter().find(|known| known.size == size)
    }

    pub(crate) fn size(self) -> usize {
        self.size
    }

    /// How long an entry may be whose space is to be used again.
    fn largest_entry(self) -> usize {
        self.size / MESSAGES / ENTRIES
    }

    /// Refuses an entry of one of the user's trees whose space would not be used again.
    pub(crate) fn check_entry(self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.check(key.len() + value.len(), self.largest_entry())
    }

    /// Refuses a name of a portable value whose space would not be used again: each piece of the value has it.
    pub(crate) fn check_name(self, name: &[u8]) -> Result<(), Error> {
        self.check(name.len(), LONGEST_NAME)
    }

    fn check(self, bytes: usize, limit: usize) -> Result<(), Error> {
        // What a folder of an earlier version took, it takes.
        if self == Self::FORMER || bytes <= limit {
            return Ok(());
        }
        let kind = ErrorKind::TooLarge { bytes, limit: Some(limit) };
        Err(Error::nothing_done(kind).of_transaction())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_as_large_as_documented() {
        assert_eq!(Segments::NEW.largest_entry(), 32 << 10);
        assert_eq!(Segments::FORMER.largest_entry(), 4 << 10);
        assert_eq!(Segments::of_size(SEGMENT_SIZE), Some(Segments::NEW));
        assert_eq!(Segments::of_size(FORMER_SIZE), Some(Segments::FORMER));
        assert_eq!(Segments::of_size(1 << 20), None);
    }
}
