//! What an effect writes through.

use bytes::Bytes;
use idem_core::{Error, Overlay, Transaction};

use crate::store::InSpace;

/// The store's transaction, as an effect sees it: its own writes over what is committed.
///
/// Only the store can make one, so that an effect cannot put another in its place.
#[derive(Debug)]
pub struct MemoryTransaction(pub(crate) Overlay<InSpace>);

impl Transaction for MemoryTransaction {
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
