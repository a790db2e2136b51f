//! What an effect writes through.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use idem_core::{Error, ErrorKind, Overlay, Space, Transaction, Values};

use crate::{commit::Item, database::Place, engine::Engine, names::OWN, segments::Segments};

/// The tree that a database of the engine has without a name of the user's.
const DEFAULT_TREE: &[u8] = b"__sled__default";

/// The store's transaction, as an effect sees it: its own writes over what is committed.
///
/// By its trait it reads and writes the portable values of the key's space, whose names are at most 4 KiB long with the
/// tenant's ([`ErrorKind::TooLarge`]); [`SledTransaction::tree`] gives
/// the user's own trees. All of it is committed together with the receipt, if nothing that was read has changed.
///
/// Only the store can make one, so that an effect cannot put another in its place.
#[derive(Debug)]
pub struct SledTransaction {
    engine: Handle,
    portable: Overlay<Portable>,
    trees: BTreeMap<Bytes, Overlay<InTree>>,
}

impl SledTransaction {
    pub(crate) fn new(engine: &Arc<Engine>, space: Space) -> Self {
        let engine = Handle(Arc::clone(engine));
        let portable = Overlay::new(Portable { engine: engine.clone(), space });
        Self { engine, portable, trees: BTreeMap::new() }
    }

    /// A tree of yours in the same database, created empty if there is none of that name: it then stays, even if
    /// the effect fails.
    ///
    /// It is yours and every tenant's: unlike the portable values it does not tell tenants apart.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSetting`] for a name that is empty, that begins with `idem.`, which is how the
    /// store's own trees are called, or that is the engine's default tree's; pass it on with `?`.
    pub fn tree(&mut self, name: impl AsRef<[u8]>) -> Result<SledTree<'_>, Error> {
        let name = name.as_ref();
        check_name(name)?;
        let engine = &self.engine;
        let tree = self.trees.entry(Bytes::copy_from_slice(name)).or_insert_with_key(|name| {
            Overlay::new(InTree { engine: engine.clone(), place: Place::User(name.clone()) })
        });
        Ok(SledTree(tree))
    }

    pub(crate) fn reads(&self) -> Vec<Item> {
        let space = &self.portable.committed().space;
        let portable = self.portable.reads().map(|item| portable(space, item));
        let trees = self.trees.values();
        let own = trees.flat_map(|tree| tree.reads().map(|item| tree.committed().item(item)));
        portable.chain(own).collect()
    }

    pub(crate) fn writes(&self) -> Vec<Item> {
        let space = &self.portable.committed().space;
        let portable = self.portable.writes().map(|item| portable(space, item));
        let trees = self.trees.values();
        let own = trees.flat_map(|tree| tree.writes().map(|item| tree.committed().item(item)));
        portable.chain(own).collect()
    }
}

fn check_name(name: &[u8]) -> Result<(), Error> {
    let problem = match name {
        b"" => "it is empty: name it",
        DEFAULT_TREE => "it is the engine's default tree: take one with a name of yours",
        name if name.starts_with(OWN) => "it begins with `idem.` as the store's own do: rename it",
        _ => return Ok(()),
    };
    let kind = ErrorKind::InvalidSetting { field: "tree", problem: problem.to_string() };
    Err(Error::nothing_done(kind).of_transaction())
}

fn portable(space: &Space, (name, value): (&Bytes, Option<&Bytes>)) -> Item {
    (Place::Values, space.to_bytes(name).into(), value.cloned())
}

impl Transaction for SledTransaction {
    fn get(&mut self, name: &[u8]) -> Result<Option<Bytes>, Error> {
        self.portable.get(name)
    }

    fn put(&mut self, name: &[u8], value: &[u8]) -> Result<(), Error> {
        let space = &self.portable.committed().space;
        self.engine.segments()?.check_name(&space.to_bytes(name))?;
        self.portable.put(name, value)
    }

    fn delete(&mut self, name: &[u8]) -> Result<(), Error> {
        self.portable.delete(name)
    }
}

/// A tree of the user's, as an effect sees it. Made by [`SledTransaction::tree`].
///
/// Keys and values are bytes, empty ones too. What is read is compared at the commit.
#[derive(Debug)]
pub struct SledTree<'t>(&'t mut Overlay<InTree>);

impl SledTree<'_> {
    /// The value under `key`: what this effect wrote last, or else what is committed.
    ///
    /// # Errors
    /// Whatever keeps the store from reading; pass it on with `?`.
    pub fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>, Error> {
        self.0.get(key.as_ref())
    }

    /// Sets the value under `key`.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] if the key and the value are more than 32 KiB together, because the engine would not
    /// use their space again: put what is larger as a portable value, or under several keys. A folder that an
    /// earlier version made takes them, and grows. Whatever keeps the store from writing, too; pass it on with `?`.
    pub fn insert(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.0.committed().engine.segments()?.check_entry(key, value)?;
        self.0.put(key, value)
    }

    /// Removes the value under `key`, if there is one.
    ///
    /// # Errors
    /// Whatever keeps the store from writing; pass it on with `?`.
    pub fn remove(&mut self, key: impl AsRef<[u8]>) -> Result<(), Error> {
        self.0.delete(key.as_ref())
    }
}

/// The engine, which holds nothing worth printing.
#[derive(Clone)]
struct Handle(Arc<Engine>);

impl Handle {
    fn segments(&self) -> Result<Segments, Error> {
        self.0.with(|database| Ok(database.segments))
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

/// The committed portable values of one space.
struct Portable {
    engine: Handle,
    space: Space,
}

impl Values for Portable {
    fn value(&self, name: &[u8]) -> Result<Option<Bytes>, Error> {
        self.engine.0.value(&Place::Values, &self.space.to_bytes(name))
    }
}

/// The committed values of one of the user's trees.
struct InTree {
    engine: Handle,
    place: Place,
}

impl InTree {
    fn item(&self, (name, value): (&Bytes, Option<&Bytes>)) -> Item {
        (self.place.clone(), name.clone(), value.cloned())
    }
}

impl Values for InTree {
    fn value(&self, name: &[u8]) -> Result<Option<Bytes>, Error> {
        self.engine.0.value(&self.place, name)
    }
}
