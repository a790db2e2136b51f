//! Idem on a SQLite file. The effect writes a row into a table of its own, in SQL.

use std::path::Path;

use idem_core::{BoxError, EffectError, Idem};
use idem_sqlite::{SqliteStore, SqliteTransaction, Synchronous};
use tokio::runtime::Runtime;

use crate::{Placed, Side, baseline::sqlite, idem_side::IdemSide};

pub(crate) fn open_full(folder: &Path) -> Result<Box<dyn Side>, BoxError> {
    open(folder, Synchronous::Full)
}

pub(crate) fn open_normal(folder: &Path) -> Result<Box<dyn Side>, BoxError> {
    open(folder, Synchronous::Normal)
}

fn open(folder: &Path, synchronous: Synchronous) -> Result<Box<dyn Side>, BoxError> {
    let file = folder.join(sqlite::FILE);
    sqlite::create(&file)?;
    let runtime = Runtime::new()?;
    let store = SqliteStore::builder().synchronous(synchronous).open(&file);
    Ok(Box::new(IdemSide {
        idem: Idem::new(runtime.block_on(store)?),
        runtime,
        place,
        count: Box::new(move |_, _, _| sqlite::count(&file)),
        every: 1,
    }))
}

fn place(tx: &mut SqliteTransaction, number: u64) -> Result<Placed, EffectError> {
    tx.prepare_cached(sqlite::INSERT_ORDER)?.execute([number.cast_signed()])?;
    Ok(Placed { id: tx.last_insert_rowid(), number })
}
