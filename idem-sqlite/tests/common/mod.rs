//! What the tests of files share.

use std::path::Path;

use idem_core::{EffectError, Error, Idem, Key, Request};
use idem_sqlite::{SqliteStore, SqliteTransaction};
use rusqlite::Connection;

pub(crate) fn request(name: &str) -> Request {
    Request::new(Key::new("north", "order", name).unwrap())
}

pub(crate) async fn opened(path: &Path) -> Result<Idem<SqliteStore>, Error> {
    Ok(Idem::new(SqliteStore::open(path).await?))
}

pub(crate) fn nothing(_: &mut SqliteTransaction) -> Result<(), EffectError> {
    Ok(())
}

pub(crate) fn query<T: rusqlite::types::FromSql>(path: &Path, sql: &str) -> T {
    let connection = Connection::open(path).unwrap();
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}
