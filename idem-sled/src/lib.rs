//! The sled store of idem: effects are values in your own trees, committed together with their receipts.

mod attempts;
mod commit;
mod committer;
mod database;
mod disk;
mod engine;
mod expiry;
mod failure;
#[cfg(test)]
mod gate;
mod marker;
mod names;
mod opening;
mod options;
mod pending;
mod purge;
mod queue;
mod store;
mod thread;
mod transaction;

/// The engine, in the version that the store uses.
pub use sled;

pub use options::{SledBuilder, Synchronous};
pub use store::SledStore;
pub use transaction::{SledTransaction, SledTree};
