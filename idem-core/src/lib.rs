//! The core of idem: an operation that is retried or delivered many times takes effect once, and every
//! later caller gets the first result.
//!
//! This crate holds what all backends share: the types, the one decision, the steps of the protocol and the
//! traits. It does no I/O and needs no runtime. To use idem, take the crate `idem-store`, which brings the
//! backends; to write a backend, implement [`Store`] and run the suite of `idem-conformance` on it.
//!
//! As a reader meets them: a [`Request`] has a [`Key`], a [`Fingerprint`] of its parameters and a retention.
//! [`Idem::execute`] sends it as a [`Step`] to a [`Store`], which reads the key's [`Record`], runs the step
//! in a [`Transaction`] and commits its [`Change`]. [`judge`] decides what a record allows; the caller gets
//! an [`Outcome`] or an [`Error`] with its [`Certainty`]. For an effect outside the store, [`Idem::claim`] and
//! [`Idem::run_leased`] hold the key by a [`Lease`].

mod back_off;
mod codec;
mod decision;
mod draft;
mod erased;
mod error;
mod filter;
mod fingerprint;
mod guarantees;
#[cfg(feature = "tokio")]
mod hot_values;
#[cfg(all(test, feature = "tokio"))]
mod hot_values_tests;
mod idem;
mod json;
mod key;
mod lease;
mod operator;
mod optimistic;
mod outcome;
mod overlay;
mod process;
mod protocol;
mod purger;
mod record;
mod request;
mod step;
mod store;
mod sync;
mod time;
mod transaction;
mod trouble;
mod waiting;
#[cfg(test)]
mod waiting_tests;

pub mod consumer;
pub mod locks;
#[cfg(feature = "tokio")]
pub mod runtime;
#[cfg(feature = "test-support")]
pub mod testing;
pub mod url;

#[cfg(feature = "tokio")]
pub use crate::hot_values::{Contender, HotValues, Turn};
pub use crate::{
    decision::{Phase, Unfinished, Verdict, holds, judge},
    draft::{Draft, DraftToken, Moment},
    erased::{DynStore, erase},
    error::{BoxError, Certainty, EffectError, Error, ErrorKind, Field},
    filter::{Filter, KeyRange, KeyState},
    fingerprint::{Fingerprint, FingerprintError},
    guarantees::{ClockSource, Delays, Durability, Guarantees, Sharing},
    idem::Idem,
    json::{decode_result, encode_result},
    key::{Key, Kind, Space},
    lease::{Claim, Holding, KeptAlive, Lease, LeaseError, LeaseTerms, LeasedOutcome, OnFailure},
    operator::Settlement,
    optimistic::{Applied, FETCH_LIMIT, Look, MISREAD_LIMIT, Optimistic, RACE_LIMIT, optimistic},
    outcome::Outcome,
    overlay::{Overlay, Values},
    process::{HomeProcess, PerProcess},
    protocol::Execute,
    purger::Purger,
    record::{Receipt, Record, State, Token},
    request::Request,
    step::{BoxStep, Change, Committed, Step, run_step},
    store::{Cursor, Page, Purged, Store},
    time::{BoxFuture, Clock, ManualClock, Retention, Span, SystemClock, Timestamp},
    transaction::Transaction,
};
