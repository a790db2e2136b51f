//! What an effect writes through.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use idem_core::{Error, ErrorKind, Overlay, Token, Transaction, Values};

use crate::{engine::Engine, faults::Fault};

/// The committed values of one space.
pub(crate) struct InSpace {
    engine: Arc<Engine>,
    space: Vec<u8>,
}

impl Values for InSpace {
    fn value(&self, name: &[u8]) -> Result<Option<Bytes>, Error> {
        self.engine.check_open()?;
        Ok(self.engine.disk().value(&self.space, name))
    }
}

/// The effect's own writes over what is committed; and, as engines have it, a way to end the transaction.
pub(crate) struct Tx {
    pub(crate) overlay: Overlay<InSpace>,
    pub(crate) is_ended: bool,
    /// All names that were deleted at some time.
    pub(crate) deleted: BTreeSet<Bytes>,
    /// The token of a claim, where it is taken before the look.
    pub(crate) token: Option<Token>,
    /// What was there before the writes that others can see.
    undo: Vec<(Bytes, Option<Bytes>)>,
}

impl Tx {
    pub(crate) fn new(engine: Arc<Engine>, space: Vec<u8>) -> Self {
        let overlay = Overlay::new(InSpace { engine, space });
        let (deleted, undo) = (BTreeSet::new(), Vec::new());
        Self { overlay, is_ended: false, deleted, token: None, undo }
    }

    fn engine(&self) -> &Engine {
        &self.overlay.committed().engine
    }

    pub(crate) fn space(&self) -> &[u8] {
        &self.overlay.committed().space
    }

    /// The writes, to keep.
    pub(crate) fn written(&self) -> Vec<(Bytes, Option<Bytes>)> {
        self.overlay.writes().map(|(name, value)| (name.clone(), value.cloned())).collect()
    }

    /// What an effect must not do: `COMMIT` by the engine's own means.
    pub(crate) fn commit(&mut self) {
        self.is_ended = true;
        if self.engine().has(Fault::EffectCommits) {
            self.engine().disk().apply(self.space(), self.overlay.writes());
        }
    }

    /// Takes back what others can see.
    pub(crate) fn hide(&mut self) {
        for (name, value) in std::mem::take(&mut self.undo).into_iter().rev() {
            self.engine().disk().set_value(self.space(), &name, value.as_ref());
        }
    }

    /// Writes in place, as a store does that has no workspace for an effect.
    fn write_through(&mut self, name: &[u8], value: Option<&[u8]>) {
        if self.engine().has(Fault::WritesSeenBeforeCommit) {
            let name = Bytes::copy_from_slice(name);
            let before = self.engine().disk().value(self.space(), &name);
            let value = value.map(Bytes::copy_from_slice);
            self.engine().disk().set_value(self.space(), &name, value.as_ref());
            self.undo.push((name, before));
        }
    }
}

impl Transaction for Tx {
    fn get(&mut self, name: &[u8]) -> Result<Option<Bytes>, Error> {
        let own_is_unseen = self.engine().has(Fault::OwnWritesUnseen)
            || self.engine().has(Fault::OwnDeletesUnseen) && self.deleted.contains(name);
        if own_is_unseen {
            return self.overlay.committed().value(name);
        }
        self.overlay.get(name)
    }

    fn put(&mut self, name: &[u8], value: &[u8]) -> Result<(), Error> {
        if value.is_empty() && self.engine().has(Fault::EmptyValueIsAbsent) {
            return self.delete(name);
        }
        self.write_through(name, Some(value));
        self.overlay.put(name, value)
    }

    fn delete(&mut self, name: &[u8]) -> Result<(), Error> {
        if self.engine().has(Fault::DeleteIgnored) {
            return Ok(());
        }
        if self.engine().has(Fault::DeleteOfNothingFails) && self.get(name)?.is_none() {
            return Err(Error::nothing_done(ErrorKind::Store).of_transaction());
        }
        self.deleted.insert(Bytes::copy_from_slice(name));
        self.write_through(name, None);
        self.overlay.delete(name)
    }
}
