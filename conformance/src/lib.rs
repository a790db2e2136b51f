// What the guide shows is the code of an example, which a test of that one compares it with.
#![allow(clippy::test_attr_in_doctest)]
#![cfg_attr(not(doctest), doc = include_str!("../README.md"))]

pub mod callers;
pub mod cases;
pub mod chance;
pub mod child;
pub mod damage;
pub mod first_form;
mod fixture;
#[cfg(all(unix, feature = "fork"))]
pub mod forked;
mod leasing;
mod list;
#[cfg(feature = "model")]
pub mod model;
pub mod operations;
mod placed;
mod report;
mod run;
pub mod setup;
mod steps;
mod suite;
mod traced;
mod watched;

pub use fixture::{Fixture, HostileEffect};
#[doc(hidden)]
pub use placed::{PlaceOf, Placed, run, run_dynamic};
pub use report::Report;
pub use run::{Running, Runtime};
pub use steps::as_holder;
pub use suite::Case;
#[doc(hidden)]
pub use traced::{Traced, TracedStore};
