//! The engine, opened: the database and the store's own trees in it.

use bytes::Bytes;
use idem_core::Error;
use idem_core::locks::RwLock;
use sled::{Db, IVec, Tree};

use crate::{
    failure::{Trouble, guarded},
    names,
    pieces::{self, Kind, PIECE},
    segments::Segments,
};

/// One open database.
pub(crate) struct Database {
    pub(crate) db: Db,
    pub(crate) records: Tree,
    pub(crate) values: Tree,
    pub(crate) expiry: Tree,
    pub(crate) meta: Tree,
    pub(crate) pieces: Tree,
    pub(crate) sweep: Tree,
    pub(crate) begun: Tree,
    pub(crate) ended: Tree,
    pub(crate) segments: Segments,
    /// Held while a batch is applied, and by whoever reads several pieces: they must be of one commit.
    pub(crate) writing: RwLock<()>,
}

impl Database {
    /// Opens the trees, and creates those that are missing.
    pub(crate) fn new(db: Db, segments: Segments) -> sled::Result<Self> {
        Ok(Self {
            records: db.open_tree(names::RECORDS)?,
            values: db.open_tree(names::VALUES)?,
            expiry: db.open_tree(names::EXPIRY)?,
            meta: db.open_tree(names::META)?,
            pieces: db.open_tree(names::PIECES)?,
            sweep: db.open_tree(names::SWEEP)?,
            begun: db.open_tree(names::BEGUN)?,
            ended: db.open_tree(names::ENDED)?,
            db,
            segments,
            writing: RwLock::new(()),
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

    /// A tree of the user's.
    pub(crate) fn tree(&self, name: &[u8]) -> sled::Result<Tree> {
        self.db.open_tree(name)
    }

    /// What lies under a name in one of the places.
    pub(crate) fn get(&self, place: &Place, name: &[u8]) -> sled::Result<Option<IVec>> {
        match place {
            Place::Values => self.whole(Kind::Value, name),
            Place::User(tree) => self.tree(tree)?.get(name),
        }
    }

    /// What is under a name, in all its pieces.
    pub(crate) fn whole(&self, kind: Kind, name: &[u8]) -> sled::Result<Option<IVec>> {
        let first = self.first(kind, name)?;
        if first.as_ref().is_none_or(|first| first.len() != PIECE) {
            return Ok(first);
        }
        let _reading = self.writing.read();
        let Some(first) = self.first(kind, name)? else { return Ok(None) };
        Ok(Some(pieces::join(self.follow(kind, name, first)?)))
    }

    /// An entry of the tree of records with all its pieces; none if it is gone meanwhile.
    pub(crate) fn whole_record(
        &self,
        entry: sled::Result<(IVec, IVec)>,
    ) -> sled::Result<Option<(IVec, IVec)>> {
        let (name, first) = entry?;
        if first.len() != PIECE {
            return Ok(Some((name, first)));
        }
        let whole = self.whole(Kind::Record, &name)?;
        Ok(whole.map(|whole| (name, whole)))
    }

    /// The pieces that begin with the first, while no batch is applied.
    pub(crate) fn follow(&self, kind: Kind, name: &[u8], first: IVec) -> sled::Result<Vec<IVec>> {
        pieces::follow(kind, name, first, |name| self.pieces.get(name))
    }

    fn first(&self, kind: Kind, name: &[u8]) -> sled::Result<Option<IVec>> {
        match kind {
            Kind::Record => self.records.get(name),
            Kind::Value => self.values.get(name),
            Kind::Expiry => self.expiry.get(name),
        }
    }
}

/// Where an effect reads and writes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Place {
    /// The portable values of all spaces.
    Values,
    /// A tree of the user's.
    User(Bytes),
}
