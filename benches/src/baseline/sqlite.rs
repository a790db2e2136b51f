//! By hand on SQLite: a thread per caller with a connection of its own to one file, in tables of idem's
//! schema.
//!
//! Write-ahead log, the same `synchronous` as idem's side, a busy timeout of 5 seconds, cached statements,
//! everything else as the engine has it. A call that may be a replay looks the key up by a plain SELECT
//! first. Otherwise, and in the workload of distinct keys always, so that no look is wasted there (no real
//! caller knows that beforehand): BEGIN IMMEDIATE, SELECT the record; if it is absent or expired, INSERT the
//! order and the receipt with the result as JSON; COMMIT. What is still busy after the timeout is tried
//! again from the start, and its wait counts. A mark is one INSERT OR IGNORE into a table of marks.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use idem_core::{BoxError, Outcome, consumer::Marked};
use rusqlite::{Connection, ErrorCode, OptionalExtension, params, types::ValueRef};
use uuid::Uuid;

use crate::{
    Load, Order, Placed, Sample, Side, Workload, shop,
    side::Stored,
    threads::{self, Caller},
};

pub(crate) const FILE: &str = "orders.db";
pub(crate) const INSERT_ORDER: &str = "INSERT INTO orders (number) VALUES (?1)";

const INSERT_MARK: &str = "INSERT OR IGNORE INTO marks (consumer, event) VALUES (?1, ?2)";
const CREATE_TABLES: &str = "CREATE TABLE orders (id INTEGER PRIMARY KEY, number INTEGER NOT NULL);
    CREATE TABLE marks (consumer TEXT NOT NULL, event TEXT NOT NULL, PRIMARY KEY (consumer, event))
        WITHOUT ROWID";

const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
const DAY: i64 = 24 * 60 * 60 * 1000;

const SELECT: &str = "SELECT expires_at, fingerprint, result FROM idem_records
    WHERE kind = 'request' AND tenant = ?1 AND operation = ?2 AND key = ?3";
const UPSERT: &str = "INSERT OR REPLACE INTO idem_records
    (kind, tenant, operation, key, state, created_at, expires_at, attempt, fingerprint, result)
    VALUES ('request', ?1, ?2, ?3, 'completed', ?4, ?5, ?6, ?7, ?8)";

/// Makes the file with the tables of both sides.
pub(crate) fn create(file: &Path) -> Result<(), BoxError> {
    let mut connection = Connection::open(file)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    idem_sqlite::create_tables(&mut connection)?;
    connection.execute_batch(CREATE_TABLES)?;
    Ok(())
}

/// Counts the rows of both sides.
pub(crate) fn count(file: &Path) -> Result<Stored, BoxError> {
    let connection = Connection::open(file)?;
    let count = |table| {
        let count = format!("SELECT count(*) FROM {table}");
        connection.query_row(&count, [], |row| row.get::<_, i64>(0))
    };
    let (orders, receipts) = (count("orders")?, count("idem_records")? + count("marks")?);
    Ok(Stored { orders: usize::try_from(orders)?, receipts: usize::try_from(receipts)? })
}

pub(crate) fn open_full(folder: &Path) -> Result<Box<dyn Side>, BoxError> {
    open(folder, "FULL")
}

pub(crate) fn open_normal(folder: &Path) -> Result<Box<dyn Side>, BoxError> {
    open(folder, "NORMAL")
}

fn open(folder: &Path, synchronous: &'static str) -> Result<Box<dyn Side>, BoxError> {
    let file = folder.join(FILE);
    create(&file)?;
    Ok(Box::new(Sqlite { file, synchronous }))
}

struct Sqlite {
    file: PathBuf,
    synchronous: &'static str,
}

impl Side for Sqlite {
    fn run(&mut self, load: &Arc<Load>) -> Result<Sample, BoxError> {
        let looks_first = load.workload() != Workload::Create;
        threads::run(load, 1, || Session::open(self, looks_first))
    }

    fn stored(&mut self, _: &Load) -> Result<Stored, BoxError> {
        count(&self.file)
    }
}

/// One caller.
struct Session {
    connection: Connection,
    looks_first: bool,
}

/// A receipt as it is stored.
struct Receipt {
    expires_at: Option<i64>,
    fingerprint: Option<Vec<u8>>,
    result: Vec<u8>,
}

impl Session {
    fn open(side: &Sqlite, looks_first: bool) -> Result<Self, BoxError> {
        let connection = Connection::open(&side.file)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "synchronous", side.synchronous)?;
        for sql in
            ["BEGIN IMMEDIATE", "COMMIT", "ROLLBACK", SELECT, UPSERT, INSERT_ORDER, INSERT_MARK]
        {
            drop(connection.prepare_cached(sql)?);
        }
        Ok(Self { connection, looks_first })
    }

    fn receipt(&self, order: &Order, now: i64) -> rusqlite::Result<Option<Receipt>> {
        let key = order.request.key();
        let mut select = self.connection.prepare_cached(SELECT)?;
        let receipt = select.query_row((key.tenant(), key.operation(), key.request()), |row| {
            let result = match row.get_ref(2)? {
                ValueRef::Text(result) | ValueRef::Blob(result) => result.to_vec(),
                _ => Vec::new(),
            };
            Ok(Receipt { expires_at: row.get(0)?, fingerprint: row.get(1)?, result })
        });
        let is_live = |receipt: &Receipt| receipt.expires_at.is_none_or(|at| now < at);
        Ok(receipt.optional()?.filter(is_live))
    }

    fn try_place(&self, order: &Order) -> Result<Outcome<Placed>, BoxError> {
        if self.looks_first
            && let Some(receipt) = self.receipt(order, now()?)?
        {
            return answer(order, &receipt);
        }
        self.run("BEGIN IMMEDIATE")?;
        let outcome = self.place_locked(order);
        match outcome {
            Ok(outcome) => {
                self.run("COMMIT")?;
                Ok(outcome)
            }
            Err(error) => {
                self.run("ROLLBACK")?;
                Err(error)
            }
        }
    }

    fn place_locked(&self, order: &Order) -> Result<Outcome<Placed>, BoxError> {
        let now = now()?;
        if let Some(receipt) = self.receipt(order, now)? {
            return answer(order, &receipt);
        }
        self.connection.prepare_cached(INSERT_ORDER)?.execute([order.number.cast_signed()])?;
        let placed = Placed { id: self.connection.last_insert_rowid(), number: order.number };
        let result = serde_json::to_string(&placed)?;
        let key = order.request.key();
        self.connection.prepare_cached(UPSERT)?.execute(params![
            key.tenant(),
            key.operation(),
            key.request(),
            now,
            now + DAY,
            Uuid::new_v4().into_bytes(),
            order.request.fingerprint_value().map(|fingerprint| fingerprint.to_bytes()),
            result,
        ])?;
        Ok(Outcome::Created(placed))
    }

    fn run(&self, sql: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.execute([]).map(drop)
    }
}

impl Caller for Session {
    fn place(&mut self, order: &Order) -> Result<Outcome<Placed>, BoxError> {
        until_not_busy(|| self.try_place(order))
    }

    fn mark(&mut self, order: &Order) -> Result<Marked, BoxError> {
        until_not_busy(|| {
            let mut insert = self.connection.prepare_cached(INSERT_MARK)?;
            let rows = insert.execute((shop::CONSUMER, order.event()))?;
            Ok(if rows == 1 { Marked::First } else { Marked::Again })
        })
    }
}

fn until_not_busy<T>(run: impl Fn() -> Result<T, BoxError>) -> Result<T, BoxError> {
    loop {
        match run() {
            Err(error) if is_busy(&error) => {}
            result => return result,
        }
    }
}

fn answer(order: &Order, receipt: &Receipt) -> Result<Outcome<Placed>, BoxError> {
    let fingerprint = order.request.fingerprint_value().map(|fingerprint| fingerprint.to_bytes());
    if receipt.fingerprint.as_deref() != fingerprint.as_ref().map(|bytes| bytes.as_slice()) {
        return Ok(Outcome::Conflict);
    }
    Ok(Outcome::Replayed(serde_json::from_slice(&receipt.result)?))
}

fn now() -> Result<i64, BoxError> {
    Ok(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?)
}

fn is_busy(error: &BoxError) -> bool {
    let code = error.downcast_ref().and_then(rusqlite::Error::sqlite_error_code);
    code == Some(ErrorCode::DatabaseBusy)
}
