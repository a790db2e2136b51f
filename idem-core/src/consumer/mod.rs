//! Consumers of at-least-once queues and event buses: each event takes effect once per consumer.

mod consume;
mod handler;
mod queue;
mod recorder;

pub use consume::{Consumed, consume};
pub use handler::{Handled, Handler};
pub use queue::{Delivery, Queue};
pub use recorder::{Marked, Recorder};
