//! Tests in which the disk fails at each of an operation's syncs in turn.

use std::{fs, io, path::Path, sync::Arc, time::Duration};

use idem_conformance::{
    callers::within,
    operations::{Operation, Phase, seen},
};
use idem_core::locks::Mutex;
use idem_core::{Certainty, Error, ErrorKind, Idem, ManualClock, Timestamp};
use tempfile::TempDir;

use crate::{SledBuilder, SledStore, database::Database, disk::Disk, failure::Trouble, opening};

/// When a sync fails.
#[derive(Clone, Copy, Debug)]
enum When {
    /// Before anything was written through.
    Before,
    /// When all was.
    After,
}

/// Which sync fails next, if any does: the first is 1.
type Fault = Arc<Mutex<Option<(usize, When)>>>;

/// A disk that fails once, as it is told.
struct Failing {
    disk: Box<dyn Disk>,
    fault: Fault,
}

impl Failing {
    fn around(
        &mut self,
        work: impl FnOnce(&mut dyn Disk) -> Result<(), Trouble>,
    ) -> Result<(), Trouble> {
        let mut fault = self.fault.lock();
        let error = || io::Error::other("the disk was told to fail").into();
        match &mut *fault {
            Some((1, when)) => {
                if let When::After = *when {
                    work(&mut *self.disk)?;
                }
                *fault = None;
                Err(error())
            }
            Some((left, _)) => {
                *left -= 1;
                work(&mut *self.disk)
            }
            None => work(&mut *self.disk),
        }
    }
}

impl Disk for Failing {
    fn make_durable(&mut self, database: &Database) -> Result<(), Trouble> {
        self.around(|disk| disk.make_durable(database))
    }

    fn sync(&mut self, database: &Database) -> Result<(), Trouble> {
        self.around(|disk| disk.sync(database))
    }
}

/// A folder, and a clock that stands still unless it is moved.
struct Place {
    folder: TempDir,
    clock: ManualClock,
}

impl Place {
    fn new() -> Self {
        let clock = ManualClock::at(Timestamp::from_millis(1_700_000_000_123));
        Self { folder: TempDir::new().unwrap(), clock }
    }

    fn options(&self) -> SledBuilder {
        SledStore::builder().clock(self.clock.clone()).busy_timeout(Duration::from_secs(5))
    }

    fn failing(&self, fault: &Fault) -> Idem<SledStore> {
        let options = self.options();
        let opened = opening::open(&options, self.folder.path()).unwrap();
        let fault = fault.clone();
        let failing = |disk| Box::new(Failing { disk, fault }) as Box<dyn Disk>;
        Idem::new(SledStore::start_with(&options, opened, failing).unwrap())
    }

    async fn opened(&self, folder: &Path) -> Idem<SledStore> {
        Idem::new(self.options().open(folder).await.unwrap())
    }

    /// A copy of the folder as a crash would leave it now.
    fn crashed(&self) -> TempDir {
        let copy = TempDir::new().unwrap();
        fs::create_dir(copy.path().join("blobs")).unwrap();
        for entry in fs::read_dir(self.folder.path()).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_file() {
                fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
            }
        }
        copy
    }
}

fn is_the_disks(error: &Error) {
    assert!(matches!(error.kind(), ErrorKind::Store), "{error:?}");
}

/// Tries an operation whose sync of that number fails; whether there was one.
async fn fails_at(operation: Operation, number: usize, when: When) -> bool {
    let (place, fault) = (Place::new(), Fault::default());
    let idem = place.failing(&fault);
    let lease = operation.prepare(&idem).await.unwrap();
    place.clock.advance(Duration::from_millis(1));
    assert_eq!(seen(&idem).await.unwrap(), operation.states().0);
    *fault.lock() = Some((number, when));
    let what = format!("{operation:?}, {number}, {when:?}");
    let answer = within(&what, operation.ask(&idem, lease)).await;
    let has_failed = fault.lock().take().is_none();
    let crashed = place.crashed();
    if let Err(error) = &answer {
        is_the_disks(error);
        assert!(has_failed, "{what}: {error:?}");
    }
    if has_failed && operation != Operation::Drop {
        // Nothing more is committed, and nothing is said of it.
        let later = operation.ask_again(&idem, (Phase::Free, 0)).await.unwrap_err();
        is_the_disks(&later);
    }
    let closed = within(&what, idem.close()).await;
    assert!(closed.is_err() == has_failed || operation == Operation::Drop, "{what}: {closed:?}");
    drop(idem);
    for folder in [crashed.path(), place.folder.path()] {
        let idem = place.opened(folder).await;
        let seen = seen(&idem).await.unwrap();
        operation.agrees(&answer, seen);
        if !has_failed {
            assert_eq!(seen, operation.states().1, "{what}: undisturbed");
        }
        operation.ask_again(&idem, seen).await.unwrap();
        idem.close().await.unwrap();
    }
    has_failed
}

/// Tries each sync of an operation in turn, until there is none that fails.
async fn fails_at_each(operation: Operation, when: When) {
    let mut number = 1;
    while fails_at(operation, number, when).await {
        number += 1;
    }
    let (before, after) = operation.states();
    assert!(number > 1 || before == after, "{operation:?} syncs nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_whose_sync_fails_is_whole_or_not_there_and_settled_when_asked_again() {
    let each = Operation::ALL.into_iter().flat_map(|operation| {
        [When::Before, When::After].map(|when| tokio::spawn(fails_at_each(operation, when)))
    });
    for tried in each.collect::<Vec<_>>() {
        tried.await.unwrap();
    }
}

#[tokio::test]
async fn what_a_failed_sync_leaves_is_unknown_to_its_caller() {
    let (place, fault) = (Place::new(), Fault::default());
    let idem = place.failing(&fault);
    *fault.lock() = Some((1, When::After));
    let error = Operation::Execute.ask(&idem, None).await.unwrap_err();
    assert_eq!(error.certainty(), Certainty::Unknown);
}
