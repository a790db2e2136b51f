//! Tables whose order is damaged: two rows of one page have changed places.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use idem_core::{ErrorKind, Idem, ManualClock, Outcome, Timestamp, Transaction};
use idem_sqlite::SqliteStore;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::{column, request};

const ROWS: usize = 8;
/// Where the places of a leaf's rows are listed, two bytes each.
const PLACES: usize = 8;

fn name(number: usize) -> String {
    format!("key-{number}")
}

async fn opened(path: &Path, clock: &ManualClock) -> Idem<SqliteStore> {
    Idem::new(SqliteStore::builder().clock(clock.clone()).open(path).await.unwrap())
}

/// A database with as many receipts, those with even numbers short-lived, and with as many values.
async fn database(path: &Path, clock: &ManualClock) {
    let idem = opened(path, clock).await;
    for number in 0..ROWS {
        let seconds = if number.is_multiple_of(2) { 10 } else { 1000 };
        let request = request(&name(number)).retain(Duration::from_secs(seconds));
        let effect = move |tx: &mut idem_sqlite::SqliteTransaction| {
            tx.put(name(number).as_bytes(), name(number).as_bytes())?;
            Ok(number)
        };
        assert_eq!(idem.execute(&request, effect).await.unwrap(), Outcome::Created(number));
    }
    idem.close().await.unwrap();
}

/// The database with each two rows of the table's only page in each other's place.
fn swapped(path: &Path, table: &str) -> Vec<Vec<u8>> {
    let connection = Connection::open(path).unwrap();
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
    let root: u32 = connection.query_row(root, [table], |row| row.get(0)).unwrap();
    let size: u32 = connection.query_row("PRAGMA page_size", [], |row| row.get(0)).unwrap();
    drop(connection);
    let page = usize::try_from((root - 1) * size).unwrap();
    let sound = fs::read(path).unwrap();
    assert_eq!(sound[page], 0x0a, "the leaf of an index");
    let rows = usize::from(u16::from_be_bytes([sound[page + 3], sound[page + 4]]));
    assert_eq!(rows, ROWS, "{table} is one page");
    let pairs = (0..rows).flat_map(|first| (first + 1..rows).map(move |second| (first, second)));
    let place = |row: usize| page + PLACES + 2 * row;
    pairs
        .map(|(first, second)| {
            let mut bytes = sound.clone();
            bytes.swap(place(first), place(second));
            bytes.swap(place(first) + 1, place(second) + 1);
            bytes
        })
        .collect()
}

#[tokio::test]
async fn a_name_is_given_no_other_names_value() {
    let (folder, clock) = (TempDir::new().unwrap(), ManualClock::at(Timestamp::from_millis(0)));
    let path = folder.path().join("store.db");
    database(&path, &clock).await;
    let (mut told, mut damaged) = (0, 0);
    for bytes in swapped(&path, "idem_values") {
        fs::write(&path, bytes).unwrap();
        let idem = opened(&path, &clock).await;
        for name in (0..ROWS).map(name) {
            match idem.value(&request("any").key().space(), name.as_bytes()).await {
                Ok(None) => {}
                Ok(Some(value)) => {
                    assert_eq!(value, name.as_bytes());
                    told += 1;
                }
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::Damaged { .. }), "{error:?}");
                    damaged += 1;
                }
            }
        }
        idem.close().await.unwrap();
    }
    assert!(told > 0 && damaged > 0, "{told} were told, {damaged} were damaged");
}

#[tokio::test]
async fn a_purge_takes_no_live_receipt_wherever_it_is_led() {
    let (folder, clock) = (TempDir::new().unwrap(), ManualClock::at(Timestamp::from_millis(0)));
    let path = folder.path().join("store.db");
    database(&path, &clock).await;
    clock.advance(Duration::from_secs(20));
    let live: BTreeSet<_> = (0..ROWS).filter(|number| number % 2 == 1).map(name).collect();
    let mut purged = 0;
    for bytes in swapped(&path, "idem_records") {
        fs::write(&path, bytes).unwrap();
        let idem = opened(&path, &clock).await;
        purged += idem.purge(100).await.unwrap().removed;
        idem.close().await.unwrap();
        let left = column::<String>(&path, "SELECT key FROM idem_records").into_iter().collect();
        assert!(live.is_subset(&left), "{left:?}");
    }
    assert!(purged > 0);
}
