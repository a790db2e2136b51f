//! The store, beyond what the suite asks of every store: networks, servers and data that fail.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

mod cancelled;
mod clocks;
mod closing;
mod damage;
mod fake;
mod integers;
mod killed_connections;
mod lost_replies;
mod memory;
mod refusals;
mod replicas;
mod restarts;
mod rights;
mod round_trips;
mod runtimes;
mod scripts_lost;
mod setup;
mod unreachable;
