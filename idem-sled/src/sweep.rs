//! Has the engine move pages out of segments that it wants to use again.
//!
//! The engine moves one page for each that it writes as a whole, which it does at every tenth change to a page; besides,
//! those of one segment every half second. Where large values replace each other while small ones stay, that is too
//! few: each segment keeps some page that is still needed. So the store changes a page of its own as often as it takes.

use sled::Tree;

use crate::failure::guarded;

/// For so many bytes of commits one page is moved. There were too few at twice as many.
const BYTES: usize = 32 << 10;
/// So many changes make the engine write a page as a whole.
const CHANGES: usize = 10;

/// The one name in the tree.
const NAME: &[u8] = b"sweep";

/// How far the engine is behind.
#[derive(Default)]
pub(crate) struct Sweep {
    bytes: usize,
    changes: u64,
}

impl Sweep {
    /// Makes up for commits of so many bytes.
    pub(crate) fn after(&mut self, bytes: usize, tree: &Tree) {
        self.bytes += bytes;
        let moves = self.bytes / BYTES;
        self.bytes %= BYTES;
        for _ in 0..moves * CHANGES {
            self.changes += 1;
            // Where the engine fails, so does the flush that follows.
            if guarded(|| tree.insert(NAME, &self.changes.to_be_bytes())).is_err() {
                return;
            }
        }
    }
}
