#![cfg_attr(docsrs, feature(doc_cfg))]
//! The Redis store of idem: an effect's writes and its receipt are committed by one script, under the server's
//! clock, so that all nodes agree.
//!
//! ```
//! # #[cfg(feature = "test-support")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use idem_core::{Idem, Key, Outcome, Request, Transaction};
//! use idem_redis::RedisStore;
//! # let server = idem_redis::testing::Server::start()?;
//! # let url = server.url();
//! let idem = Idem::new(RedisStore::builder().prefix("shop").open(&url).await?);
//! let request = Request::new(Key::new("north", "web-order", "intent-a")?).fingerprint(&3)?;
//! let outcome = idem
//!     .execute(&request, |tx| {
//!         tx.put(b"intent-a", b"3")?;
//!         Ok(3)
//!     })
//!     .await?;
//! assert_eq!(outcome, Outcome::Created(3));
//! for hazard in idem.store().check().await? {
//!     eprintln!("receipts are in danger: {hazard}");
//! }
//! # Ok(()) }
//! # #[cfg(not(feature = "test-support"))]
//! # fn main() {}
//! ```
//!
//! # Round trips
//! A call looks (one round trip), runs its effect, and commits (one more). A replay takes one. An effect's reads
//! are fetched between its runs: one for each value that it had not asked for before, or one for several if it asks
//! for them before it looks at any: `let (a, b) = (tx.get(x), tx.get(y)); let (a, b) = (a?, b?);`. A call may run its
//! effect a thousand times for that, and a thousand times because others changed what it read. What takes no effect, such as a mark, takes one in all: the script tries it on
//! a free key. With [`RedisBuilder::speculative`] so does an effect that reads nothing.
//!
//! # Commits
//! A script compares the record, and all that the effect read, with what the call saw, and writes all or
//! nothing. It never fails half way: what the server could refuse, it refuses before the first write. Its
//! decisions are core's; it only stamps tokens, and times where nothing was read first.
//!
//! Callers of one store who create, or look, at the same time go to the server together, up to sixteen in one
//! command, and each succeeds or fails alone; nobody waits for an answer to somebody else. Not in a cluster.
//!
//! # Lost answers
//! A commit says until when it may come into force, by the server's clock: one that is on its way for longer than a
//! second does nothing. A call whose answer was lost waits for that second and asks again: so nothing of it comes
//! into force after it has ended, unless its future was dropped. The record bears the id of the attempt, so that a
//! commit that came through is found; if it was forgotten in the meantime the key runs again, as it does after every
//! forget. A call that cannot find out what became of it ends in an error whose certainty is unknown, never in one
//! that says that nothing was done. Answers bear the number of their question, so that a connection that mixes them
//! up is found out.
//!
//! # Time
//! The server's clock decides. In a cluster each server's decides for its own keys. Under the server's clock every
//! key that may go some day is set to expire on the server, a minute or a little more after the store would let it be
//! purged: that is no more than collecting garbage.
//!
//! # Purging and listing
//! Under the server's clock the server removes by itself what may be purged: [`Store::purge`](idem_core::Store::purge)
//! only does it a minute sooner, and looks at every record for that. Both go by SCAN: a key may be listed twice
//! while the server resizes its table, and missed if its slot is moved to another server meanwhile, or the server
//! started again between two pages: then begin a listing anew. A purge whose connection was opened again says that there
//! may be more. After a lost answer it may count what another purge removed.
//!
//! A [`Filter`](idem_core::Filter) becomes SCAN's pattern: the server itself leaves out other tenants and operations, but
//! looks at all its keys for that, about 10 000 for each page; in a cluster every primary does. A state is decided here,
//! so a page reads the records of every other state as well.
//!
//! # Damage
//! Records bear a checksum. One that was changed or cut, or that another type lies in place of, is an error of every
//! call that meets it ([`ErrorKind::Damaged`](idem_core::ErrorKind::Damaged), with the server's key), and never a new
//! run; a listing stops there and names the key, a purge goes round it. Restore it, or delete that key: it then runs
//! anew. What nobody can notice: a record that another client removed, put an older copy of in place, or gave a
//! checksum that matches; and changed values, which bear none. So keep other clients off the prefix by the server's
//! access control.
//!
//! What the server loses with its files it loses silently. A commit that a crash cut at the end of the append-only file
//! is dropped as a whole when the server starts (`aof-load-truncated yes`, its default) and told in its log alone; with
//! `no` the server does not start before somebody has run `redis-check-aof --fix`, which drops it too. With
//! `appendfsync always` nobody was told of such a commit, unless the disk lost what it had taken. In the rest of that
//! file the server notices broken commands, but no changed bytes: those show in a record, not in a name or a value. An
//! RDB file has a checksum, and a server does not start from a damaged one, unless `rdbchecksum no`. Whoever restores
//! files takes keys back to that time: what has completed since then runs again.
//!
//! # When a server is not well
//! A call waits for a response timeout, and a little longer, while the server loads its data, is busy with a script,
//! lacks replicas or cannot write to its disk: reads too, since only a server that takes writes is sure to be the
//! primary. In a cluster it waits so while a slot is being moved, or a primary is down. Then it ends in
//! [`ErrorKind::Busy`](idem_core::ErrorKind::Busy), [`ErrorKind::ReadOnly`](idem_core::ErrorKind::ReadOnly) or
//! [`ErrorKind::Unreachable`](idem_core::ErrorKind::Unreachable).
//!
//! # Forks
//! A store, and a queue of `streams`, is its process's: in a child that was forked while it was open each call fails with
//! [`ErrorKind::OtherProcess`](idem_core::ErrorKind::OtherProcess), and dropping it leaves the connection to the parent.
//! Open another in the child, in a runtime that was built there: a runtime of the parent's that goes on in the child would
//! take replies from the parent's socket.
//!
//! # Keys
//! All keys of a tenant, or of a consumer, share a hash slot: a tenant is the unit of scale in a cluster.
//!
//! ```text
//! idem:{tnorth}:r:9:web-order:intent-a     the record of ("north", "web-order", "intent-a")
//! idem:{cbilling}:r:0::event-7             the record of an event of the consumer "billing"
//! idem:{tnorth}:v:balance                  the value that effects of the tenant "north" know as "balance"
//! idem:{tnorth}:token                      the tenant's last fencing token
//! ```
//!
//! The number is the operation's length in bytes. In a tenant's name braces and `%` are escaped: `%7B`, `%7D`, `%25`.
//!
//! A user of the server's access control needs, with your prefix:
//!
//! ```text
//! user shop on >secret ~idem:* +eval +evalsha +get +getex +getrange +exists +set +del +incr +time +echo +scan +info
//! ```
//!
//! besides `+select` for a database other than 0, `+config|get` for [`RedisStore::check`], and `+cluster|slots` in a
//! cluster.
//!
//! # Limits
//! One call sends 128 MiB and 100,000 values at most, and no more in one argument than the server takes
//! (`proto-max-bulk-len`). Counting is not offered: it would cost a write per mark.

mod attempt;
mod background;
mod builder;
mod create;
mod failure;
mod glance;
mod inner;
mod link;
mod names;
mod nodes;
mod reentry;
mod script;
mod server;
mod server_time;
mod settle;
mod stamping;
mod store;
#[cfg(feature = "streams")]
#[cfg_attr(docsrs, doc(cfg(feature = "streams")))]
pub mod streams;
mod sweep;
mod target;
mod together;
mod transaction;

#[cfg(feature = "test-support")]
#[cfg_attr(docsrs, doc(cfg(feature = "test-support")))]
pub mod testing;

pub use builder::RedisBuilder;
pub use server::Hazard;
pub use store::RedisStore;
pub use transaction::RedisTransaction;
