//! What the tests share.

// Not every test file uses all of it.
#![allow(dead_code)]

use std::path::Path;

use idem_core::{EffectError, Error, Idem, Key, Request, Space};
use idem_sled::{SledStore, SledTransaction};

pub(crate) fn request(name: impl std::fmt::Display) -> Request {
    Request::new(Key::new("north", "order", name).unwrap())
}

pub(crate) fn space() -> Space {
    Space::tenant("north").unwrap()
}

pub(crate) async fn opened(path: &Path) -> Result<Idem<SledStore>, Error> {
    Ok(Idem::new(SledStore::open(path).await?))
}

pub(crate) fn nothing(_: &mut SledTransaction) -> Result<(), EffectError> {
    Ok(())
}
