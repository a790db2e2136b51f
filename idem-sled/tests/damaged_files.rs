//! Files that were damaged, lost or exchanged while the store was closed.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

mod common;

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use common::{error, is_damage, nothing, opened, problem, request};
use idem_core::{ErrorKind, Outcome, Transaction};
use idem_sled::{SledTransaction, sled};
use tempfile::TempDir;

/// A folder that holds 600 receipts, opened and closed often enough that the engine keeps a snapshot, and a
/// value in several pieces.
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

/// A folder with the engine's default segments, a value that is too large for its log, and a snapshot.
async fn with_a_blob() -> TempDir {
    let folder = TempDir::new().unwrap();
    drop(sled::open(folder.path()).unwrap());
    let idem = opened(folder.path()).await.unwrap();
    let large = |tx: &mut SledTransaction| Ok(tx.tree("mine")?.insert("large", [7; 300_000])?);
    assert_eq!(idem.execute(&request("large"), large).await.unwrap(), Outcome::Created(()));
    idem.close().await.unwrap();
    opened(folder.path()).await.unwrap().close().await.unwrap();
    assert!(fs::read_dir(folder.path().join("blobs")).unwrap().count() > 0);
    folder
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
        let folder = with_a_blob().await;
        damage(folder.path());
        let look = |tx: &mut SledTransaction| Ok(tx.tree("mine")?.get("large")?.is_some());
        // Noticed when it is opened, or when the value is read.
        let noticed = match opened(folder.path()).await {
            Ok(idem) => idem.execute(&request("look"), look).await.unwrap_err(),
            Err(error) => error,
        };
        assert!(is_damage(&noticed), "{name}: {noticed:?}");
    }
}

#[tokio::test]
async fn a_log_whose_segments_nobody_knows_is_not_touched() {
    let folder = filled().await;
    fs::remove_file(folder.path().join("conf")).unwrap();
    fs::remove_file(folder.path().join("idem")).unwrap();
    let before = fs::read(folder.path().join("db")).unwrap();
    for _ in 0..2 {
        let refused = problem(opened(folder.path()).await);
        assert!(refused.contains("`conf`") && refused.contains("restore"), "{refused}");
    }
    assert!(fs::read(folder.path().join("db")).unwrap() == before, "nothing may be written");
}

#[tokio::test]
async fn what_a_newer_version_wrote_is_refused_untouched() {
    let folder = filled().await;
    let marker = fs::read_to_string(folder.path().join("idem")).unwrap();
    fs::write(folder.path().join("idem"), marker.replace("idem-sled 2", "idem-sled 99")).unwrap();
    let before = fs::read(folder.path().join("db")).unwrap();
    for _ in 0..2 {
        let error = error(opened(folder.path()).await);
        let newer = matches!(error.kind(), ErrorKind::SchemaNewer { found: 99, supported: 2, .. });
        assert!(newer, "{error:?}");
    }
    assert!(fs::read(folder.path().join("db")).unwrap() == before, "nothing may be written");
}
