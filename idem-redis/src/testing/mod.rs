//! Private Redis servers for tests, benches and examples.
//!
//! A [`Server`] is a process of its own, with its own folder and a free port on the loopback interface. It ends
//! when its value is dropped, and also when the program that started it is killed. It needs the program
//! `redis-server`, found by the search path or named by the environment variable `IDEM_REDIS_SERVER`: without
//! it, starting fails and says so.
//!
//! A [`Cluster`] is several of them, and a [`Proxy`] before one is a network that fails on demand.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use idem_redis::testing::Server;
//! let server = Server::builder().arg("--appendonly", "yes").start()?;
//! server.command(&["SET", "name", "value"])?;
//! assert_eq!(server.query::<String>(&["GET", "name"])?, "value");
//! # Ok(()) }
//! ```

mod builder;
mod certificates;
mod cluster;
mod log;
mod ports;
mod process;
mod proxy;
mod replication;
mod server;
mod shared;
mod wait;

pub use builder::Builder;
pub use certificates::Certificates;
pub use cluster::Cluster;
pub use proxy::{Counts, Mode, Moment, Proxy};
pub use redis::Value;
pub use server::Server;

/// Whether a URL names a server, without a connection to it: for tests that try any text.
///
/// # Errors
/// Those that [`RedisBuilder::open`](crate::RedisBuilder::open) has for it before it connects.
pub fn check_url(url: &str) -> Result<(), idem_core::Error> {
    crate::RedisStore::builder().target(url).map(drop)
}
