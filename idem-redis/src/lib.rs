#![cfg_attr(docsrs, feature(doc_cfg))]
//! The Redis store of idem: an effect's writes and its receipt are committed by one script, under the server's
//! clock, so that all nodes agree.

mod attempt;
mod builder;
mod failure;
mod inner;
mod link;
mod names;
mod nodes;
mod reentry;
mod script;
mod server;
mod server_time;
mod store;
mod sweep;
mod target;
mod transaction;

#[cfg(feature = "test-support")]
#[cfg_attr(docsrs, doc(cfg(feature = "test-support")))]
pub mod testing;

pub use builder::RedisBuilder;
pub use redis;
pub use server::Hazard;
pub use store::RedisStore;
pub use transaction::RedisTransaction;
