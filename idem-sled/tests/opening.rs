//! Opening a folder, and what is in it.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

mod common;

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::Duration,
};

use common::{nothing, opened, request, space};
use idem_core::{
    Certainty, Durability, Error, ErrorKind, Idem, Key, ManualClock, Outcome, Purged, Request,
    Sharing, Timestamp, Transaction,
};
use idem_sled::{SledStore, SledTransaction, Synchronous, sled};
use tempfile::TempDir;

fn error(opened: Result<impl Sized, Error>) -> Error {
    let Err(error) = opened else { panic!("this must not open") };
    assert_eq!(error.certainty(), Certainty::NothingDone);
    error
}

fn problem(opened: Result<impl Sized, Error>) -> String {
    let error = error(opened);
    assert!(matches!(error.kind(), ErrorKind::CannotOpen { .. }), "{error:?}");
    error.to_string()
}

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

/// A folder that holds 600 receipts, opened and closed often enough that the engine keeps a snapshot, and a
/// value too large for its log.
async fn filled() -> TempDir {
    let folder = TempDir::new().unwrap();
    let idem = opened(folder.path()).await.unwrap();
    let large = |tx: &mut SledTransaction| Ok(tx.put(b"large", &[7; 300_000])?);
    assert_eq!(idem.execute(&request("large"), large).await.unwrap(), Outcome::Created(()));
    let marks = (0..600).map(|number| {
        let idem = idem.clone();
        tokio::spawn(async move {
            let small = |tx: &mut SledTransaction| Ok(tx.put(b"small", &[7; 1_000])?);
            idem.execute(&request(number), small).await.unwrap()
        })
    });
    for mark in marks.collect::<Vec<_>>() {
        assert_eq!(mark.await.unwrap(), Outcome::Created(()));
    }
    idem.close().await.unwrap();
    opened(folder.path()).await.unwrap().close().await.unwrap();
    folder
}

fn snapshots(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files.filter(|file| file.to_str().unwrap().contains("/snap.")).collect()
}

fn overwrite(file: &Path) {
    let length = fs::metadata(file).unwrap().len();
    fs::write(file, vec![0xab; usize::try_from(length).unwrap()]).unwrap();
}

fn cut(file: &Path, length: u64) {
    File::options().write(true).open(file).unwrap().set_len(length).unwrap();
}

/// What is done to a folder.
type Damage = fn(&Path);

#[tokio::test]
async fn what_was_damaged_or_lost_is_an_error_every_time_and_never_an_empty_store() {
    let damages: [(&str, Damage); 11] = [
        ("log gone", |folder| fs::remove_file(folder.join("db")).unwrap()),
        ("log empty", |folder| cut(&folder.join("db"), 0)),
        ("log overwritten", |folder| overwrite(&folder.join("db"))),
        ("log zeroed", |folder| {
            let length = fs::metadata(folder.join("db")).unwrap().len();
            cut(&folder.join("db"), 0);
            cut(&folder.join("db"), length);
        }),
        ("snapshot overwritten", |folder| overwrite(&snapshots(folder)[0])),
        ("snapshot empty", |folder| cut(&snapshots(folder)[0], 0)),
        ("settings overwritten", |folder| overwrite(&folder.join("conf"))),
        ("log and snapshot gone", |folder| {
            fs::remove_file(folder.join("db")).unwrap();
            fs::remove_file(&snapshots(folder)[0]).unwrap();
        }),
        ("all but the marker gone", |folder| {
            fs::remove_file(folder.join("db")).unwrap();
            fs::remove_file(folder.join("conf")).unwrap();
            fs::remove_dir_all(folder.join("blobs")).unwrap();
            fs::remove_file(&snapshots(folder)[0]).unwrap();
        }),
        ("another database in its place", |folder| {
            fs::remove_file(&snapshots(folder)[0]).unwrap();
            let other = TempDir::new().unwrap();
            drop(sled::open(other.path()).unwrap());
            fs::copy(other.path().join("db"), folder.join("db")).unwrap();
        }),
        ("marker overwritten", |folder| overwrite(&folder.join("idem"))),
    ];
    for (name, damage) in damages {
        let folder = filled().await;
        damage(folder.path());
        for _ in 0..2 {
            let opened = opened(folder.path()).await;
            assert!(opened.is_err(), "{name}");
            let refused = problem(opened);
            assert!(refused.contains(&folder.path().display().to_string()), "{name}: {refused}");
        }
    }
}

#[tokio::test]
async fn what_is_gone_is_not_made_anew_beside_what_is_left() {
    let folder = filled().await;
    fs::remove_file(folder.path().join("db")).unwrap();
    fs::remove_file(&snapshots(folder.path())[0]).unwrap();
    let refused = problem(opened(folder.path()).await);
    assert!(refused.contains("`db`") && refused.contains("restore"), "{refused}");
    assert!(!folder.path().join("db").exists());
}

#[tokio::test]
async fn a_damaged_log_shows_its_receipts_or_errors_and_never_runs_one_again() {
    let damages: [(&str, Damage); 3] = [
        ("halved", |folder| {
            cut(&folder.join("db"), fs::metadata(folder.join("db")).unwrap().len() / 2);
        }),
        ("a hole", |folder| {
            let mut log = fs::read(folder.join("db")).unwrap();
            let middle = log.len() / 2;
            log[middle..middle + 100_000].fill(0xab);
            fs::write(folder.join("db"), log).unwrap();
        }),
        ("its head", |folder| {
            let mut log = fs::read(folder.join("db")).unwrap();
            log[..100_000].fill(0xab);
            fs::write(folder.join("db"), log).unwrap();
        }),
    ];
    for (name, damage) in damages {
        let folder = filled().await;
        damage(folder.path());
        let idem = match opened(folder.path()).await {
            Ok(idem) => idem,
            Err(error) => {
                assert!(is_damage(&error), "{name}: {error:?}");
                continue;
            }
        };
        for number in 0..600 {
            match idem.execute(&request(number), nothing).await {
                Ok(outcome) => assert_eq!(outcome, Outcome::Replayed(()), "{name}"),
                Err(error) => assert!(is_damage(&error), "{name}: {error:?}"),
            }
        }
    }
}

#[tokio::test]
async fn a_log_cut_short_with_its_snapshot_is_noticed_by_its_commits() {
    let folder = TempDir::new().unwrap();
    let idem = opened(folder.path()).await.unwrap();
    assert_eq!(idem.execute(&request("early"), nothing).await.unwrap(), Outcome::Created(()));
    idem.close().await.unwrap();
    let early = TempDir::new().unwrap();
    fs::copy(folder.path().join("db"), early.path().join("db")).unwrap();
    let idem = opened(folder.path()).await.unwrap();
    assert_eq!(idem.execute(&request("late"), nothing).await.unwrap(), Outcome::Created(()));
    idem.close().await.unwrap();
    // An older log is sound, and lacks a commit.
    fs::copy(early.path().join("db"), folder.path().join("db")).unwrap();
    snapshots(folder.path()).iter().for_each(|file| fs::remove_file(file).unwrap());
    let refused = problem(opened(folder.path()).await);
    assert!(refused.contains("2 commits") && refused.contains("1 are found"), "{refused}");
    // Whoever accepts the loss says so.
    fs::remove_file(folder.path().join("idem")).unwrap();
    let idem = opened(folder.path()).await.unwrap();
    assert_eq!(idem.execute(&request("early"), nothing).await.unwrap(), Outcome::Replayed(()));
    assert_eq!(idem.execute(&request("late"), nothing).await.unwrap(), Outcome::Created(()));
}

#[tokio::test]
async fn what_can_be_made_again_is() {
    let repairs: [(&str, Damage); 3] = [
        ("snapshot gone", |folder| fs::remove_file(&snapshots(folder)[0]).unwrap()),
        ("settings gone", |folder| fs::remove_file(folder.join("conf")).unwrap()),
        ("marker gone", |folder| fs::remove_file(folder.join("idem")).unwrap()),
    ];
    for (name, damage) in repairs {
        let folder = filled().await;
        damage(folder.path());
        let idem = opened(folder.path()).await.unwrap();
        let outcome = idem.execute(&request(599), nothing).await.unwrap();
        assert_eq!(outcome, Outcome::Replayed(()), "{name}");
    }
}

#[tokio::test]
async fn a_value_whose_file_is_gone_or_damaged_is_an_error_and_never_absent() {
    let damages: [(&str, Damage); 2] = [
        ("gone", |folder| {
            fs::remove_dir_all(folder.join("blobs")).unwrap();
        }),
        ("damaged", |folder| {
            for blob in fs::read_dir(folder.join("blobs")).unwrap() {
                overwrite(&blob.unwrap().path());
            }
        }),
    ];
    for (name, damage) in damages {
        let folder = filled().await;
        damage(folder.path());
        // Noticed when it is opened, or when the value is read.
        let noticed = match opened(folder.path()).await {
            Ok(idem) => idem.value(&space(), b"large").await.unwrap_err(),
            Err(error) => error,
        };
        assert!(is_damage(&noticed), "{name}: {noticed:?}");
    }
}

/// Whether an error says that what is stored cannot be read, with nothing done.
fn is_damage(error: &Error) -> bool {
    let kinds = matches!(
        error.kind(),
        ErrorKind::CannotOpen { .. } | ErrorKind::Damaged { .. } | ErrorKind::Store
    );
    kinds && error.certainty() == Certainty::NothingDone
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

#[tokio::test]
async fn a_damaged_record_is_an_error_and_never_a_new_run() {
    let folder = TempDir::new().unwrap();
    let idem = opened(folder.path()).await.unwrap();
    assert_eq!(idem.execute(&request("a"), nothing).await.unwrap(), Outcome::Created(()));
    let records = idem.store().db().unwrap().open_tree("idem.records").unwrap();
    let (key, whole) = records.first().unwrap().unwrap();
    let mut damaged = whole.to_vec();
    damaged[20] ^= 1;
    records.insert(&key, damaged).unwrap();
    let run = |_: &mut SledTransaction| -> Result<(), idem_core::EffectError> {
        panic!("it must not run")
    };
    let error = idem.execute(&request("a"), run).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Damaged { .. }), "{error:?}");
    assert!(idem.list(None, 10).await.is_err());
    records.insert(&key, whole).unwrap();
    assert_eq!(idem.execute(&request("a"), nothing).await.unwrap(), Outcome::Replayed(()));
}

#[tokio::test]
async fn what_a_newer_version_wrote_is_refused_untouched() {
    let folder = filled().await;
    let marker = fs::read_to_string(folder.path().join("idem")).unwrap();
    fs::write(folder.path().join("idem"), marker.replace("idem-sled 1", "idem-sled 99")).unwrap();
    let before = fs::read(folder.path().join("db")).unwrap();
    for _ in 0..2 {
        let error = error(opened(folder.path()).await);
        let newer = matches!(error.kind(), ErrorKind::SchemaNewer { found: 99, supported: 1, .. });
        assert!(newer, "{error:?}");
    }
    assert!(fs::read(folder.path().join("db")).unwrap() == before, "nothing may be written");
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
    let newer = matches!(error.kind(), ErrorKind::SchemaNewer { found: 7, supported: 1, .. });
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
