//! The Redis store of idem: for services that share one Redis server or cluster.

#[cfg(feature = "test-support")]
pub mod testing;
