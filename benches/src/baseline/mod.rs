//! What one would write by hand, for each backend: straightforward, and as good as that gets.

pub(crate) mod memory;
pub(crate) mod sqlite;
