//! The cases, a module for each group of the catalogue in `CASES.md`. The documentation of a case begins with its
//! numbers there.
//!
//! Some of the catalogue needs more than a fixture, and stands elsewhere: of each backend's own tests, processes that are
//! killed (101), that share what they opened (102, 110) or are stopped past a lease (111), what an older or newer version
//! left (103), damage (104), a full disk (105), a store that is busy (112), and a server's restarts (114). Random
//! histories (38) are the module `model`'s, behind the feature `model`.

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
pub mod listing;
pub mod purge;
pub mod rollback;
mod till;
pub mod ttl;
pub mod unfinished;
pub mod waiting;

/// The groups and how they are written: a case that fails says its documentation.
pub(crate) const SOURCES: &[(&str, &str)] = &[
    ("changes", include_str!("changes.rs")),
    ("claims", include_str!("claims.rs")),
    ("concurrency", include_str!("concurrency.rs")),
    ("consumers", include_str!("consumers.rs")),
    ("consumers_disturbed", include_str!("consumers_disturbed.rs")),
    ("consumers_failing", include_str!("consumers_failing.rs")),
    ("consumers_queue", include_str!("consumers_queue.rs")),
    ("disturbed", include_str!("disturbed.rs")),
    ("effects", include_str!("effects.rs")),
    ("holding", include_str!("holding.rs")),
    ("keeping_alive", include_str!("keeping_alive.rs")),
    ("keys", include_str!("keys.rs")),
    ("leases", include_str!("leases.rs")),
    ("lifecycle", include_str!("lifecycle.rs")),
    ("listing", include_str!("listing.rs")),
    ("purge", include_str!("purge.rs")),
    ("rollback", include_str!("rollback.rs")),
    ("ttl", include_str!("ttl.rs")),
    ("unfinished", include_str!("unfinished.rs")),
    ("waiting", include_str!("waiting.rs")),
];
