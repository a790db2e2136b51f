//! The sled store of idem: effects are values in your own trees, committed together with their receipts.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use idem_core::{Idem, Key, Outcome, Request};
//! use idem_sled::SledStore;
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("orders");
//! let idem = Idem::new(SledStore::open(&path).await?);
//! let request = Request::new(Key::new("north", "web-order", "intent-a")?).fingerprint(&3)?;
//! let outcome = idem
//!     .execute(&request, |tx| {
//!         tx.tree("orders")?.insert("intent-a", [3])?; // your own tree
//!         Ok(3)
//!     })
//!     .await?;
//! assert_eq!(outcome, Outcome::Created(3));
//! let orders = idem.store().db()?.open_tree("orders")?;
//! assert_eq!(orders.get("intent-a")?.as_deref(), Some(&[3][..]));
//! # Ok(()) }
//! ```
//!
//! # The folder
//! The store keeps its own in trees whose names begin with `idem.`, and beside the engine's files a small one
//! called `idem`: it locks the folder, and says how many batches of commits there were when the store was last
//! opened or closed. The engine by itself takes a folder whose files are gone for an empty one, and a log that was
//! cut short for a shorter one; with the marker both are an error. What is lost of the commits since then it cannot
//! tell. Back up and restore the folder as a whole, while the store is closed.
//!
//! # Commits
//! An effect runs on its caller's thread on an overlay, outside every lock of the engine, and may use the store, or
//! the engine, as it likes. One thread applies what has queued up, in one transaction of the engine: for each commit
//! it compares the record and all that the effect read, and writes all or nothing of it. Then it flushes the engine
//! and syncs its files, once for all of them, and answers. So callers of distinct keys share the disk's time; callers
//! who change one value take turns, one of them a batch, and the others' effects run again.
//!
//! If the disk fails while the engine writes a batch, some of it may be there and some not, since the engine writes tree
//! after tree. The batch's number is written before and after all others, so that this is noticed: the folder is not
//! opened again before somebody has looked at it, and the error says how.
//!
//! # Durability
//! The engine's `flush` is no more than `sync_file_range`, which empties no cache of the disk. The store syncs the
//! log, and the files under `blobs/` that the engine makes for whatever is over 128 KiB: a value, or a page of a
//! tree, which holds some ten of them (so values from 14 KiB on may come to lie there). What the engine moves when it makes room in its log it takes for durable
//! after its own flush; a sync of the store, or the one that the engine does every half second, follows long before
//! it writes over the old place, but no promise of the engine's says so.
//!
//! # Damage
//! Records bear a checksum, and so does all that the engine writes. Whatever is found damaged is an error, never an
//! empty store and never a new run: when the folder is opened
//! ([`ErrorKind::CannotOpen`](idem_core::ErrorKind::CannotOpen)), or by the calls that meet it
//! ([`ErrorKind::Damaged`](idem_core::ErrorKind::Damaged), with the key). A listing stops at a damaged record and
//! names its key; a purge goes round it. Restore the folder, or remove that entry of the tree `idem.records` with the
//! engine while the store is closed: the key then runs anew.
//!
//! The engine takes the first message of its log that it cannot read for the log's end, as a crash leaves one, and
//! drops silently what comes after it. A store that was closed, or opened, since the last commit notices that by its
//! marker. After a crash, commits of the last life of the process may be gone so, receipts and effects together,
//! if the disk damaged what it had taken: nothing tells that apart from what was never written. So close the store
//! where you can, and open it again before you copy the folder of a process that died.
//!
//! # What the engine asks of you
//! - Never call `flush_async`: several at once wait for each other for ever.
//! - Inside a transaction of the engine's own call neither the engine nor the store: its lock is one for all
//!   databases of the process.
//! - Read what a subscription of yours (`watch_prefix`) brings: one that is not read stops every commit.
//! - After the store has failed, do not call `flush` on a handle of the engine's: it may never return.
//! - A commit of very many or very large values holds up those behind it: a hundred thousand take seconds.
//! - Keep large values elsewhere if the disk, or the number of open files, may run out: a file that cannot be made
//!   under `blobs/` leaves the engine waiting for ever. The store notices, fails its calls, and cannot let go of the
//!   files before the process ends.

mod attempts;
mod commit;
mod committer;
mod database;
mod disk;
mod engine;
mod expiry;
mod failure;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod gate;
mod marker;
mod names;
mod opening;
mod options;
mod pending;
mod purge;
mod queue;
mod size;
mod store;
mod transaction;

/// The engine, in the version that the store uses.
pub use sled;

pub use options::{SledBuilder, Synchronous};
pub use size::FolderSize;
pub use store::SledStore;
pub use transaction::{SledTransaction, SledTree};
