//! Pauses that grow, and that no two callers make alike.

use std::time::Duration;

use uuid::Uuid;

/// Pauses that double from the first to the longest, with jitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BackOff {
    pub(crate) first: Duration,
    pub(crate) longest: Duration,
}

impl BackOff {
    /// The pause after so many tries in vain in a row: at least half of what doubling gives, so that a failing
    /// store or queue is left alone, and less than all of it, so that many who failed together do not come
    /// together again.
    pub(crate) fn pause(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        let whole = self.first.saturating_mul(1 << doublings).min(self.longest);
        let half = whole / 2;
        half + half.mul_f64(fraction())
    }
}

/// A random number of at least 0 and less than 1.
fn fraction() -> f64 {
    // The last half of a random UUID holds more than 32 random bits at its end.
    let random = Uuid::new_v4().as_u64_pair().1 as u32;
    f64::from(random) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_differ() {
        let millis = Duration::from_millis;
        let back_off = BackOff { first: millis(100), longest: millis(1_000) };
        for (failures, whole) in [(0, 100), (1, 100), (2, 200), (3, 400), (4, 800), (5, 1_000)] {
            for _ in 0..100 {
                let pause = back_off.pause(failures);
                assert!(pause >= millis(whole / 2) && pause <= millis(whole), "{pause:?}");
            }
        }
        let pauses: std::collections::BTreeSet<_> = (0..50).map(|_| back_off.pause(9)).collect();
        assert!(pauses.len() > 40, "{pauses:?}");
    }

    #[test]
    fn many_failures_and_long_pauses_do_not_overflow() {
        let back_off = BackOff { first: Duration::from_secs(1), longest: Duration::MAX };
        assert!(back_off.pause(u32::MAX) >= Duration::from_secs(1 << 30));
        let back_off = BackOff { first: Duration::MAX, longest: Duration::MAX };
        assert!(back_off.pause(u32::MAX) <= Duration::MAX);
    }
}
