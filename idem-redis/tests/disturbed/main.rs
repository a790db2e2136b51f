//! The store while everything about it is disturbed: connections cut, servers and clients killed or stopped. Apart from
//! the other tests, since they load the machine.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

mod aof;
#[cfg(unix)]
mod crash;
mod faults;
#[cfg(unix)]
mod stopped;

// Not all of it is used here.
#[allow(dead_code, unused_imports)]
#[path = "../store/setup.rs"]
mod setup;
