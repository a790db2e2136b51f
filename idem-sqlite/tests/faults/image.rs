//! The files of a store that nobody has open, to be damaged, and what a store tells of them afterwards.

use std::{
    collections::BTreeMap,
    fs,
    ops::Range,
    path::{Path, PathBuf},
};

use idem_core::{Error, ErrorKind, Idem, Outcome, Request};
use idem_sqlite::{SqliteStore, SqliteTransaction, Synchronous};
use rusqlite::{Connection, config::DbConfig};
use tempfile::TempDir;

use crate::{PATIENCE, column, opened, request};

/// How many keys are in the database, and how many there are together with those in its log.
pub(crate) const IN_DATABASE: usize = 60;
pub(crate) const KEYS: usize = IN_DATABASE + 30;

#[derive(Clone)]
pub(crate) struct Image {
    pub(crate) database: Vec<u8>,
    pub(crate) log: Vec<u8>,
}

/// Every third request is retained for ever: the index of expiries does not hold its key.
fn numbered(number: usize) -> Request {
    let request = request(&format!("key-{number:03}")).fingerprint(&number).unwrap();
    if number % 3 == 2 { request.retain_forever() } else { request }
}

/// Some results are too long for a page.
fn result(number: usize) -> String {
    format!("result {number} ").repeat(if number.is_multiple_of(10) { 800 } else { 4 })
}

/// Runs the keys one by one: each is a commit.
async fn run(path: &Path, keys: Range<usize>) {
    let idem = opened(path, Synchronous::Normal).await;
    for number in keys {
        let effect = move |tx: &mut SqliteTransaction| {
            tx.execute("INSERT INTO orders VALUES (?1)", [i64::try_from(number)?])?;
            Ok(result(number))
        };
        let outcome = idem.execute(&numbered(number), effect).await.unwrap();
        assert_eq!(outcome, Outcome::Created(result(number)));
    }
    idem.close().await.unwrap();
}

impl Image {
    /// With some keys in the database and the others in its log, as a crash leaves it.
    pub(crate) async fn with_log() -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("store.db");
        let tables = "CREATE TABLE orders (number INTEGER)";
        Connection::open(&path).unwrap().execute_batch(tables).unwrap();
        run(&path, 0..IN_DATABASE).await;
        // The last one who closes copies the log, unless told not to.
        let last = Connection::open(&path).unwrap();
        last.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
        last.query_row("SELECT count(*) FROM orders", [], |_| Ok(())).unwrap();
        run(&path, IN_DATABASE..KEYS).await;
        drop(last);
        Self { database: fs::read(&path).unwrap(), log: fs::read(log_of(&path)).unwrap() }
    }

    /// The same with the log copied into the database.
    pub(crate) fn without_log(&self) -> Self {
        let folder = TempDir::new().unwrap();
        let path = self.write(&folder);
        assert_eq!(column::<i64>(&path, "SELECT count(*) FROM orders").len(), 1);
        assert!(!log_of(&path).exists());
        Self { database: fs::read(&path).unwrap(), log: Vec::new() }
    }

    pub(crate) fn write(&self, folder: &TempDir) -> PathBuf {
        let path = folder.path().join("store.db");
        fs::write(&path, &self.database).unwrap();
        if !self.log.is_empty() {
            fs::write(log_of(&path), &self.log).unwrap();
        }
        path
    }

    /// Whether the engine's own check finds nothing.
    pub(crate) fn passes_the_engines_check(&self) -> bool {
        let folder = TempDir::new().unwrap();
        let connection = Connection::open(self.write(&folder)).unwrap();
        let check = "PRAGMA integrity_check";
        connection
            .query_row(check, [], |row| row.get::<_, String>(0))
            .is_ok_and(|said| said == "ok")
    }
}

fn log_of(path: &Path) -> PathBuf {
    path.with_extension("db-wal")
}

/// What a key is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Told {
    /// Its own result.
    Right,
    /// That the file, the record or the result is damaged.
    Damaged,
    /// Any other error.
    Failed,
    /// It ran as a new one.
    Anew,
    /// A result that is not its own.
    Wrong,
    Conflict,
    InProgress,
}

/// What a store on damaged files tells.
#[derive(Debug)]
pub(crate) struct Answers {
    /// Each key, in order.
    pub(crate) keys: Vec<Told>,
    /// Which effects are there, before anything ran anew; none if that cannot be read.
    pub(crate) orders: Option<Vec<i64>>,
}

impl Answers {
    pub(crate) fn count(&self) -> BTreeMap<Told, usize> {
        let mut counts = BTreeMap::new();
        for told in &self.keys {
            *counts.entry(*told).or_default() += 1;
        }
        counts
    }
}

/// Opens a store on the files and asks everything of it; none if they are refused. It must neither hang nor panic.
pub(crate) async fn answers(image: &Image) -> Option<Answers> {
    let folder = TempDir::new().unwrap();
    let path = image.write(&folder);
    // On a task, so that a call that blocks does not keep the bound from being noticed.
    let asked = tokio::spawn(async move {
        let opening = SqliteStore::builder().synchronous(Synchronous::Normal).open(&path).await;
        let idem = match opening {
            Ok(store) => Idem::new(store),
            Err(error) => {
                assert_eq!(of_error(&error), Told::Damaged);
                return None;
            }
        };
        if let Err(error) = list(&idem).await {
            assert_eq!(of_error(&error), Told::Damaged);
        }
        let orders = orders(&path).ok();
        let mut keys = Vec::new();
        for number in 0..KEYS {
            keys.push(ask(&idem, number).await);
        }
        if let Err(error) = idem.purge(KEYS).await {
            assert_eq!(of_error(&error), Told::Damaged);
        }
        idem.close().await.unwrap();
        Some(Answers { keys, orders })
    });
    tokio::time::timeout(PATIENCE, asked).await.expect("it hangs").expect("it holds")
}

async fn ask(idem: &Idem<SqliteStore>, number: usize) -> Told {
    match idem.execute(&numbered(number), |_| Ok("anew".to_string())).await {
        Ok(Outcome::Created(_)) => Told::Anew,
        Ok(Outcome::Replayed(replayed)) if replayed == result(number) => Told::Right,
        Ok(Outcome::Replayed(_)) => Told::Wrong,
        Ok(Outcome::Conflict) => Told::Conflict,
        Ok(Outcome::InProgress { .. }) => Told::InProgress,
        Err(error) => of_error(&error),
    }
}

fn of_error(error: &Error) -> Told {
    match error.kind() {
        ErrorKind::Damaged { .. }
        | ErrorKind::ResultUndecodable { .. }
        | ErrorKind::CannotOpen { .. }
        | ErrorKind::SchemaNewer { .. } => Told::Damaged,
        _ => {
            println!("failed: {error:?}");
            Told::Failed
        }
    }
}

/// Reads all pages of a listing.
async fn list(idem: &Idem<SqliteStore>) -> Result<(), Error> {
    let mut after = None;
    for _ in 0..=KEYS {
        after = idem.list(after.as_ref(), 7).await?.next;
        if after.is_none() {
            return Ok(());
        }
    }
    panic!("the listing goes round and round")
}

fn orders(path: &Path) -> rusqlite::Result<Vec<i64>> {
    let connection = Connection::open(path)?;
    let mut statement = connection.prepare("SELECT number FROM orders ORDER BY number")?;
    statement.query_map([], |row| row.get(0))?.collect()
}
