#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(feature = "sqlite", doc = include_str!("../README.md"))]
#![cfg_attr(
    not(feature = "sqlite"),
    doc = "Doing things once: begin with [`Idem`], [`Request`] and a store, by its type or by [`open`]. The first page, \
           the README, is made with the feature `sqlite`, since its examples are."
)]

// Without a backend there is nothing that a URL could open.
#[cfg_attr(
    not(any(feature = "memory", feature = "sqlite", feature = "sled", feature = "redis")),
    allow(dead_code)
)]
mod open;

pub use idem_core::{
    BoxError, Certainty, Claim, Clock, ClockSource, Cursor, Delays, Durability, DynStore,
    EffectError, Error, ErrorKind, Filter, Fingerprint, FingerprintError, Guarantees, Holding,
    Idem, KeptAlive, Key, KeyState, Kind, Lease, LeaseError, LeaseTerms, LeasedOutcome,
    ManualClock, OnFailure, Outcome, Page, Purged, Purger, Receipt, Record, Request, Retention,
    Settlement, Sharing, Space, Span, State, Store, SystemClock, Timestamp, Token, Transaction,
    consumer, erase,
};
pub use open::open;

#[cfg_attr(feature = "memory", doc = include_str!("choosing.md"))]
#[cfg_attr(
    not(feature = "memory"),
    doc = "The page is made with the feature `memory`, since its examples are."
)]
pub mod choosing {
    // For the links of the page.
    #[allow(unused_imports)]
    use super::*;
}

/// What is needed to write a backend, and to step around the typed front.
pub mod backend {
    pub use idem_core::{
        Applied, BoxFuture, BoxStep, Change, Committed, Draft, DraftToken, Execute, FETCH_LIMIT,
        HomeProcess, KeyRange, Look, MISREAD_LIMIT, Moment, Optimistic, Overlay, Phase, RACE_LIMIT,
        Step, Unfinished, Values, Verdict, decode_result, encode_result, holds, judge, optimistic,
        run_step,
    };
}

#[cfg(feature = "test-support")]
#[cfg_attr(docsrs, doc(cfg(feature = "test-support")))]
pub use idem_core::testing;

/// The in-memory store, for tests and single processes.
#[cfg(feature = "memory")]
#[cfg_attr(docsrs, doc(cfg(feature = "memory")))]
#[doc(inline)]
pub use idem_memory as memory;

/// The Redis store: shared by all nodes, under the server's clock.
#[cfg(feature = "redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
#[doc(inline)]
pub use idem_redis as redis;

/// The sled store: effects are values in your own trees.
#[cfg(feature = "sled")]
#[cfg_attr(docsrs, doc(cfg(feature = "sled")))]
#[doc(inline)]
pub use idem_sled as sled;

/// The SQLite store: effects are rows in your own tables.
#[cfg(feature = "sqlite")]
#[cfg_attr(docsrs, doc(cfg(feature = "sqlite")))]
#[doc(inline)]
pub use idem_sqlite as sqlite;
