//! Where chance comes from: a seed that is printed with a failure and can be given again.

use std::{
    env,
    hash::{BuildHasher, RandomState},
};

use proptest::test_runner::{RngAlgorithm, TestRng};

/// The seed in the environment variable `IDEM_SEED`, or a new one.
pub(super) fn seed() -> u64 {
    number("IDEM_SEED").unwrap_or_else(|| RandomState::new().hash_one(0))
}

/// So many, times what the environment variable `IDEM_ROUNDS` says.
pub(super) fn scaled(count: u32) -> u32 {
    let rounds = number("IDEM_ROUNDS").unwrap_or(1);
    count.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX))
}

pub(super) fn rng(seed: u64) -> TestRng {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    TestRng::from_seed(RngAlgorithm::ChaCha, &bytes)
}

/// # Panics
/// If the variable is there and no number: what is asked for would silently not be done.
fn number(variable: &str) -> Option<u64> {
    let value = env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable} must be a number: {value:?}")))
}
