//! The engine, opened: the database and the store's own trees in it.

use idem_core::Error;
use sled::{Db, Tree};

use crate::{
    failure::{Trouble, guarded},
    names,
};

/// One open database.
pub(crate) struct Database {
    pub(crate) db: Db,
    pub(crate) records: Tree,
    pub(crate) values: Tree,
    pub(crate) expiry: Tree,
    pub(crate) meta: Tree,
    pub(crate) begun: Tree,
    pub(crate) ended: Tree,
}

impl Database {
    /// Opens the trees, and creates those that are missing.
    pub(crate) fn new(db: Db) -> sled::Result<Self> {
        Ok(Self {
            records: db.open_tree(names::RECORDS)?,
            values: db.open_tree(names::VALUES)?,
            expiry: db.open_tree(names::EXPIRY)?,
            meta: db.open_tree(names::META)?,
            begun: db.open_tree(names::BEGUN)?,
            ended: db.open_tree(names::ENDED)?,
            db,
        })
    }

    /// A number that the store keeps of itself.
    pub(crate) fn number(&self, name: &[u8]) -> Result<Option<u64>, Error> {
        let bytes = guarded(|| self.meta.get(name)).map_err(Trouble::nothing_done)?;
        bytes.map(|bytes| names::read_number(&bytes)).transpose()
    }

    /// Whether the last batch was written in part: the engine writes one tree after the other, and may fail between.
    pub(crate) fn is_torn(&self) -> Result<bool, Error> {
        let number =
            |tree: &Tree| guarded(|| tree.get(names::BATCH)).map_err(Trouble::nothing_done);
        Ok(number(&self.begun)? != number(&self.ended)?)
    }

    /// Takes what there is for whole.
    pub(crate) fn accept(&self) -> Result<(), Trouble> {
        match guarded(|| self.begun.get(names::BATCH))? {
            Some(begun) => guarded(|| self.ended.insert(names::BATCH, begun)).map(drop),
            None => guarded(|| self.ended.remove(names::BATCH)).map(drop),
        }
    }

    /// The tree that values of this kind are in.
    pub(crate) fn tree(&self, place: &Place) -> sled::Result<Tree> {
        match place {
            Place::Values => Ok(self.values.clone()),
            Place::User(name) => self.db.open_tree(name),
        }
    }
}

/// Where an effect reads and writes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Place {
    /// The portable values of all spaces.
    Values,
    /// A tree of the user's.
    User(bytes::Bytes),
}
