//! The cases, a module for each group of the catalogue. A case's number is the catalogue's.

// A case is a test: it may unwrap.
#![allow(clippy::unwrap_used)]

pub mod concurrency;
pub mod effects;
pub mod lifecycle;
pub mod rollback;
