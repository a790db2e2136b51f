//! Consumers of at-least-once queues and event buses: a handler whose effect lies in the store takes effect once per
//! consumer and event; one whose effect lies outside runs at least once.
//!
//! A [`Queue`] delivers messages, some of them more than once. A [`Handler`] leaves a mark on each event that it has
//! handled, and does not run on a marked one. [`consume`] stands between the two until it is told to end, and [`drain`] until the queue
//! is empty: they ack only after the commit of the mark. Who has a loop of its own uses [`Handler::handle`], or
//! the marks alone: a [`Recorder`].
//!
//! ```
//! use idem_core::consumer::{Consumed, Handler, Options, Queue, consume};
//! use idem_core::{Error, Idem, Store, Transaction};
//!
//! async fn run<Q, S>(
//!     queue: &Q,
//!     idem: &Idem<S>,
//!     // In a program, `async { let _ = tokio::signal::ctrl_c().await; }`.
//!     shutdown: impl Future + Send,
//! ) -> Result<Consumed, Error>
//! where
//!     Q: Queue<Message = u64>,
//!     S: Store + 'static,
//! {
//!     let handler = Handler::atomic(idem, "ledger", |tx: &mut S::Transaction, amount: &u64| {
//!         let sum = match tx.get(b"sum")? {
//!             Some(sum) => std::str::from_utf8(&sum)?.parse::<u64>()?,
//!             None => 0,
//!         };
//!         tx.put(b"sum", (sum + amount).to_string().as_bytes())?;
//!         Ok(())
//!     })?;
//!     let options = Options::new().concurrency(16).attempts(3);
//!     consume(queue, &handler, &options, shutdown).await
//! }
//! ```
//!
//! # Two modes
//!
//! An [atomic](Handler::atomic) handler writes through the store's transaction, and its writes and the mark are
//! one commit. The effect of the [other](Handler::outside) lies outside the store, and the mark follows its success.
//! When the process dies, or the machine, the queue delivers again what was not acked:
//!
//! | it dies | atomic | mark after |
//! | --- | --- | --- |
//! | before the handler runs | it runs at the next delivery | the same |
//! | in the handler | nothing is kept; it runs at the next delivery | what it did outside stays; it runs again |
//! | after the handler, before the commit of the mark | nothing is kept; it runs at the next delivery | it runs again |
//! | after the commit, before the ack | the next delivery is a duplicate and is acked | the same |
//! | after the ack | nothing comes again | the same |
//!
//! So an atomic handler takes effect exactly once, however often it ran; the other at least once, and what it
//! asks for outside must stand to be asked for twice: give the event's id on as a key of its own. Two deliveries
//! of one event at the same time, in two loops, run the other handler twice as well; in one loop they wait
//! for each other.
//!
//! "After the commit" is as durable as the store is ([`Guarantees::durability`](crate::Guarantees::durability)):
//! a mark that the store loses is no mark.
//!
//! # Duplicates and payloads
//!
//! The event's id decides: what comes again under it is a duplicate, is acked, and does not run, whatever its
//! payload. A publisher that may use an id twice is found out by [`Handler::fingerprint`]: a repeated event with
//! another payload is then a conflict, does not run, and is set aside at once.
//!
//! # How long marks live
//!
//! Forever, unless [`Handler::retain`] says otherwise. An event that comes after its mark has expired runs again,
//! so marks must live at least as long as the queue can deliver again: its [horizon](Queue::horizon), or what
//! [`Options::horizon`] says. A handler whose marks end is refused on a queue whose horizon is longer or not
//! known, before anything is received.
//!
//! # Failures
//!
//! - A handler that fails, or panics: the message is given back with the reason, and set aside, as a dead
//!   letter, when the delivery that failed was the last of its [attempts](Options::attempts). Failures in a row slow
//!   the loop down, until a handler succeeds.
//! - A message that kills its worker: when it was delivered more often than its attempts it is set aside and does not
//!   run.
//! - A store that fails for a while (busy, not reached, read-only, full, denied, or in doubt): the deliveries
//!   stay in hand, their calls are made again ever more slowly, and nothing new is received. That costs no
//!   attempts, and a handler that has run does not run again for it. The same goes for an error of the engine's own,
//!   or of what is stored, if the event's key cannot be read either; if it can, the delivery has failed.
//! - A key that is in use: the delivery waits for its lease's end, and costs no attempt.
//! - A queue that fails: it is asked again, ever more slowly. A delivery that could not be settled comes again,
//!   as a duplicate if it was handled. One that [is not in flight](NotInFlight) any more is no failure.
//! - A closed store, and settings that make no sense: the loop ends with the error.
//!
//! What the loop rides out is counted in [`Consumed`], and told to [`Options::on_trouble`]: set it, or nobody sees
//! it.
//!
//! # The end
//!
//! When the future that `consume` was given is ready, nothing more is begun: what runs is finished and settled,
//! what was received and not begun is given back. That takes no longer than [`Options::end_within`]; then what is left
//! is given back as well, and what lay outside and was not marked ([`Consumed::unmarked`]) runs again. Dropping the loop's own future is as safe as a crash, and no
//! better.

mod attempt;
mod consume;
mod flight;
mod handler;
mod options;
mod outside;
mod patience;
mod places;
mod queue;
mod recorder;
mod signal;
mod turns;

pub use consume::{Consumed, CutShort, consume, drain};
pub use handler::{Handled, Handler};
pub use options::Options;
pub use queue::{Delivery, NotInFlight, Queue};
pub use recorder::{Marked, Recorder};
