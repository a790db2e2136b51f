//! Records that the first version of this library wrote.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::Path;

use common::opened;
use idem_conformance::first_form::{BEGAN_AT, RECORDS, is_still_purged, is_still_read, request};
use idem_core::{Idem, ManualClock, Timestamp};
use idem_sled::{SEGMENT_SIZE, SledStore, sled};
use tempfile::TempDir;

/// As that version left them: each with an expiry after a minute.
async fn stored(folder: &Path) -> (Idem<SledStore>, ManualClock) {
    opened(folder).await.unwrap().close().await.unwrap();
    let db = sled::Config::new().path(folder).segment_size(SEGMENT_SIZE).open().unwrap();
    let (records, expiry) =
        (db.open_tree("idem.records").unwrap(), db.open_tree("idem.expiry").unwrap());
    let at = ((BEGAN_AT + 60_000).cast_unsigned() ^ (1 << 63)).to_be_bytes();
    for (number, (name, record)) in RECORDS.into_iter().enumerate() {
        let key = request(name).key().to_bytes();
        let length = u16::try_from(key.len()).unwrap().to_be_bytes();
        expiry
            .insert([at, (number as u64).to_be_bytes()].concat(), [&at[..], &length, &key].concat())
            .unwrap();
        records.insert(key, record).unwrap();
    }
    db.flush().unwrap();
    drop((records, expiry, db));
    let clock = ManualClock::at(Timestamp::from_millis(0));
    let store = SledStore::builder().clock(clock.clone()).open(folder).await.unwrap();
    (Idem::new(store), clock)
}

#[tokio::test]
async fn records_in_the_first_form_are_read_and_replaced() {
    let folder = TempDir::new().unwrap();
    let (idem, clock) = stored(folder.path()).await;
    is_still_read(&idem, &clock).await;
}

#[tokio::test]
async fn records_in_the_first_form_are_purged() {
    let folder = TempDir::new().unwrap();
    let (idem, clock) = stored(folder.path()).await;
    is_still_purged(&idem, &clock).await;
}
