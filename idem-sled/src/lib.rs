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
//! opened or closed, and of which size the segments of the engine's log are. The engine by itself takes a folder whose files are gone for an empty one, and a log that was
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
//! log, and the files under `blobs/` that the engine makes for what is too large for its log; see *Space*. What the
//! engine moves when it makes room in its log it takes for durable after its own flush; a sync of the store, or the
//! one that the engine does every half second, follows long before it writes over the old place, but no promise of the
//! engine's says so.
//!
//! # Space
//! The engine writes to a log of segments, and uses a segment again when at most half of it is still needed. A page of
//! a tree, with some ten to twenty entries, that takes more than a quarter of a segment goes to a file of its own
//! under `blobs/`, and the engine forgets to remove some of these files. So the store keeps entries small, and refuses
//! with [`ErrorKind::TooLarge`](idem_core::ErrorKind::TooLarge) an entry that it cannot keep small:
//!
//! | what | limit |
//! | --- | --- |
//! | a result, a portable value | none but [`Idem`](idem_core::Idem)'s for results: the store keeps it in pieces of 4 KiB |
//! | the name of a portable value, with the tenant's | 4 KiB |
//! | an entry of a tree of yours, key and value together | 32 KiB |
//!
//! The space of what is purged, forgotten or overwritten is then used again. A folder takes 16 to 24 MiB once it has
//! been written to for a while, even if little is in it, and up to about four times the bytes that live. The log
//! does not shrink at once when much is purged: the next commits fill the room, and after some megabytes of them the
//! engine cuts the log's end off. A receipt that stays while large entries replace each other takes some more: we
//! measured 4 KB each beside entries of 32 KB. Very many trees, some ten thousand, make the engine's own list of them
//! too large for its log. [`SledStore::size_on_disk`] tells how large the folder is. Entries that you write through the
//! engine itself are not refused: keep them below 32 KiB.
//!
//! ## Folders of earlier versions
//! A folder keeps the segments that it was made with: of [`SEGMENT_SIZE`], which is 4 MiB, or of the engine's default
//! of 512 KiB in folders that an earlier version or the engine itself has made. These open as they are, and keep what is
//! in them; earlier versions do not open them any more. New receipts and portable values are kept in pieces there too,
//! and their space is used again. Files under `blobs/` that are needed no more stay. An entry of a tree of yours is not
//! refused there, and one over 4 KiB may leave such files.
//!
//! To move to the new segments, close the store and copy all trees to a new folder with the engine:
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use idem_sled::{SEGMENT_SIZE, sled};
//! # let folder = tempfile::tempdir()?;
//! # let (from, to) = (folder.path().join("orders"), folder.path().join("orders-moved"));
//! let old = sled::Config::new().path(from).open()?;
//! let new = sled::Config::new().path(to).segment_size(SEGMENT_SIZE).open()?;
//! new.import(old.export());
//! new.flush()?;
//! # Ok(()) }
//! ```
//! Open the store in the new folder, and remove the old one once the new one is closed well. What an earlier version
//! stored in one entry stays so until it is replaced or purged.
//!
//! # Forks
//! Open a store after the fork. A child that was forked while one was open gets an error from each call of it, and from
//! opening any folder: the engine's threads are not there. It keeps its parent's folder locked until it ends or starts
//! another program, in which all works as ever.
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
//! - To open a folder with the engine alone, tell it the [`SEGMENT_SIZE`]; it refuses any other size than the
//!   folder's.
//! - Write no entry over 32 KiB through the engine, nor over 4 KiB in a folder of an earlier version, if the disk, or
//!   the number of open files, may run out: a file that cannot be made under `blobs/` leaves the engine waiting for
//!   ever. The store notices, fails its calls, and cannot let go of the files before the process ends.

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
mod pieces;
mod purge;
mod queue;
mod segments;
mod size;
mod store;
mod sweep;
mod transaction;
mod url;

/// The engine, in the version that the store uses.
pub use sled;

pub use options::{SledBuilder, Synchronous};
pub use segments::SEGMENT_SIZE;
pub use size::FolderSize;
pub use store::SledStore;
pub use transaction::{SledTransaction, SledTree};
