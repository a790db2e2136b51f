//! The space of what is purged, forgotten or overwritten is used again, however large it was.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

mod common;

use std::{fs, path::Path, time::Duration};

use bytes::Bytes;
use common::{request, space};
use idem_core::{
    Certainty, Error, ErrorKind, Idem, Key, ManualClock, Outcome, Purged, Request, Timestamp,
    Transaction,
};
use idem_sled::{SEGMENT_SIZE, SledStore, SledTransaction, Synchronous, sled};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// A store that does not wait for the disk, and its clock.
async fn quick(folder: &Path) -> (Idem<SledStore>, ManualClock) {
    let clock = ManualClock::at(Timestamp::from_millis(1_700_000_000_000));
    let builder = SledStore::builder().synchronous(Synchronous::Flush).clock(clock.clone());
    (Idem::new(builder.open(folder).await.unwrap()), clock)
}

/// How many files of their own the engine has for what was too large for its log.
fn blobs(folder: &Path) -> usize {
    fs::read_dir(folder.join("blobs")).unwrap().count()
}

fn log_size(folder: &Path) -> u64 {
    fs::metadata(folder.join("db")).unwrap().len()
}

/// Stores a receipt with a result of so many bytes, which lives for so many milliseconds.
async fn store(idem: &Idem<SledStore>, name: usize, length: usize, millis: u64) {
    let request = request(name).retain(Duration::from_millis(millis));
    let result = Bytes::from(vec![u8::try_from(name % 251).unwrap(); length]);
    let told = result.clone();
    let stored = idem.execute_bytes(&request, move |_| Ok(told.clone())).await.unwrap();
    assert!(stored == Outcome::Created(result), "{name}");
}

#[tokio::test]
async fn receipts_of_20_kb_of_which_50_live_take_no_more_space_the_longer_it_goes_on() {
    let folder = TempDir::new().unwrap();
    let (idem, clock) = quick(folder.path()).await;
    let mut sizes = Vec::new();
    for name in 0..2_000 {
        store(&idem, name, 20_000, 50).await;
        clock.advance(Duration::from_millis(1));
        if name % 10 == 9 {
            idem.purge(100).await.unwrap();
        }
        if name % 500 == 499 {
            sizes.push(log_size(folder.path()));
            assert_eq!(blobs(folder.path()), 0, "after {name}");
        }
    }
    // A megabyte lives, and forty were written.
    assert!(sizes.iter().all(|size| *size < 36 * MIB), "{sizes:?}");
    assert!(sizes[3] <= sizes[1] + 8 * MIB, "{sizes:?}");
}

#[tokio::test]
async fn the_space_of_purged_receipts_of_300_kb_is_used_again() {
    let folder = TempDir::new().unwrap();
    let mut sizes = Vec::new();
    for round in 0..5 {
        let (idem, clock) = quick(folder.path()).await;
        for name in 0..30 {
            store(&idem, 100 * round + name, 300_000, 1).await;
        }
        clock.advance(Duration::from_millis(1));
        assert_eq!(idem.purge(100).await.unwrap().removed, 30);
        idem.close().await.unwrap();
        sizes.push(log_size(folder.path()));
        assert_eq!(blobs(folder.path()), 0, "in round {round}");
    }
    // Nine megabytes lived at once, and nothing lives any more.
    assert!(sizes.iter().all(|size| *size < 64 * MIB), "{sizes:?}");
    assert!(sizes[4] <= sizes[2] + 16 * MIB, "{sizes:?}");
}

#[tokio::test]
async fn a_large_value_that_is_written_again_and_again_takes_no_more_space() {
    let folder = TempDir::new().unwrap();
    let (idem, _) = quick(folder.path()).await;
    let mut sizes = Vec::new();
    for name in 0..60_u8 {
        // Longer and shorter, so that pieces come and go.
        let length = 700_000 + 10_000 * usize::from(name % 7);
        let put = move |tx: &mut SledTransaction| Ok(tx.put(b"large", &vec![name; length])?);
        assert_eq!(idem.execute(&request(name), put).await.unwrap(), Outcome::Created(()));
        let value = idem.value(&space(), b"large").await.unwrap().unwrap();
        assert!(value == vec![name; length], "{name}");
        sizes.push(log_size(folder.path()));
        assert_eq!(blobs(folder.path()), 0, "after {name}");
    }
    assert!(sizes.iter().all(|size| *size < 48 * MIB), "{sizes:?}");
}

#[tokio::test]
async fn what_is_in_pieces_is_replayed_listed_and_purged_whole_and_leaves_none() {
    let folder = TempDir::new().unwrap();
    let (idem, clock) = quick(folder.path()).await;
    // A record is a little longer than its result: about the lengths of one piece, and two.
    let lengths = [0, 1, 3_900, 4_000, 4_096, 4_200, 8_000, 8_192, 8_300, 1 << 20];
    for (name, length) in lengths.into_iter().enumerate() {
        store(&idem, name, length, 5).await;
    }
    idem.close().await.unwrap();
    let (idem, again) = quick(folder.path()).await;
    for (name, length) in lengths.into_iter().enumerate() {
        let replayed = idem.execute_bytes(&request(name), |_| panic!("it must replay")).await;
        assert_eq!(replayed.unwrap().result().map(|result| result.len()), Some(length));
    }
    assert_eq!(idem.list(None, 100).await.unwrap().records.len(), lengths.len());
    assert!(idem.forget(request(9).key()).await.unwrap());
    clock.advance(Duration::from_millis(5));
    again.advance(Duration::from_millis(5));
    assert_eq!(idem.purge(100).await.unwrap(), Purged::new(lengths.len() - 1, false));
    assert_eq!(entries(&idem, "idem.records"), 0);
    assert_eq!(entries(&idem, "idem.pieces"), 0);
}

fn entries(idem: &Idem<SledStore>, tree: &str) -> usize {
    idem.store().db().unwrap().open_tree(tree).unwrap().len()
}

#[tokio::test]
async fn expiries_of_the_longest_keys_that_share_a_batch_are_purged_and_leave_nothing() {
    let folder = TempDir::new().unwrap();
    let (idem, clock) = quick(folder.path()).await;
    let long = |name: usize| {
        let key = Key::new(&"t".repeat(255), &"o".repeat(255), format!("{name:0255}")).unwrap();
        Request::new(key).retain(Duration::from_millis(5))
    };
    let calls = (0..400).map(|name| {
        let idem = idem.clone();
        tokio::spawn(async move { idem.execute(&long(name), |_| Ok(())).await.unwrap() })
    });
    for call in calls.collect::<Vec<_>>() {
        assert_eq!(call.await.unwrap(), Outcome::Created(()));
    }
    assert!(entries(&idem, "idem.pieces") > 0, "they share batches");
    assert_eq!(idem.purge(1_000).await.unwrap(), Purged::new(0, false));
    clock.advance(Duration::from_millis(5));
    assert_eq!(idem.purge(150).await.unwrap(), Purged::new(150, true));
    assert_eq!(idem.purge(1_000).await.unwrap(), Purged::new(250, false));
    assert_eq!(entries(&idem, "idem.expiry"), 0);
    assert_eq!(entries(&idem, "idem.pieces"), 0);
    assert_eq!(blobs(folder.path()), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_reads_while_a_value_is_replaced_sees_pieces_of_one_commit() {
    let folder = TempDir::new().unwrap();
    let (idem, _) = quick(folder.path()).await;
    let put = |idem: Idem<SledStore>, name: u8| async move {
        let length = 100_000 + 10_000 * usize::from(name % 5);
        let effect = move |tx: &mut SledTransaction| Ok(tx.put(b"large", &vec![name; length])?);
        assert_eq!(idem.execute(&request(name), effect).await.unwrap(), Outcome::Created(()));
    };
    put(idem.clone(), 0).await;
    let writer = tokio::spawn({
        let idem = idem.clone();
        async move {
            for name in 1..100 {
                put(idem.clone(), name).await;
            }
        }
    });
    while !writer.is_finished() {
        let value = idem.value(&space(), b"large").await.unwrap().unwrap();
        let name = value[0];
        assert!(value.iter().all(|byte| *byte == name), "bytes of two commits");
        assert_eq!(value.len(), 100_000 + 10_000 * usize::from(name % 5));
    }
    writer.await.unwrap();
}

fn is_too_large(result: Result<Outcome<()>, Error>, length: usize, most: usize) {
    let error = result.unwrap_err();
    let ErrorKind::TooLarge { bytes, limit } = *error.kind() else { panic!("{error:?}") };
    assert_eq!((bytes, limit), (length, Some(most)));
    assert_eq!(error.certainty(), Certainty::NothingDone);
}

#[tokio::test]
async fn an_entry_of_a_tree_whose_space_would_not_be_used_again_is_refused() {
    let folder = TempDir::new().unwrap();
    let (idem, _) = quick(folder.path()).await;
    let insert = |length: usize| {
        move |tx: &mut SledTransaction| Ok(tx.tree("mine")?.insert("four", vec![7; length])?)
    };
    let most = 32 << 10;
    let stored = idem.execute(&request("at"), insert(most - 4)).await.unwrap();
    assert_eq!(stored, Outcome::Created(()));
    is_too_large(idem.execute(&request("over"), insert(most - 3)).await, most + 1, most);
    assert_eq!(idem.receipt(request("over").key()).await.unwrap(), None);
    // A name of a portable value stands with the tenant's and the lengths of both.
    let put = |length: usize| move |tx: &mut SledTransaction| Ok(tx.put(&vec![b'n'; length], b"")?);
    let around = space().to_bytes(b"").len();
    let most = 4 << 10;
    let stored = idem.execute(&request("name"), put(most - around)).await.unwrap();
    assert_eq!(stored, Outcome::Created(()));
    is_too_large(idem.execute(&request("long"), put(most - around + 1)).await, most + 1, most);
}

#[tokio::test]
async fn entries_of_the_largest_size_take_no_more_space_the_longer_it_goes_on() {
    let folder = TempDir::new().unwrap();
    let (idem, _) = quick(folder.path()).await;
    let mut sizes = Vec::new();
    for name in 0..1_500_u32 {
        // Far from each other, so that pages are split and merged everywhere.
        let key = |name: u32| name.wrapping_mul(2_654_435_769).to_be_bytes();
        let effect = move |tx: &mut SledTransaction| {
            let mut tree = tx.tree("mine")?;
            tree.insert(key(name), vec![7; (32 << 10) - 4])?;
            Ok(tree.remove(key(name.wrapping_sub(50)))?)
        };
        assert_eq!(idem.execute(&request(name), effect).await.unwrap(), Outcome::Created(()));
        if name % 250 == 249 {
            sizes.push(log_size(folder.path()));
            assert_eq!(blobs(folder.path()), 0, "after {name}");
        }
    }
    assert!(sizes.iter().all(|size| *size < 64 * MIB), "{sizes:?}");
}

#[tokio::test]
async fn large_entries_that_replace_each_other_while_receipts_stay_take_no_more_space() {
    let folder = TempDir::new().unwrap();
    let (idem, _) = quick(folder.path()).await;
    let mut sizes = Vec::new();
    for name in 0..300_u16 {
        let effect = move |tx: &mut SledTransaction| {
            let mut tree = tx.tree("mine")?;
            for number in 0..31_u8 {
                tree.insert([number], vec![name.to_be_bytes()[1]; 32_000])?;
            }
            Ok(())
        };
        assert_eq!(idem.execute(&request(name), effect).await.unwrap(), Outcome::Created(()));
        if name % 100 == 99 {
            sizes.push(log_size(folder.path()));
        }
    }
    // A megabyte lives beside the receipts, and three hundred were written.
    assert!(sizes[2] < 48 * MIB, "{sizes:?}");
}

/// Which segments the engine says that a folder has.
fn segment_size(folder: &Path) -> String {
    let settings = fs::read(folder.join("conf")).unwrap();
    String::from_utf8_lossy(&settings).lines().next().unwrap().to_string()
}

/// Makes of an open store's folder what an earlier version would have left: nothing is in pieces, and the version is 1.
async fn as_an_earlier_version_left(idem: Idem<SledStore>, folder: &Path) {
    let db = idem.store().db().unwrap();
    let pieces = db.open_tree("idem.pieces").unwrap();
    for (tag, tree) in [(0, "idem.records"), (1, "idem.values")] {
        let tree = db.open_tree(tree).unwrap();
        for (name, mut whole) in tree.iter().map(Result::unwrap) {
            for number in 1_u32.. {
                let name = [&[tag], &*name, &number.to_be_bytes()].concat();
                let Some(piece) = pieces.remove(name).unwrap() else { break };
                whole = [&*whole, &*piece].concat().into();
            }
            tree.insert(name, whole).unwrap();
        }
    }
    assert!(db.drop_tree("idem.pieces").unwrap());
    db.open_tree("idem.meta").unwrap().insert("version", &1_u64.to_be_bytes()).unwrap();
    drop((db, pieces));
    idem.close().await.unwrap();
    let mark = fs::read_to_string(folder.join("idem")).unwrap();
    let batches = mark.split_whitespace().nth(2).unwrap();
    fs::write(folder.join("idem"), format!("idem-sled 1 {batches}\n")).unwrap();
}

#[tokio::test]
async fn a_folder_of_an_earlier_version_opens_with_its_segments_and_keeps_what_is_in_it() {
    let folder = TempDir::new().unwrap();
    drop(sled::open(folder.path()).unwrap());
    let (idem, clock) = quick(folder.path()).await;
    // One is as long as a piece of such a folder.
    let lengths = [0, 100, 4_000, 4_096, 20_000, 300_000, 1 << 20];
    for (name, length) in lengths.into_iter().enumerate() {
        store(&idem, name, length, 50).await;
        let effect = move |tx: &mut SledTransaction| {
            tx.put(format!("value {length}").as_bytes(), &vec![9; length])?;
            Ok(tx.tree("mine")?.insert(format!("value {length}"), vec![8; length])?)
        };
        let stored = idem.execute(&request(format!("effect {length}")), effect).await.unwrap();
        assert_eq!(stored, Outcome::Created(()));
    }
    as_an_earlier_version_left(idem, folder.path()).await;
    for _ in 0..2 {
        let (idem, _) = quick(folder.path()).await;
        assert_eq!(segment_size(folder.path()), "segment_size: 524288");
        let mine = idem.store().db().unwrap().open_tree("mine").unwrap();
        for (name, length) in lengths.into_iter().enumerate() {
            let replayed = idem.execute_bytes(&request(name), |_| panic!("it must replay")).await;
            assert_eq!(replayed.unwrap().result().map(|result| result.len()), Some(length));
            let name = format!("value {length}");
            let value = idem.value(&space(), name.as_bytes()).await.unwrap().unwrap();
            assert!(value == vec![9; length], "{name}");
            assert!(*mine.get(name).unwrap().unwrap() == vec![8; length][..]);
        }
        drop(mine);
        idem.close().await.unwrap();
    }
    let size = {
        let (idem, clock) = quick(folder.path()).await;
        clock.advance(Duration::from_millis(50));
        assert_eq!(idem.purge(100).await.unwrap().removed, lengths.len());
        assert_eq!(idem.list(None, 100).await.unwrap().records.len(), lengths.len());
        let size = idem.store().size_on_disk().await.unwrap();
        idem.close().await.unwrap();
        size
    };
    drop(clock);
    assert!(size.blobs > 0 && size.bytes > size.blob_bytes + log_size(folder.path()), "{size:?}");
    assert!(fs::read_to_string(folder.path().join("idem")).unwrap().starts_with("idem-sled 2 "));
}

#[tokio::test]
async fn a_folder_of_an_earlier_version_is_moved_to_the_new_segments_by_copying() {
    let (folder, moved) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    drop(sled::open(folder.path()).unwrap());
    let (idem, _) = quick(folder.path()).await;
    for (name, length) in [100, 300_000].into_iter().enumerate() {
        store(&idem, name, length, 50).await;
    }
    as_an_earlier_version_left(idem, folder.path()).await;
    {
        let old = sled::open(folder.path()).unwrap();
        let config = sled::Config::new().path(moved.path()).segment_size(SEGMENT_SIZE);
        let new = config.open().unwrap();
        new.import(old.export());
        new.flush().unwrap();
    }
    let (idem, clock) = quick(moved.path()).await;
    assert_eq!(segment_size(moved.path()), "segment_size: 4194304");
    for (name, length) in [100, 300_000].into_iter().enumerate() {
        let replayed = idem.execute_bytes(&request(name), |_| panic!("it must replay")).await;
        assert_eq!(replayed.unwrap().result().map(|result| result.len()), Some(length));
    }
    clock.advance(Duration::from_millis(50));
    assert_eq!(idem.purge(100).await.unwrap(), Purged::new(2, false));
    assert_eq!(blobs(moved.path()), 0);
}

#[tokio::test]
async fn a_folder_of_an_earlier_version_grows_no_further_by_receipts_and_portable_values() {
    let folder = TempDir::new().unwrap();
    drop(sled::open(folder.path()).unwrap());
    let (idem, clock) = quick(folder.path()).await;
    for name in 0..600 {
        store(&idem, name, if name % 20 == 0 { 300_000 } else { 20_000 }, 20).await;
        clock.advance(Duration::from_millis(1));
        if name % 10 == 9 {
            idem.purge(100).await.unwrap();
        }
    }
    let size = idem.store().size_on_disk().await.unwrap();
    assert_eq!(size.blobs, 0, "{size:?}");
    assert!(size.bytes < 24 * MIB, "{size:?}");
    let closed = idem.clone();
    idem.close().await.unwrap();
    let error = closed.store().size_on_disk().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Closed), "{error:?}");
}
