//! One side of a pair.

use std::{path::Path, sync::Arc};

use idem_core::BoxError;

use crate::{Load, Sample, folder};

/// One implementation on data of its own.
pub trait Side {
    /// Makes all calls, from as many callers at once as the load says.
    ///
    /// # Errors
    /// A call that failed, or an answer that was wrong.
    fn run(&mut self, load: &Arc<Load>) -> Result<Sample, BoxError>;

    /// What is stored after the calls.
    ///
    /// # Errors
    /// Whatever keeps it from counting.
    fn stored(&mut self, load: &Load) -> Result<Stored, BoxError>;
}

/// Opens a side on the data in a folder of its own.
pub type Open = fn(&Path) -> Result<Box<dyn Side>, BoxError>;

/// How much is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// What effects wrote.
    pub orders: usize,
    /// Completed keys.
    pub receipts: usize,
}

/// Makes the calls of a load on fresh data, and checks what came of them.
///
/// # Errors
/// A call that failed, an answer or data that are wrong, or a folder that cannot be made.
pub fn measure(open: Open, load: Load) -> Result<Sample, BoxError> {
    let folder = folder::fresh()?;
    let mut side = open(folder.path())?;
    let load = Arc::new(load);
    let sample = side.run(&load)?;
    let (answers, stored) = (sample.answers, side.stored(&load)?);
    if answers != load.expected_answers() {
        let expected = load.expected_answers();
        return Err(format!("the callers got {answers:?} instead of {expected:?}").into());
    }
    if stored != load.expected_stored() {
        let expected = load.expected_stored();
        return Err(format!("there is {stored:?} instead of {expected:?}").into());
    }
    Ok(sample)
}
