//! What the store says when the disk fails under it, and what is there when the database is opened again.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

mod common;

use std::{
    fs::OpenOptions,
    io::{self, ErrorKind::StorageFull},
    path::Path,
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use common::{on, order, orders, request};
use idem_core::{Certainty, ErrorKind, Idem, Outcome, SystemClock, Transaction, runtime};
use idem_example_redb::RedbStore;
use redb::{Database, StorageBackend, backends::FileBackend};
use tempfile::TempDir;

type Shared<T> = Arc<Mutex<T>>;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Call {
    Grow,
    Write,
    Sync,
}

/// A file that refuses one kind of call from some time on.
#[derive(Debug)]
struct Disk {
    file: FileBackend,
    refused: Shared<Option<Call>>,
    /// Held, it holds up every sync.
    syncs: Shared<()>,
}

impl Disk {
    fn check(&self, call: Call) -> io::Result<()> {
        let refuses = *self.refused.lock().unwrap() == Some(call);
        if refuses { Err(StorageFull.into()) } else { Ok(()) }
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.check(Call::Grow)?;
        self.file.set_len(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.check(Call::Sync)?;
        drop(self.syncs.lock().unwrap());
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(Call::Write)?;
        self.file.write(offset, data)
    }
}

/// A store on such a file, what the file refuses, and what holds up its syncs.
fn on_disk(path: &Path) -> (Idem<RedbStore>, Shared<Option<Call>>, Shared<()>) {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).open(path).unwrap();
    let (refused, syncs) = (Shared::default(), Shared::default());
    let file = FileBackend::new(file).unwrap();
    let disk = Disk { file, refused: Arc::clone(&refused), syncs: Arc::clone(&syncs) };
    (on(Database::builder().create_with_backend(disk).unwrap()), refused, syncs)
}

#[tokio::test]
async fn a_commit_that_failed_is_unknown_until_its_key_is_asked_again() {
    for call in [Call::Write, Call::Sync] {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("orders.redb");
        let (idem, refused, _) = on_disk(&path);
        assert_eq!(order(&idem, "a").await.unwrap(), Outcome::Created(1));
        *refused.lock().unwrap() = Some(call);
        let error = order(&idem, "b").await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Full), "{call:?}: {error:?}");
        assert_eq!(error.certainty(), Certainty::Unknown, "{call:?}");
        *refused.lock().unwrap() = None;
        // What may not be on the disk is not shown, and nothing more is written.
        let receipt = idem.receipt(request("b").key()).await;
        assert!(!matches!(receipt, Ok(Some(_))), "{call:?}: {receipt:?}");
        for name in ["b", "c"] {
            let error = order(&idem, name).await.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Store), "{call:?}: {error:?}");
            assert_eq!(error.certainty(), Certainty::NothingDone, "{call:?}");
        }
        assert!(
            idem.close().await.is_err(),
            "the closing says that the file is not as it should be"
        );
        let error = order(&idem, "a").await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Closed), "{call:?}: {error:?}");
        let idem = on(Database::open(&path).unwrap());
        assert_eq!(order(&idem, "a").await.unwrap(), Outcome::Replayed(1));
        assert_eq!(order(&idem, "b").await.unwrap().result(), Some(2), "one effect, now or then");
        assert_eq!(orders(&idem).await, Some(2), "{call:?}");
    }
}

#[tokio::test]
async fn an_effect_that_finds_no_room_did_nothing() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("orders.redb");
    let (idem, refused, _) = on_disk(&path);
    assert_eq!(order(&idem, "a").await.unwrap(), Outcome::Created(1));
    *refused.lock().unwrap() = Some(Call::Grow);
    let request_b = request("b");
    let large = idem.execute(&request_b, |tx| Ok(tx.put(b"large", &vec![1; 1 << 22])?));
    let error = large.await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Full), "{error:?}");
    assert_eq!(error.certainty(), Certainty::NothingDone);
    assert!(idem.close().await.is_err());
    let idem = on(Database::open(&path).unwrap());
    assert_eq!(idem.receipt(request_b.key()).await.unwrap(), None);
    assert_eq!(order(&idem, "b").await.unwrap(), Outcome::Created(2));
}

#[tokio::test]
async fn what_ends_in_the_background_while_the_disk_is_slow_holds_up_no_sleep() {
    let folder = TempDir::new().unwrap();
    let (idem, _, syncs) = on_disk(&folder.path().join("orders.redb"));
    let lease = idem.claim::<u8>(&request("a"), Duration::from_secs(60)).await.unwrap().lease();
    let held_up = syncs.lock().unwrap();
    drop(lease.unwrap());
    let (told, slept) = mpsc::channel();
    runtime::detach(Box::pin(async move {
        runtime::sleep(&SystemClock, Duration::from_millis(1)).await;
        told.send(()).unwrap();
    }));
    slept.recv_timeout(Duration::from_secs(20)).expect("a sleep needs no disk");
    drop(held_up);
    idem.close().await.unwrap();
}
