//! What the tests share.

// Not every test file uses all of it.
#![allow(dead_code)]

use std::path::Path;

use idem_conformance::chance::seed;
use idem_core::{Certainty, EffectError, Error, ErrorKind, Idem, Key, Request, Space};
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

/// Numbers by the seed in the environment variable `IDEM_SEED`, or else by one of their own, which is printed.
pub(crate) fn random() -> fastrand::Rng {
    fastrand::Rng::with_seed(seed())
}

pub(crate) fn error(opened: Result<impl Sized, Error>) -> Error {
    let Err(error) = opened else { panic!("this must not open") };
    assert_eq!(error.certainty(), Certainty::NothingDone);
    error
}

pub(crate) fn problem(opened: Result<impl Sized, Error>) -> String {
    let error = error(opened);
    assert!(matches!(error.kind(), ErrorKind::CannotOpen { .. }), "{error:?}");
    error.to_string()
}

/// Whether an error says that what is stored cannot be read, with nothing done.
pub(crate) fn is_damage(error: &Error) -> bool {
    let kinds = matches!(
        error.kind(),
        ErrorKind::CannotOpen { .. } | ErrorKind::Damaged { .. } | ErrorKind::Store
    );
    kinds && error.certainty() == Certainty::NothingDone
}
