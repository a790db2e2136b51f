//! Pauses that grow, and that no two callers make alike.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

/// The pauses of one caller, one after the other.
#[derive(Debug)]
pub(crate) struct BackOff {
    next: Duration,
    longest: Duration,
}

impl BackOff {
    /// Pauses that begin with about `first` and double up to `longest`.
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self { next: first.min(longest), longest }
    }

    /// The next pause: between the half and the whole of what it has grown to.
    pub(crate) fn pause(&mut self) -> Duration {
        let most = self.next;
        self.next = most.saturating_mul(2).min(self.longest);
        let half = most / 2;
        // Seeded anew for each call.
        let share = RandomState::new().hash_one(()) % 1_000;
        half + half.mul_f64(share as f64 / 1_000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_differ() {
        let millis = Duration::from_millis;
        let mut back_off = BackOff::new(millis(10), millis(35));
        for most in [10, 20, 35, 35] {
            let pause = back_off.pause();
            assert!(pause >= millis(most) / 2 && pause <= millis(most), "{pause:?} of {most} ms");
        }
        let firsts = |_| BackOff::new(millis(10), millis(10)).pause();
        let firsts: std::collections::HashSet<_> = (0..50).map(firsts).collect();
        assert!(firsts.len() > 10, "{firsts:?}");
    }
}
