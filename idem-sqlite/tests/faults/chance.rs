//! Chance that can be had again.

use std::{
    env,
    hash::{BuildHasher, RandomState},
};

/// How many rounds a random test takes: so many unless told.
pub(crate) fn rounds(unless_told: usize) -> usize {
    env::var("IDEM_ROUNDS").map_or(unless_told, |rounds| rounds.parse().unwrap())
}

/// Random numbers of a seed (SplitMix64).
pub(crate) struct Chance(u64);

impl Chance {
    /// Of the seed that the environment gives, or of a new one; says which.
    pub(crate) fn new() -> Self {
        let seed = env::var("IDEM_SEED")
            .map_or_else(|_| RandomState::new().hash_one(0), |seed| seed.parse().unwrap());
        println!("IDEM_SEED={seed}");
        Self(seed)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        usize::try_from(mixed % end as u64).unwrap()
    }
}
