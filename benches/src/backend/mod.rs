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
    /// No idem: the least that a script on Redis can do, against the usual way. What no store can be far above.
    FloorRedis,
    /// As [`Backend::FloorRedis`], where a create reads first.
    FloorRedisReading,
    /// As [`Backend::FloorRedis`], on a network that takes half a millisecond each way.
    FloorRedisSlow,
    /// No idem: one thread that batches, against a flush for each operation.
    FloorSled,
}

/// The two sides of a backend.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// The backend's name.
    pub name: &'static str,
    /// What is measured.
    pub subject_name: &'static str,
    /// The hand-written side's name.
    pub baseline_name: &'static str,
    /// Opens idem, or what is measured in its place.
    pub subject: Open,
    /// Opens what was written by hand.
    pub baseline: Open,
}

impl Backend {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Memory,
        Self::Sqlite,
        Self::SqliteNormal,
        Self::Redis,
        Self::RedisSpeculative,
        Self::RedisSlow,
        Self::RedisIdempotent,
        Self::Sled,
        Self::SledBatch,
        Self::FloorRedis,
        Self::FloorRedisReading,
        Self::FloorRedisSlow,
        Self::FloorSled,
    ];

    /// Whether there is no idem in it.
    #[must_use]
    pub const fn is_floor(self) -> bool {
        matches!(
            self,
            Self::FloorRedis | Self::FloorRedisReading | Self::FloorRedisSlow | Self::FloorSled
        )
    }

    /// Whether both sides can do that, and it says something.
    #[must_use]
    pub fn does(self, workload: Workload) -> bool {
        match self {
            Self::RedisIdempotent => workload != Workload::Mark,
            _ if self.is_floor() => matches!(workload, Workload::Create | Workload::Mark),
            _ => true,
        }
    }

    /// Its two sides.
    #[must_use]
    pub const fn pair(self) -> Pair {
        let (name, baseline_name, subject, baseline): (_, _, Open, Open) = match self {
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
            Self::FloorRedis => (
                "floor-redis",
                "baseline-redis",
                baseline::redis_script::open,
                baseline::redis::open,
            ),
            Self::FloorRedisReading => (
                "floor-redis-reading",
                "baseline-redis",
                baseline::redis_script::open_reading,
                baseline::redis::open,
            ),
            Self::FloorRedisSlow => (
                "floor-redis-slow",
                "baseline-redis-slow",
                baseline::redis_script::open_slow,
                baseline::redis::open_slow,
            ),
            Self::FloorSled => (
                "floor-sled",
                "baseline-sled-flush",
                baseline::sled_batch::open,
                baseline::sled_flush::open,
            ),
        };
        let subject_name = if self.is_floor() { "by hand" } else { "idem" };
        Pair { name, subject_name, baseline_name, subject, baseline }
    }
}
