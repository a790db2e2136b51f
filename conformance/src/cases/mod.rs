//! The cases, a module for each group of the catalogue. A case's number is the catalogue's.

// A case is a test: it may unwrap.
#![allow(clippy::unwrap_used)]

pub mod changes;
pub mod claims;
pub mod concurrency;
pub mod consumers;
pub mod effects;
pub mod keys;
pub mod lifecycle;
pub mod purge;
pub mod rollback;
pub mod ttl;
