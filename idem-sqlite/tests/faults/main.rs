//! Crashes, faults and damage: what is left, and what callers are told.
//!
//! Some of these tests run themselves as child processes. The environment variable `IDEM_ROUNDS` says how many
//! rounds the random ones take, `IDEM_SEED` with which seed.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]
#![cfg(unix)]

mod descriptors;
mod files;
mod fresh;
mod image;
mod killed;
mod meddled;
mod rows;
#[cfg(target_os = "linux")]
mod stopped;
mod swapped;
mod unwritable;

use std::{
    env,
    path::{Path, PathBuf},
    time::Duration,
};

use idem_conformance::chance::seed;
use idem_core::{Idem, Key, Request};
use idem_sqlite::{SqliteStore, Synchronous};
use rusqlite::Connection;

const PATH: &str = "IDEM_SQLITE_TEST_PATH";
const ORDERS: &str = "IDEM_SQLITE_TEST_ORDERS";

/// What a child is told of its path, and what else it is to know.
fn variables(path: &Path, orders: &str) -> [(&'static str, String); 2] {
    [(PATH, path.to_str().unwrap().to_string()), (ORDERS, orders.to_string())]
}

/// The path and the orders of a child; none in a process that is none.
fn orders() -> Option<(PathBuf, String)> {
    Some((env::var_os(PATH)?.into(), env::var(ORDERS).ok()?))
}

/// Random numbers that can be had again.
fn chance() -> fastrand::Rng {
    fastrand::Rng::with_seed(seed())
}

/// A bound for what must come, on a loaded machine too.
const PATIENCE: Duration = Duration::from_secs(60);

fn request(name: &str) -> Request {
    Request::new(Key::new("north", "order", name).unwrap())
}

async fn opened(path: &Path, synchronous: Synchronous) -> Idem<SqliteStore> {
    let builder = SqliteStore::builder().synchronous(synchronous);
    Idem::new(builder.open(path).await.unwrap())
}

/// The first column of a query, read by a connection of its own.
fn column<T: rusqlite::types::FromSql>(path: &Path, sql: &str) -> Vec<T> {
    let connection = Connection::open(path).unwrap();
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}
