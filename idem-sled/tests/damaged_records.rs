//! Records that were changed where they lie: each call says so, and whose they are; none runs anew.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

mod common;

use std::{path::Path, time::Duration};

use common::{nothing, opened, request};
use idem_conformance::damage::damaged;
use idem_core::{
    Certainty, Cursor, EffectError, Error, ErrorKind, Idem, Key, ManualClock, Outcome, Timestamp,
};
use idem_sled::{SEGMENT_SIZE, SledStore, SledTransaction, sled};
use tempfile::TempDir;

const LEASE: Duration = Duration::from_secs(3600);

/// The record of a key as it lies in its tree, while the store is closed.
fn with_records<T>(folder: &Path, work: impl FnOnce(&sled::Tree) -> T) -> T {
    let db = sled::Config::new().path(folder).segment_size(SEGMENT_SIZE).open().unwrap();
    let done = work(&db.open_tree("idem.records").unwrap());
    db.flush().unwrap();
    done
}

fn must_not_run(_: &mut SledTransaction) -> Result<u64, EffectError> {
    panic!("it must not run")
}

/// That the record of `key` cannot be read.
fn is_found<T: std::fmt::Debug>(key: &Key, answer: Result<T, Error>) {
    let error = answer.unwrap_err();
    let is_typed =
        matches!(error.kind(), ErrorKind::Damaged { .. } | ErrorKind::SchemaNewer { .. });
    assert!(is_typed && error.certainty() == Certainty::NothingDone, "{key:?}: {error:?}");
    assert!(error.to_string().contains(&format!("{key:?}")), "it must say whose it is: {error}");
}

/// A folder with the records of the keys `completed` and `claimed`, which it returns.
async fn recorded(folder: &Path) -> [Vec<u8>; 2] {
    let idem = opened(folder).await.unwrap();
    let outcome = idem.execute(&request("completed").fingerprint(&1).unwrap(), |_| Ok(7_u64)).await;
    assert_eq!(outcome.unwrap(), Outcome::Created(7));
    let claim = request("claimed").fingerprint(&2).unwrap();
    idem.claim::<u64>(&claim, LEASE).await.unwrap().lease().unwrap().abandon();
    idem.close().await.unwrap();
    with_records(folder, |records| {
        ["completed", "claimed"]
            .map(|name| records.get(request(name).key().to_bytes()).unwrap().unwrap().to_vec())
    })
}

#[tokio::test]
async fn any_damage_to_a_record_is_found_by_every_call_that_meets_it() {
    let folder = TempDir::new().unwrap();
    let recorded = recorded(folder.path()).await;
    let damaged: Vec<_> = recorded.iter().flat_map(|stored| damaged(stored)).collect();
    assert!(damaged.len() > 2_000);
    let named = |number: usize| request(format!("damaged-{number:05}"));
    with_records(folder.path(), |records| {
        for (number, bytes) in damaged.iter().enumerate() {
            records.insert(named(number).key().to_bytes(), &bytes[..]).unwrap();
        }
    });
    let idem = opened(folder.path()).await.unwrap();
    let mut before = Key::new("north", "order", "damaged-").unwrap();
    for number in 0..damaged.len() {
        let request = named(number);
        is_found(request.key(), idem.execute(&request, must_not_run).await);
        is_found(request.key(), idem.claim::<u64>(&request, LEASE).await);
        is_found(request.key(), idem.receipt(request.key()).await);
        is_found(request.key(), idem.forget(request.key()).await);
        is_found(request.key(), idem.list(Some(&Cursor::after(&before)), 1).await);
        before = request.key().clone();
    }
    assert_eq!(idem.purge(10).await.unwrap().removed, 0);
    idem.close().await.unwrap();
    with_records(folder.path(), |records| {
        for (number, bytes) in damaged.iter().enumerate() {
            let found = records.get(named(number).key().to_bytes()).unwrap();
            assert_eq!(found.as_deref(), Some(&bytes[..]), "for who can mend it");
        }
    });
}

#[tokio::test]
async fn a_record_under_no_key_is_named_by_its_bytes() {
    let folder = TempDir::new().unwrap();
    let [completed, _] = recorded(folder.path()).await;
    with_records(folder.path(), |records| records.insert(b"no\xffkey", completed).unwrap());
    let idem = opened(folder.path()).await.unwrap();
    let error = idem.list(None, 10).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Damaged { .. }), "{error:?}");
    assert!(error.to_string().contains(r#"b"no\xffkey""#), "{error}");
}

#[tokio::test]
async fn a_record_that_was_mended_replays() {
    let folder = TempDir::new().unwrap();
    let [completed, _] = recorded(folder.path()).await;
    let name = request("completed").key().to_bytes();
    with_records(folder.path(), |records| records.insert(&name, &completed[1..]).unwrap());
    let again = request("completed").fingerprint(&1).unwrap();
    let idem = opened(folder.path()).await.unwrap();
    is_found(again.key(), idem.execute(&again, must_not_run).await);
    idem.close().await.unwrap();
    with_records(folder.path(), |records| records.insert(&name, completed).unwrap());
    let idem = opened(folder.path()).await.unwrap();
    assert_eq!(idem.execute(&again, must_not_run).await.unwrap(), Outcome::Replayed(7));
}

#[tokio::test]
async fn a_purge_goes_round_a_damaged_record() {
    let folder = TempDir::new().unwrap();
    let clock = ManualClock::at(Timestamp::from_millis(1_700_000_000_000));
    let store = SledStore::builder().clock(clock.clone()).open(folder.path()).await.unwrap();
    let idem = Idem::new(store);
    for name in ["a", "b"] {
        let request = request(name).retain(Duration::from_millis(5));
        assert_eq!(idem.execute(&request, nothing).await.unwrap(), Outcome::Created(()));
    }
    let records = idem.store().db().unwrap().open_tree("idem.records").unwrap();
    let (key, whole) = records.first().unwrap().unwrap();
    let mut damaged = whole.to_vec();
    damaged[20] ^= 1;
    records.insert(&key, damaged.clone()).unwrap();
    clock.advance(Duration::from_millis(5));
    assert_eq!(idem.purge(10).await.unwrap().removed, 1);
    assert_eq!(records.get(&key).unwrap().as_deref(), Some(&damaged[..]), "for who can mend it");
    assert_eq!(idem.purge(10).await.unwrap().removed, 0);
}
