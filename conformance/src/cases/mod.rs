//! The cases, a module for each group of the catalogue. The numbers are those of the catalogue that the suite was made from.

// A case is a test: it may unwrap.
#![allow(clippy::unwrap_used)]

pub mod changes;
pub mod claims;
pub mod concurrency;
pub mod consumers;
pub mod consumers_disturbed;
pub mod consumers_failing;
pub mod consumers_queue;
pub mod disturbed;
pub mod effects;
pub mod holding;
pub mod keeping_alive;
pub mod keys;
pub mod leases;
pub mod lifecycle;
pub mod purge;
pub mod rollback;
mod till;
pub mod ttl;
pub mod waiting;
