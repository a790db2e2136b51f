//! The backends: for each, idem's side and the hand-written one.

mod memory;
mod redis;
mod sled;
mod sqlite;

use clap::ValueEnum;

pub(crate) use memory::EVERY;

use crate::{Open, Workload, baseline};

/// A backend in one of its settings, and what it is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// In memory.
    Memory,
    /// SQLite, every commit written through.
    Sqlite,
    /// SQLite, written through at checkpoints.
    SqliteNormal,
    /// Redis: a call reads first.
    Redis,
    /// Redis: a call tries its effect first.
    RedisSpeculative,
    /// As [`Backend::RedisSpeculative`], on a network that takes half a millisecond each way.
    RedisSlow,
    /// As [`Backend::RedisSpeculative`], against the crate `idempotent`.
    RedisIdempotent,
    /// sled, against a flush for each operation.
    Sled,
    /// sled, against one thread that batches.
    SledBatch,
}

/// The two sides of a backend.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// The backend's name.
    pub name: &'static str,
    /// The hand-written side's name.
    pub baseline_name: &'static str,
    /// Opens idem.
    pub idem: Open,
    /// Opens what was written by hand.
    pub baseline: Open,
}

impl Backend {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Memory,
        Self::Sqlite,
        Self::SqliteNormal,
        Self::Redis,
        Self::RedisSpeculative,
        Self::RedisSlow,
        Self::RedisIdempotent,
        Self::Sled,
        Self::SledBatch,
    ];

    /// Whether what it is compared with can do that.
    #[must_use]
    pub fn does(self, workload: Workload) -> bool {
        self != Self::RedisIdempotent || workload != Workload::Mark
    }

    /// Its two sides.
    #[must_use]
    pub const fn pair(self) -> Pair {
        let (name, baseline_name, idem, baseline): (_, _, Open, Open) = match self {
            Self::Memory => ("memory", "baseline-memory", memory::open, baseline::memory::open),
            Self::Sqlite => {
                ("sqlite", "baseline-sqlite", sqlite::open_full, baseline::sqlite::open_full)
            }
            Self::SqliteNormal => (
                "sqlite-normal",
                "baseline-sqlite-normal",
                sqlite::open_normal,
                baseline::sqlite::open_normal,
            ),
            Self::Redis => ("redis", "baseline-redis", redis::open, baseline::redis::open),
            Self::RedisSpeculative => (
                "redis-speculative",
                "baseline-redis",
                redis::open_speculative,
                baseline::redis::open,
            ),
            Self::RedisSlow => {
                ("redis-slow", "baseline-redis-slow", redis::open_slow, baseline::redis::open_slow)
            }
            Self::RedisIdempotent => (
                "redis-idempotent",
                "idempotent",
                redis::open_speculative,
                baseline::idempotent::open,
            ),
            Self::Sled => ("sled", "baseline-sled-flush", sled::open, baseline::sled_flush::open),
            Self::SledBatch => {
                ("sled-batch", "baseline-sled-batch", sled::open, baseline::sled_batch::open)
            }
        };
        Pair { name, baseline_name, idem, baseline }
    }
}
