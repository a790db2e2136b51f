//! How often a random test tries, and by which seed: for a backend's own tests as for those of this crate.

use std::{
    env,
    hash::{BuildHasher, RandomState},
};

/// As many as the environment variable `IDEM_ROUNDS` says, or else so many.
///
/// # Panics
/// If the variable is there and no number.
#[must_use]
pub fn rounds(unless_told: usize) -> usize {
    number("IDEM_ROUNDS")
        .map_or(unless_told, |rounds| usize::try_from(rounds).expect("that many rounds never end"))
}

/// The seed in the environment variable `IDEM_SEED`, or else a new one; it is printed, so that it can be had again.
///
/// # Panics
/// If the variable is there and no number.
#[must_use]
pub fn seed() -> u64 {
    let seed = number("IDEM_SEED").unwrap_or_else(|| RandomState::new().hash_one(0));
    println!("IDEM_SEED={seed}");
    seed
}

/// What is no number is no reason to do silently what was not asked for.
fn number(variable: &str) -> Option<u64> {
    let value = env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable} must be a number: {value:?}")))
}
