//! x
mod checkpoint;
mod failure;
mod group;
mod guard;
mod job;
mod options;
mod queue;
mod reader;
mod record;
mod reentry;
mod schema;
mod sql;
mod store;
mod tables;
mod thread;
mod transaction;
mod writer;

pub use options::{SqliteBuilder, Synchronous};
pub use schema::create_tables;
pub use store::SqliteStore;
pub use transaction::SqliteTransaction;
