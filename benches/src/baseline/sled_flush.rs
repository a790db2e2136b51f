//! By hand on sled: a thread per caller, and a flush for each operation.
//!
//! A call looks the key up, and compares the fingerprint. If there is none it looks again in a transaction, which
//! inserts the order and the receipt with the result as JSON; then it flushes the engine and syncs its log. A
//! mark is the same without an order. There is no expiry, and a replay does not wait until its receipt is
//! durable.

use std::{path::Path, slice, sync::Arc};

use idem_core::{BoxError, Outcome, consumer::Marked};

use super::sled::{Before, Database, Work, answer, marked};
use crate::{
    Load, Order, Placed, Sample, Side,
    side::Stored,
    threads::{self, Caller},
};

pub(crate) fn open(folder: &Path) -> Result<Box<dyn Side>, BoxError> {
    Ok(Box::new(Sled(Database::open(folder)?)))
}

#[derive(Clone)]
struct Sled(Database);

impl Side for Sled {
    fn run(&mut self, load: &Arc<Load>) -> Result<Sample, BoxError> {
        threads::run(load, 1, || Ok(self.clone()))
    }

    fn stored(&mut self, _: &Load) -> Result<Stored, BoxError> {
        Ok(self.0.count())
    }
}

impl Sled {
    fn work(&self, work: &Work) -> Result<Before, BoxError> {
        if let Some(before) = self.0.look(&work.key)? {
            return Ok(Some(before));
        }
        Ok(self.0.commit(slice::from_ref(work))?.into_iter().flatten().next())
    }
}

impl Caller for Sled {
    fn place(&mut self, order: &Order) -> Result<Outcome<Placed>, BoxError> {
        answer(order, self.work(&Work::place(order)?)?)
    }

    fn mark(&mut self, order: &Order) -> Result<Marked, BoxError> {
        Ok(marked(self.work(&Work::mark(order))?))
    }
}
