//! What one would write by hand, for each backend: straightforward, and as good as that gets.

pub(crate) mod idempotent;
pub(crate) mod memory;
mod receipt;
pub(crate) mod redis;
pub(crate) mod redis_script;
mod sled;
pub(crate) mod sled_batch;
pub(crate) mod sled_flush;
pub(crate) mod sqlite;
