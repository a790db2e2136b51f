#![cfg_attr(docsrs, feature(doc_cfg))]
#![doc = include_str!("../README.md")]

// Without a backend there is nothing that a URL could open.
#[cfg_attr(not(any(feature = "memory", feature = "sqlite")), allow(dead_code))]
mod open;

pub use idem_core::*;
pub use open::open;

/// The in-memory store, for tests and single processes.
#[cfg(feature = "memory")]
#[cfg_attr(docsrs, doc(cfg(feature = "memory")))]
pub use idem_memory as memory;

/// The SQLite store: effects are rows in your own tables.
#[cfg(feature = "sqlite")]
#[cfg_attr(docsrs, doc(cfg(feature = "sqlite")))]
pub use idem_sqlite as sqlite;
