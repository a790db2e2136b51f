//! Consumers of at-least-once queues and event buses: each event takes effect once per consumer.

mod attempt;
mod back_off;
mod consume;
mod flight;
mod handler;
mod options;
mod outside;
mod patience;
mod queue;
mod recorder;
mod signal;
mod turns;

pub use consume::{Consumed, consume, drain};
pub use handler::{Handled, Handler};
pub use options::Options;
pub use queue::{Delivery, Queue};
pub use recorder::{Marked, Recorder};
