//! The store, beyond what the suite asks of every store: networks, servers and data that fail.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

mod cancelled;
mod clocks;
mod closing;
#[cfg(feature = "cluster")]
mod clusters;
mod damage;
mod doubts;
mod fake;
mod first_form;
mod ghosts;
mod hazards;
mod hot_values;
mod integers;
mod killed_connections;
mod late;
mod leases;
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
mod sweeps;
#[cfg(feature = "tls")]
mod tls;
mod together;
mod unreachable;
mod urls;
