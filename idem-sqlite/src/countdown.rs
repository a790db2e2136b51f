//! When a fault that a test injects is due.

use std::sync::Arc;

use idem_core::locks::Mutex;
use rusqlite::ffi;

/// Counts down to a fault. A clone counts down the same.
#[derive(Clone, Default)]
pub(crate) struct Countdown(Arc<Mutex<State>>);

/// How often a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lasts {
    Once,
    /// From then on, until it is disarmed.
    On,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Disarmed,
    /// It strikes when it is asked so often: the next time is 1.
    Left(usize, Lasts),
    Struck(Lasts),
}

impl Countdown {
    pub(crate) fn armed(number: usize, lasts: Lasts) -> Self {
        let countdown = Self::default();
        countdown.arm(number, lasts);
        countdown
    }

    pub(crate) fn arm(&self, number: usize, lasts: Lasts) {
        *self.0.lock() = State::Left(number, lasts);
    }

    /// Ends it; returns whether it has struck.
    pub(crate) fn disarm(&self) -> bool {
        matches!(std::mem::take(&mut *self.0.lock()), State::Struck(_))
    }

    /// Whether it strikes here.
    pub(crate) fn strikes(&self) -> bool {
        let mut state = self.0.lock();
        match *state {
            State::Disarmed => false,
            State::Struck(lasts) => lasts == Lasts::On,
            State::Left(left, lasts) => {
                let strikes = left == 1;
                *state = if strikes { State::Struck(lasts) } else { State::Left(left - 1, lasts) };
                strikes
            }
        }
    }
}

pub(crate) fn engine_error(code: i32) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
}
