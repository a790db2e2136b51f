//! Redis Streams as a queue.

mod builder;
mod inner;
mod message;
mod queue;
mod receive;
mod reply;
mod settle;

pub use builder::StreamBuilder;
pub use message::{Message, NotInFlight, Tag};
pub use queue::StreamQueue;

/// The consumer in whose name the server keeps what was given back, until it is delivered again.
const GIVEN_BACK: &str = "idem:given-back";
