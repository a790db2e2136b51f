//! What the store says when its file is damaged.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

mod common;

use std::{fs, path::Path};

use common::{on, order, orders, request};
use idem_core::{Certainty, ErrorKind, Outcome};
use redb::{Database, DatabaseError, StorageError};
use tempfile::TempDir;

/// A database with one order, closed; and the bytes of its record.
async fn ordered(path: &Path) -> Vec<u8> {
    let idem = on(Database::create(path).unwrap());
    assert_eq!(order(&idem, "a").await.unwrap(), Outcome::Created(1));
    let record = idem.list(None, 1).await.unwrap().records[0].1.to_bytes();
    idem.close().await.unwrap();
    record
}

/// Where `part` lies in `whole`, every time: pages that were replaced stay in the file until they are used again.
fn places(whole: &[u8], part: &[u8]) -> Vec<usize> {
    let windows = whole.windows(part.len()).enumerate();
    windows.filter(|(_, window)| *window == part).map(|(place, _)| place).collect()
}

#[tokio::test]
async fn any_damaged_byte_of_a_record_is_told_and_its_key_does_not_run() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("orders.redb");
    let record = ordered(&path).await;
    let sound = fs::read(&path).unwrap();
    let places = places(&sound, &record);
    assert!(!places.is_empty(), "the record must be found in the file");
    for offset in 0..record.len() {
        let mut damaged = sound.clone();
        for place in &places {
            damaged[place + offset] ^= 1;
        }
        fs::write(&path, damaged).unwrap();
        let idem = on(Database::open(&path).unwrap());
        let error = order(&idem, "a").await.unwrap_err();
        let is_told =
            matches!(error.kind(), ErrorKind::Damaged { .. } | ErrorKind::SchemaNewer { .. });
        assert!(is_told, "byte {offset}: {error:?}");
        assert_eq!(error.certainty(), Certainty::NothingDone, "byte {offset}");
        assert!(idem.receipt(request("a").key()).await.is_err(), "byte {offset}");
        assert_eq!(idem.purge(10).await.unwrap().removed, 0, "what cannot be read stays");
        assert_eq!(orders(&idem).await, Some(1), "byte {offset}");
        assert_eq!(order(&idem, "b").await.unwrap(), Outcome::Created(2), "another key goes on");
        idem.close().await.unwrap();
    }
    fs::write(&path, sound).unwrap();
    let idem = on(Database::open(&path).unwrap());
    assert_eq!(order(&idem, "a").await.unwrap(), Outcome::Replayed(1));
}

#[tokio::test]
async fn a_damaged_key_is_told_when_the_database_is_opened_with_a_check() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("orders.redb");
    ordered(&path).await;
    let key = request("a").key().to_bytes();
    let mut bytes = fs::read(&path).unwrap();
    let places = places(&bytes, &key);
    assert!(!places.is_empty(), "the key must be found in the file");
    for place in places {
        bytes[place + key.len() - 1] ^= 1;
    }
    fs::write(&path, bytes).unwrap();
    let opened = Database::builder().set_check_integrity_on_open(true).open(&path);
    let is_told = matches!(opened, Err(DatabaseError::Storage(StorageError::Corrupted(_))));
    assert!(is_told, "{opened:?}");
}
