//! Streams as a queue: deliveries, settling them, failures, and workers that are killed.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]
#![cfg(feature = "streams")]

mod cancelled;
mod consuming;
mod deliveries;
mod failures;
mod killed_workers;
mod left_over;
mod lost_replies;
mod opening;
mod setting_aside;
mod settling;
mod setup;
