#![doc = include_str!("../README.md")]

pub mod callers;
pub mod cases;
mod fixture;
mod leasing;
pub mod setup;
mod steps;
mod suite;
mod watched;

pub use fixture::{Dynamic, Fixture, HostileEffect};
pub use steps::as_holder;
pub use suite::Case;
#[doc(hidden)]
pub use tokio;
