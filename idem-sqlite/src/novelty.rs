//! Whether keys have mostly been new of late: looking one up before the write lock is then a waste.

use std::sync::atomic::{AtomicU32, Ordering};

/// So many new keys in a row make the next one likely to be new.
const LIKELY: u32 = 8;

/// Counts new keys in a row. A wrong guess costs one lookup and changes no answer.
#[derive(Default)]
pub(crate) struct Novelty(AtomicU32);

impl Novelty {
    pub(crate) fn is_likely(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= LIKELY
    }

    /// Takes note of whether a key was new. What gets lost in a race is one lookup.
    pub(crate) fn saw(&self, is_new: bool) {
        let count = self.0.load(Ordering::Relaxed);
        let next = if is_new { (count + 1).min(LIKELY) } else { 0 };
        if next != count {
            self.0.store(next, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_new_keys_in_a_row_make_it_likely_and_one_old_one_ends_it() {
        let novelty = Novelty::default();
        for _ in 0..7 {
            novelty.saw(true);
        }
        assert!(!novelty.is_likely());
        novelty.saw(true);
        novelty.saw(true);
        assert!(novelty.is_likely());
        novelty.saw(false);
        assert!(!novelty.is_likely());
        novelty.saw(true);
        assert!(!novelty.is_likely());
    }
}
