//! Random programs against the rules: what no list of cases thinks of.
//!
//! The rules are written a second time here, as plain as their table and apart from what core decides by. Two tests
//! hold a store to them, each a line for the author of a backend:
//!
//! ```no_run
//! # use idem_conformance::{Fixture, model::{self, Options, Wrong}};
//! # fn tests<Place: Fixture>() -> Result<(), Wrong> where <Place::Store as idem_core::Store>::Transaction: Sized {
//! model::sequential::<Place>(Options::default())?;
//! model::histories::<Place>(Options::default())?;
//! # Ok(()) }
//! ```
//!
//! Both print a seed with what goes wrong, and take it from the environment variable `IDEM_SEED`; `IDEM_ROUNDS`
//! says how many programs or histories. A seed makes the same programs again; how the calls of a history interleave is the
//! machine's to say.

mod caller;
mod calls;
mod choices;
mod clients;
mod concurrent;
mod history;
mod names;
mod order;
mod rules;
mod sequential;

use std::{error::Error, fmt};

use idem_core::Store;

use crate::{
    Fixture,
    chance::{rounds, seed},
    placed::make_dynamic,
};

/// How much is tried, and on what.
#[derive(Clone, Copy, Debug)]
#[must_use = "options do nothing alone"]
pub struct Options {
    reopens: bool,
    programs: usize,
    histories: usize,
    is_fixed: bool,
}

impl Default for Options {
    /// For a store that keeps nothing when it is closed.
    fn default() -> Self {
        Self { reopens: false, programs: 200, histories: 2_000, is_fixed: false }
    }
}

impl Options {
    /// The store finds again what it kept when it was closed.
    pub fn reopens(mut self) -> Self {
        self.reopens = true;
        self
    }

    /// So many programs of one caller after the other, each in a place of its own; 200 unless told.
    pub fn programs(mut self, count: usize) -> Self {
        self.programs = count;
        self
    }

    /// So many histories; 2,000 unless told.
    pub fn histories(mut self, count: usize) -> Self {
        self.histories = count;
        self
    }

    /// So many as they say, whatever `IDEM_ROUNDS` says: for tests of this module, which must find a fault.
    #[doc(hidden)]
    pub fn fixed(mut self) -> Self {
        self.is_fixed = true;
        self
    }

    /// So many, or as the environment says.
    fn rounds(self, count: usize) -> usize {
        if self.is_fixed { count } else { rounds(count) }
    }
}

/// What went wrong, for people to read: the program or the history, what was expected, and what came.
pub struct Wrong(String);

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// What a test shows that returns it.
impl fmt::Debug for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for Wrong {}

/// Random programs of all operations, one after the other, with a clock that jumps to the edges of what lives, forwards
/// and backwards, through two handles, closed and opened again.
///
/// After each step the answer, the values of effects and the listing must be those of the rules, and each token larger
/// than the key's last.
///
/// # Errors
/// The shortest program found that goes wrong.
///
/// # Panics
/// If an environment variable is no number.
pub fn sequential<F: Fixture>(options: Options) -> Result<(), Wrong>
where
    <F::Store as Store>::Transaction: Sized,
{
    let (programs, seed) = (options.rounds(options.programs), seed());
    let steps =
        sequential::run(make_dynamic::<F>(), options.reopens, programs, seed).map_err(Wrong)?;
    println!("{programs} programs of {steps} steps in all are right (IDEM_SEED={seed})");
    Ok(())
}

/// Short random histories of three to five clients on a few keys, with calls that fail, answers that are lost, clients
/// that go away and a clock that one of them moves on.
///
/// Of each history there must be an order that the rules allow. What that means where idem promises less than one
/// instant to a call is said in the module `order`, in the source.
///
/// The fixture is asked for three places; all histories of one are on the same data, under keys of their own.
///
/// # Errors
/// A history that has no such order.
///
/// # Panics
/// If an environment variable is no number.
pub fn histories<F: Fixture>(options: Options) -> Result<(), Wrong>
where
    <F::Store as Store>::Transaction: Sized,
{
    let (histories, seed) = (options.rounds(options.histories), seed());
    concurrent::run(make_dynamic::<F>(), histories, seed).map_err(Wrong)?;
    println!("{histories} histories are right (IDEM_SEED={seed})");
    Ok(())
}
