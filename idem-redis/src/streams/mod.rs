//! Redis Streams as a queue: consumers of a group share a stream's entries, and what one leaves undone another takes
//! over.
//!
//! ```
//! # #[cfg(feature = "test-support")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! use std::time::Duration;
//! use idem_core::{Idem, Transaction, consumer::{Handler, Queue}};
//! use idem_redis::{RedisStore, streams::{Message, StreamQueue}};
//! # let server = idem_redis::testing::Server::start()?;
//! # let url = server.url();
//! let queue = StreamQueue::builder("orders", "billing")
//!     .event_id_field("event")
//!     .visibility(Duration::from_secs(60))
//!     .open(&url)
//!     .await?;
//! // The producer's part. It may have sent it before: it does not know.
//! queue.send([("event", "order-7"), ("amount", "100")]).await?;
//!
//! let idem = Idem::new(RedisStore::open(&url).await?);
//! let handler = Handler::atomic(&idem, "billing", |tx, order: &Message| {
//!     Ok(tx.put(b"order-7", order.field("amount").ok_or("an order has an amount")?)?)
//! })?;
//! for delivery in queue.receive(10).await? {
//!     handler.handle(&delivery.event_id, delivery.message).await?;
//!     queue.ack(&delivery.tag).await?;
//! }
//! # Ok(()) }
//! # #[cfg(not(feature = "test-support"))]
//! # fn main() {}
//! ```
//!
//! [`consume`](idem_core::consumer::consume) is the loop for it.
//!
//! # Deliveries
//! A receive looks first for what has been in flight for longer than the visibility, of any consumer of the group,
//! itself included: what was left by one that is gone, by a receive that was dropped, by an answer that was lost. Then
//! it reads what is new, and if there is neither it waits for a [`block`](StreamBuilder::block). After one that was
//! filled by what was left over, the next begins with what is new, so that entries which fail for ever do not stop the
//! others. It returns 1,000 entries at most. If it finds none to take over it goes through 1,000 that are in flight, or
//! more; once it has taken some it goes through fewer. The next goes on from there. Each receive that waits has a connection of its own, for as long as it does.
//!
//! A delivery's `attempt` is the server's count of its deliveries: those that never arrived count too, and so do those
//! to workers that died of it. Giving back and extending do not.
//!
//! New entries come in the order of the stream. What was left over comes later than what was sent after it, and
//! several consumers overtake each other: nothing is ordered for long.
//!
//! # Settling
//! A delivery is settled only while it is in flight with the consumer that received it, in that very delivery: else it
//! is [`NotInFlight`](idem_core::consumer::NotInFlight), and nothing is done. So a late ack does not settle what another worker has taken over. A call
//! whose answer was lost asks again, and finds what it has done.
//!
//! - An ack leaves the entry in the stream, for other groups.
//! - What is given back is delivered again to whoever asks next; until then the consumer `idem:given-back` of the group
//!   has it.
//! - What is set aside goes to the [stream of dead letters](StreamBuilder::dead_letters) and is acked, both or neither.
//!   A dead letter has the fields `idem:reason` (the error with its causes), `idem:id` (the entry's), `idem:group` and
//!   `idem:attempts`, and after them the entry's own. An entry of more than 3,900 fields cannot be set aside.
//!
//! # What to choose
//! - **The visibility**: how late a worker that died is noticed. [`consume`](idem_core::consumer::consume) and
//!   [`drain`](idem_core::consumer::drain) extend what they have in hand by themselves; three times what the server may
//!   take to answer is enough for them. In a loop of your own it must be longer than all that was received together
//!   takes, the last of a batch included, unless you extend each delivery. What outlives it is handled twice at the
//!   same time; an atomic [`Handler`](idem_core::consumer::Handler) counts it once all the same.
//! - **The event's id**: in a field, and named by [`StreamBuilder::event_id_field`], wherever a producer may send an
//!   event twice. One that sends again after an error makes a second entry, with an id of its own.
//! - **The consumer's name**: leave it, or give each worker a name that it keeps. The server remembers every name until
//!   [`StreamQueue::close`], which deletes the consumer if nothing is pending with it. Never delete one by hand
//!   (`XGROUP DELCONSUMER`) with which something is: that would not be delivered again.
//!
//! # How long marks must live
//! An entry is delivered again for as long as it is pending, be it for years; a group that is lost, or was made anew by
//! an operator, delivers all that is in the stream from the start. So a handler's marks live for ever, unless you know
//! better: that the stream is trimmed by age (`XADD .. MINID`), that no producer sends an event again after a day. Then
//! say so by [`StreamBuilder::horizon`], and let marks live longer than that.
//!
//! # What is lost
//! - An entry that is trimmed or deleted while it is in flight is not delivered again, nor is one that nobody has read
//!   yet: `MAXLEN` counts entries, not what is pending. Trim by age, and by more than a backlog can be old.
//! - The stream is as durable as its server is configured for: ask [`RedisStore::check`](crate::RedisStore::check). With
//!   the store on the same server, an ack that is lost with a crash is a duplicate; a primary that fails can lose
//!   entries and marks that it acknowledged, since replicas follow it with a delay.
//! - A stream, or a group, that is gone is made again by the next receive.
//!
//! # When a server is not well
//! A call tries again for as long as the [response timeout](StreamBuilder::response_timeout), as a
//! [`RedisStore`](crate::RedisStore)'s does, and opens another connection where one broke. Then it ends in an
//! [`Error`](idem_core::Error), boxed as the trait wants it: `Unreachable`, `Busy`, `ReadOnly` may pass by themselves;
//! `Full`, `Denied` and `Damaged` (the key holds no stream) are the operator's.
//!
//! # Cancel safety
//! What a dropped receive would have returned comes again when its visibility has passed, as another attempt; its
//! connection is closed, so that the server gives it nothing later. An ack, a nack, an extension or a setting aside
//! that is dropped is done or not, never by halves.
//!
//! # Rights
//! A user of the server's access control needs, with your names:
//!
//! ```text
//! user shop on >secret ~orders ~orders:dead +eval +evalsha +info +time +xgroup|create +xgroup|delconsumer
//!     +xreadgroup +xautoclaim +xpending +xclaim +xack +xadd +xrange
//! ```
//!
//! besides `+select` for a database other than 0.

mod builder;
mod inner;
mod message;
mod queue;
mod receive;
mod reply;
mod settle;

pub use builder::StreamBuilder;
pub use message::{Message, Tag};
pub use queue::StreamQueue;

/// The consumer in whose name the server keeps what was given back, until it is delivered again.
const GIVEN_BACK: &str = "idem:given-back";
