//! Opening a folder, and what is in it.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

mod common;

use std::{
    fs::{self, File},
    path::Path,
    time::Duration,
};

use common::{error, nothing, opened, problem, request, space};
use idem_core::{
    Durability, Error, ErrorKind, Idem, Key, ManualClock, Outcome, Purged, Request, Sharing,
    Timestamp, Transaction,
};
use idem_sled::{SledStore, SledTransaction, Synchronous, sled};
use tempfile::TempDir;

/// Opens without waiting for anybody.
async fn impatient(path: &Path) -> Result<Idem<SledStore>, Error> {
    Ok(Idem::new(SledStore::builder().busy_timeout(Duration::from_millis(1)).open(path).await?))
}

#[tokio::test]
async fn what_is_no_folder_is_refused_by_its_path() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("a-file");
    fs::write(&file, "mine").unwrap();
    let refused = problem(opened(&file).await);
    assert!(refused.contains("a-file") && refused.contains("no folder"), "{refused}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    let refused = problem(opened(&folder.path().join("missing/store")).await);
    assert!(refused.contains("missing/store"), "{refused}");
    assert!(!folder.path().join("missing").exists());
    let error = error(opened(Path::new("")).await);
    assert!(matches!(error.kind(), ErrorKind::InvalidSetting { field: "path", .. }), "{error}");
}

#[tokio::test]
async fn bad_options_are_refused() {
    let folder = TempDir::new().unwrap();
    let builder = SledStore::builder().busy_timeout(Duration::ZERO);
    let error = error(builder.open(folder.path()).await);
    assert!(matches!(error.kind(), ErrorKind::InvalidDuration { field: "busy timeout", .. }));
}

#[tokio::test]
async fn what_a_store_declares_is_what_it_was_opened_with() {
    let folder = TempDir::new().unwrap();
    let full = opened(folder.path()).await.unwrap();
    assert_eq!(full.guarantees().durability, Durability::PowerLoss);
    assert_eq!(full.guarantees().sharing, Sharing::Process);
    full.close().await.unwrap();
    let builder = SledStore::builder().synchronous(Synchronous::Flush).cache_capacity(1 << 20);
    let flush = Idem::new(builder.open(folder.path()).await.unwrap());
    assert_eq!(flush.guarantees().durability, Durability::ProcessCrash);
    assert_eq!(flush.execute(&request("a"), nothing).await.unwrap(), Outcome::Created(()));
}

#[tokio::test]
async fn a_folder_is_open_once_and_again_right_after_it_was_closed() {
    let folder = TempDir::new().unwrap();
    for round in 0..10 {
        let idem = opened(folder.path()).await.unwrap();
        let refused = problem(impatient(folder.path()).await);
        assert!(refused.contains("has it open"), "{refused}");
        assert_eq!(idem.execute(&request(round), nothing).await.unwrap(), Outcome::Created(()));
        idem.close().await.unwrap();
        idem.close().await.unwrap();
        let idem = impatient(folder.path()).await.unwrap();
        assert_eq!(idem.execute(&request(round), nothing).await.unwrap(), Outcome::Replayed(()));
        // As impatient as it is, it may not see its files let go.
        drop(idem.close().await);
    }
}

#[tokio::test]
async fn after_its_last_handle_is_dropped_a_folder_opens_again_with_all_that_was_told() {
    let folder = TempDir::new().unwrap();
    let idem = opened(folder.path()).await.unwrap();
    let clone = idem.clone();
    assert_eq!(idem.execute(&request("a"), nothing).await.unwrap(), Outcome::Created(()));
    drop(idem);
    assert_eq!(clone.execute(&request("b"), nothing).await.unwrap(), Outcome::Created(()));
    drop(clone);
    // It closes in the background: this waits for it.
    let idem = opened(folder.path()).await.unwrap();
    for name in ["a", "b"] {
        assert_eq!(idem.execute(&request(name), nothing).await.unwrap(), Outcome::Replayed(()));
    }
}

#[tokio::test]
async fn opening_waits_for_a_lock_that_is_let_go_in_time() {
    for file in ["idem", "db"] {
        let folder = TempDir::new().unwrap();
        opened(folder.path()).await.unwrap().close().await.unwrap();
        let lock = File::options().write(true).open(folder.path().join(file)).unwrap();
        lock.lock().unwrap();
        let refused = problem(impatient(folder.path()).await);
        assert!(refused.contains("has it open"), "{file}: {refused}");
        let path = folder.path().to_path_buf();
        let opening = tokio::spawn(async move { opened(&path).await });
        tokio::task::yield_now().await;
        drop(lock);
        opening.await.unwrap().unwrap().close().await.unwrap();
    }
}

#[tokio::test]
async fn a_handle_of_the_engine_keeps_the_files_and_closing_says_so() {
    let folder = TempDir::new().unwrap();
    let idem = impatient(folder.path()).await.unwrap();
    let db = idem.store().db().unwrap();
    let error = idem.close().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Store), "{error:?}");
    assert!(matches!(idem.store().db().unwrap_err().kind(), ErrorKind::Closed));
    drop(db);
    opened(folder.path()).await.unwrap();
}

#[tokio::test]
async fn after_closing_every_call_says_so_through_every_clone() {
    let folder = TempDir::new().unwrap();
    let idem = opened(folder.path()).await.unwrap();
    assert_eq!(idem.execute(&request("a"), nothing).await.unwrap(), Outcome::Created(()));
    let clone = Idem::new(idem.store().clone());
    idem.close().await.unwrap();
    let closed = |error: Error| assert!(matches!(error.kind(), ErrorKind::Closed), "{error:?}");
    closed(clone.execute(&request("a"), nothing).await.unwrap_err());
    closed(clone.execute(&request("b"), nothing).await.unwrap_err());
    closed(clone.receipt(request("a").key()).await.unwrap_err());
    closed(clone.purge(1).await.unwrap_err());
    closed(clone.list(None, 1).await.unwrap_err());
    closed(clone.value(&space(), b"x").await.unwrap_err());
}

#[tokio::test]
async fn the_users_own_database_is_kept() {
    let folder = TempDir::new().unwrap();
    {
        let db = sled::open(folder.path()).unwrap();
        db.insert("mine", "1").unwrap();
        db.open_tree("orders").unwrap().insert("a", "2").unwrap();
        db.flush().unwrap();
    }
    let idem = opened(folder.path()).await.unwrap();
    let effect = |tx: &mut SledTransaction| Ok(tx.tree("orders")?.get("a")?.is_some());
    assert_eq!(idem.execute(&request("a"), effect).await.unwrap(), Outcome::Created(true));
    assert_eq!(idem.store().db().unwrap().get("mine").unwrap().unwrap(), "1");
}

#[tokio::test]
async fn a_newer_version_shows_without_the_marker_too() {
    let folder = TempDir::new().unwrap();
    {
        let db = sled::open(folder.path()).unwrap();
        let meta = db.open_tree("idem.meta").unwrap();
        meta.insert("version", &7_u64.to_be_bytes()).unwrap();
        db.flush().unwrap();
    }
    let error = error(opened(folder.path()).await);
    let newer = matches!(error.kind(), ErrorKind::SchemaNewer { found: 7, supported: 2, .. });
    assert!(newer, "{error:?}");
}

#[tokio::test]
async fn purging_removes_more_than_one_batch_takes_and_counts_exactly() {
    let folder = TempDir::new().unwrap();
    let clock = ManualClock::at(Timestamp::from_millis(-5_000));
    let builder = SledStore::builder().synchronous(Synchronous::Flush).clock(clock.clone());
    let idem = Idem::new(builder.open(folder.path()).await.unwrap());
    let calls = (0..1_203_u64).map(|number| {
        let idem = idem.clone();
        tokio::spawn(async move {
            let brief = request(number).retain(Duration::from_millis(1 + number % 2));
            assert_eq!(idem.execute(&brief, nothing).await.unwrap(), Outcome::Created(()));
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    clock.advance(Duration::from_millis(1));
    // One of those that have expired lives again, and one is gone.
    let again = request(0).retain(Duration::from_secs(60));
    assert_eq!(idem.execute(&again, nothing).await.unwrap(), Outcome::Created(()));
    assert!(idem.forget(request(1).key()).await.unwrap());
    let purged = Purged::new;
    assert_eq!(idem.purge(550).await.unwrap(), purged(550, true));
    assert_eq!(idem.purge(550).await.unwrap(), purged(51, false));
    clock.advance(Duration::from_millis(1));
    assert_eq!(idem.purge(1_000).await.unwrap(), purged(600, false));
    assert_eq!(idem.purge(1_000).await.unwrap(), purged(0, false));
    assert_eq!(idem.list(None, 10).await.unwrap().records.len(), 1);
    clock.advance(Duration::from_secs(60));
    assert_eq!(idem.purge(1_000).await.unwrap(), purged(1, false));
    let expiry = idem.store().db().unwrap().open_tree("idem.expiry").unwrap();
    assert!(expiry.is_empty(), "the index keeps nothing of what is gone");
}

#[tokio::test]
async fn names_of_every_kind_are_told_apart() {
    let folder = TempDir::new().unwrap();
    let idem = opened(folder.path()).await.unwrap();
    let names: [&[u8]; 6] = [b"", b"\0", b"\0\0", b"a", b"a\0", &[0xff; 300]];
    for tenant in ["", "a", "ab"] {
        let request = Request::new(Key::new(tenant, "order", "1").unwrap());
        let put = move |tx: &mut SledTransaction| {
            for name in names {
                tx.put(name, &[tenant.as_bytes(), name].concat())?;
            }
            Ok(())
        };
        assert_eq!(idem.execute(&request, put).await.unwrap(), Outcome::Created(()));
    }
    for tenant in ["", "a", "ab"] {
        let space = idem_core::Space::tenant(tenant).unwrap();
        for name in names {
            let value = idem.value(&space, name).await.unwrap().unwrap();
            assert_eq!(value, [tenant.as_bytes(), name].concat());
        }
    }
}

#[tokio::test]
async fn a_batch_that_was_written_in_part_is_refused_until_somebody_accepts_it() {
    let folder = TempDir::new().unwrap();
    let idem = opened(folder.path()).await.unwrap();
    assert_eq!(idem.execute(&request("a"), nothing).await.unwrap(), Outcome::Created(()));
    // As the engine leaves it if it fails before the last tree of a batch.
    let db = idem.store().db().unwrap();
    db.open_tree("idem.begun").unwrap().insert("batch", &2_u64.to_be_bytes()).unwrap();
    drop(db);
    idem.close().await.unwrap();
    let refused = problem(opened(folder.path()).await);
    assert!(refused.contains("in the middle of a commit"), "{refused}");
    fs::remove_file(folder.path().join("idem")).unwrap();
    let idem = opened(folder.path()).await.unwrap();
    assert_eq!(idem.execute(&request("a"), nothing).await.unwrap(), Outcome::Replayed(()));
    idem.close().await.unwrap();
    opened(folder.path()).await.unwrap();
}
