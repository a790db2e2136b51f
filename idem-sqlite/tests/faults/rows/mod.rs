//! Rows whose values were overwritten.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use idem_core::{Idem, Outcome};
use idem_sqlite::{SqliteStore, Synchronous};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::{opened, request};

mod records;
mod tables;

/// Idem's tables without what keeps values of the wrong type out of them; stored in the same way.
const LOOSE: [(&str, &str); 4] = [
    (
        "idem_records",
        "CREATE TABLE idem_records (kind, tenant, operation, key, state, created_at, expires_at, lease_end,
         token, took_over, attempt, fingerprint, result, PRIMARY KEY (kind, tenant, operation, key)) WITHOUT ROWID",
    ),
    (
        "idem_values",
        "CREATE TABLE idem_values (kind, tenant, name, value, PRIMARY KEY (kind, tenant, name)) WITHOUT ROWID",
    ),
    ("idem_token", "CREATE TABLE idem_token (last)"),
    ("idem_version", "CREATE TABLE idem_version (version)"),
];

/// Runs statements on idem's tables whatever the types of their columns: damage, not somebody's mistake.
fn damage(path: &Path, sql: &str) {
    let connection = Connection::open(path).unwrap();
    let declare = |table: &str, text: &str| {
        let update = "UPDATE sqlite_schema SET sql = ?2 WHERE name = ?1";
        connection.execute_batch("PRAGMA writable_schema = ON").unwrap();
        assert_eq!(connection.execute(update, (table, text)).unwrap(), 1);
        connection.execute_batch("PRAGMA writable_schema = RESET").unwrap();
    };
    let texts = LOOSE.map(|(table, loose)| {
        let text = "SELECT sql FROM sqlite_schema WHERE name = ?1";
        let text: String = connection.query_row(text, [table], |row| row.get(0)).unwrap();
        declare(table, loose);
        (table, text)
    });
    connection.execute_batch(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    for (table, text) in texts {
        declare(table, &text);
    }
}

async fn store(folder: &TempDir) -> (PathBuf, Idem<SqliteStore>) {
    let path = folder.path().join("store.db");
    let idem = opened(&path, Synchronous::Normal).await;
    (path, idem)
}

async fn complete(idem: &Idem<SqliteStore>, name: &str) {
    let request = request(name).fingerprint("p").unwrap();
    assert_eq!(idem.execute(&request, |_| Ok(7)).await.unwrap(), Outcome::Created(7));
}

async fn hold(idem: &Idem<SqliteStore>, name: &str) {
    let request = request(name).fingerprint("p").unwrap();
    let claim = idem.claim::<i64>(&request, Duration::from_secs(3600)).await.unwrap();
    claim.lease().expect("a new key is free").abandon();
}
