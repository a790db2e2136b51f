//! Measures idem against hand-written code that does the same, and says how it is done.
//!
//! [`compare`] runs pairs of rounds: idem and a baseline in one process, in turn, each on fresh data. Only the
//! ratio within a pair counts, since both halves of it met the same machine. The criterion benches draw the
//! same workloads.
//!
//! A backend is one variant of [`Backend`] with its two sides: idem's in `backend`, the hand-written one in
//! `baseline`. A floor is hand-written on both sides.

mod backend;
mod baseline;
mod compare;
mod folder;
mod idem_side;
mod redis_server;
mod report;
mod sample;
mod shop;
mod side;
mod stats;
mod tasks;
mod threads;
mod workload;

pub use crate::{
    backend::{Backend, Pair},
    compare::{Plan, ROUNDS, compare},
    folder::{fresh, target},
    report::{Row, print, write_summary},
    sample::{Answers, Sample},
    shop::{Order, Placed},
    side::{Open, Side, Stored, measure},
    workload::{Load, Workload},
};
