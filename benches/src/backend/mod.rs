//! The backends: for each, idem's side and the hand-written one.

mod memory;
mod sqlite;

use clap::ValueEnum;

pub(crate) use memory::EVERY;

use crate::{Open, baseline};

/// A backend in one of its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// In memory.
    Memory,
    /// SQLite, every commit written through.
    Sqlite,
    /// SQLite, written through at checkpoints.
    SqliteNormal,
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
    pub const ALL: [Self; 3] = [Self::Memory, Self::Sqlite, Self::SqliteNormal];

    /// Its two sides.
    #[must_use]
    pub const fn pair(self) -> Pair {
        match self {
            Self::Memory => Pair {
                name: "memory",
                baseline_name: "baseline-memory",
                idem: memory::open,
                baseline: baseline::memory::open,
            },
            Self::Sqlite => Pair {
                name: "sqlite",
                baseline_name: "baseline-sqlite",
                idem: sqlite::open_full,
                baseline: baseline::sqlite::open_full,
            },
            Self::SqliteNormal => Pair {
                name: "sqlite-normal",
                baseline_name: "baseline-sqlite-normal",
                idem: sqlite::open_normal,
                baseline: baseline::sqlite::open_normal,
            },
        }
    }
}
