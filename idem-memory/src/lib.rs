//! The in-memory store of idem: for tests and single processes.
//!
//! Nothing survives the process. A clone shares the data, and all clones together are one store. An effect
//! runs on an overlay, outside every lock: a slow effect, or one that asks its own store, delays nobody, and
//! an effect whose reads were overtaken runs again.
//!
//! In a forked child each call is an error: its copy of the data is nobody else's.
//!
//! A store can be bounded by [`MemoryBuilder::capacity`]: it then refuses what does not fit, after
//! removing what has expired, and never evicts what is live.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), idem_core::Error> {
//! use idem_core::{Idem, Key, Outcome, Request, Transaction};
//! let idem = Idem::new(idem_memory::MemoryStore::new());
//! let request = Request::new(Key::new("north", "sign-up", "intent-a")?);
//! for expected in [Outcome::Created(1), Outcome::Replayed(1)] {
//!     let outcome = idem
//!         .execute(&request, |tx| {
//!             tx.put(b"signed-up", b"yes")?;
//!             Ok(1)
//!         })
//!         .await?;
//!     assert_eq!(outcome, expected);
//! }
//! # Ok(()) }
//! ```

mod room;
mod shards;
mod store;
mod sync;
mod transaction;
mod url;

pub use store::{MemoryBuilder, MemoryStore};
pub use transaction::MemoryTransaction;
