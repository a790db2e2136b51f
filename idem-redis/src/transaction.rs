//! What an effect writes through.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use idem_core::locks::Mutex;
use idem_core::{Error, ErrorKind, Overlay, Transaction, Values};

/// Values that were fetched, by name; none for absent.
pub(crate) type FetchedValues = BTreeMap<Bytes, Option<Bytes>>;

/// The store's transaction, as an effect sees it: its own writes over what was fetched before it ran.
///
/// The first time that an effect asks for a value, [`get`](Transaction::get) fails with
/// [`ErrorKind::NotYetRead`]: the store fetches the value and runs the effect again, whatever it made of the
/// error. So pass errors on (`?`), and mind that an effect which reads runs twice at least; one that unwraps the error
/// panics for that, which the store catches where panics unwind.
#[derive(Debug)]
pub struct RedisTransaction(pub(crate) Overlay<Fetched>);

impl Transaction for RedisTransaction {
    fn get(&mut self, name: &[u8]) -> Result<Option<Bytes>, Error> {
        self.0.get(name)
    }

    fn put(&mut self, name: &[u8], value: &[u8]) -> Result<(), Error> {
        self.0.put(name, value)
    }

    fn delete(&mut self, name: &[u8]) -> Result<(), Error> {
        self.0.delete(name)
    }
}

/// What was fetched for a run, and what the run asked for besides.
pub(crate) struct Fetched {
    values: Arc<FetchedValues>,
    missed: Mutex<BTreeSet<Bytes>>,
}

impl Fetched {
    pub(crate) fn new(values: Arc<FetchedValues>) -> Self {
        Self { values, missed: Mutex::default() }
    }

    /// What the run asked for and did not get.
    pub(crate) fn missed(&self) -> BTreeSet<Bytes> {
        self.missed.lock().clone()
    }
}

impl Values for Fetched {
    fn value(&self, name: &[u8]) -> Result<Option<Bytes>, Error> {
        if let Some(value) = self.values.get(name) {
            return Ok(value.clone());
        }
        self.missed.lock().insert(Bytes::copy_from_slice(name));
        Err(Error::nothing_done(ErrorKind::NotYetRead))
    }
}
