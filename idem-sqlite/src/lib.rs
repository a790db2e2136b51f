//! The SQLite store of idem: effects are rows in your own tables, committed together with their receipts.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use idem_core::{Idem, Key, Outcome, Request};
//! use idem_sqlite::SqliteStore;
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("orders.db");
//! # rusqlite::Connection::open(&path)?.execute_batch("CREATE TABLE orders (quantity INTEGER)")?;
//! let idem = Idem::new(SqliteStore::open(&path).await?);
//! let request = Request::new(Key::new("north", "web-order", "intent-a")?).fingerprint(&3)?;
//! let outcome = idem
//!     .execute(&request, |tx| {
//!         tx.execute("INSERT INTO orders VALUES (?1)", [3])?; // your own table
//!         Ok(tx.last_insert_rowid())
//!     })
//!     .await?;
//! assert_eq!(outcome, Outcome::Created(1));
//! # Ok(()) }
//! ```
//!
//! # The file
//! The store shares the file with your tables, which it never touches, and keeps its own under names that
//! begin with `idem_`. They read well in the `sqlite3` shell: keys as text, times in milliseconds, a JSON
//! result as text. Their version is in `idem_version`; `user_version` is yours. The file is switched to its
//! write-ahead log, and foreign keys are enforced for effects.
//!
//! Names that begin with `idem_` are the store's: an effect cannot write to such a table, and none of yours
//! should be called so. Nothing of yours may refer to the store's tables, by a foreign key or a view: it would
//! keep them from being purged or upgraded.
//!
//! All processes that use the file, idem or not, must do so on one machine and under one name, as SQLite's log
//! asks: a hard link has a log of its own. Do not move, replace or delete the file while a store is open, nor
//! open it by other means than SQLite: closing a plain descriptor of it drops the process's locks.
//!
//! Processes take turns to write: whoever waits for the write lock gets it after an effect or two of each of the others,
//! however busy they are. The one that is next locks an empty file beside the database, whose name ends with `-turn`.
//! Closing a store removes that file. A connection of your own takes its turn by [`begin_immediate`]. One that waits only
//! by its busy timeout has no turn, and a busy store may keep the lock from it until that timeout.
//!
//! # Forks
//! Open a store after the fork: SQLite's locks belong to the process that took them, and its library knows of no fork.
//! A child that was forked while a store was open gets an error from each call of that store, and from opening the same
//! file: SQLite would take the parent's locks for the child's, and what it commits could be lost. What another program
//! opens that the child starts is fine. No connection of your own to the file must cross a fork either, nor may you open
//! one in a child of a process that had one open: nobody notices that.
//!
//! # Damage
//! A row of the store's tables that cannot be what it wrote is [`ErrorKind::Damaged`](idem_core::ErrorKind::Damaged)
//! for its key and for a listing, and never a new run: restore it, or delete it in the shell to have the key run
//! anew. A file that the engine finds malformed is the same error, or does not open.
//!
//! The engine's log has checksums, the database has none, and the store adds none. So some damage goes unnoticed:
//! - A commit in the log that is cut or altered is gone, and all after it: receipts together with their effects.
//! - A result that was altered in the database and still decodes is replayed as it is then; a fingerprint that was
//!   altered is a conflict. No check finds either.
//! - A receipt whose key or expiry was altered may not be found, and its key runs anew, as do keys which a broken
//!   order hides, or whose page was cut in part at the end of the file. `PRAGMA integrity_check` finds nearly all of
//!   this. What is found under a key bears that key, as it is in the file: another's record is damage.
//! - A database that was cut to nothing is a new one to the engine.
//!
//! Where that matters, keep the file on a file system or a disk that has checksums of its own. After a fault of the
//! disk or the memory run `PRAGMA integrity_check` in the shell before a store is opened, and if it says anything
//! but `ok`, restore a backup. A key that was completed since the backup runs anew then, and its effect in the file
//! is gone as well; what was done outside of it is not.
//!
//! # Groups
//! Steps that wait for each other's commit share one transaction, each undone on its own if it fails. A
//! deferred foreign key is checked when all of them commit, so one step's violation may be mended by another
//! of its group, as if that one had come first; one that is not mended fails its own step alone.
//!
//! # A transaction that you already have
//! [`run_in`] runs a request inside it, and the receipt is committed with the rest of it. [`begin_immediate`] begins one that has
//! the write lock.

mod borrowed;
mod checkpoint;
#[cfg(test)]
mod countdown;
mod diagnosis;
mod engine;
mod failure;
mod group;
mod guard;
mod job;
mod list;
mod location;
mod novelty;
mod on_connect;
mod options;
mod places;
mod purge;
mod queue;
#[cfg(test)]
mod queue_tests;
mod reader;
mod record;
mod reentry;
mod refusal;
mod schema;
mod sql;
mod store;
mod sync;
mod tables;
mod transaction;
mod turns;
mod url;
mod writer;

/// The engine's bindings, in the version that effects use.
pub use rusqlite;

pub use borrowed::{begin_immediate, run_in, run_in_at};
pub use options::{SqliteBuilder, Synchronous};
pub use schema::create_tables;
pub use store::SqliteStore;
pub use transaction::SqliteTransaction;
