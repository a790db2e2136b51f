//! A store that can be disturbed, and what is asked of it afterwards.

use std::{fs, path::Path, thread, time::Duration};

use idem_conformance::{
    callers::within,
    operations::{Operation, Phase, seen},
};
use idem_core::{Certainty, Error, ErrorKind, Idem, Key, Lease, ManualClock, Timestamp};
use rusqlite::Connection;
use tempfile::TempDir;
use tokio::sync::OnceCell;

use super::{Case, Kind};
use crate::{
    SqliteStore, Synchronous,
    countdown::{Countdown, Lasts},
};

const NAME: &str = "store.db";

/// A bound for what comes at once, on a loaded machine too.
const PATIENCE: Duration = Duration::from_secs(20);

/// A store in the state before the operation, with a fault that is due at that number.
pub(super) struct Place {
    case: Case,
    folder: TempDir,
    clock: ManualClock,
    countdown: Countdown,
    number: usize,
    pub(super) idem: Idem<SqliteStore>,
    /// What a failure is called.
    pub(super) what: String,
}

impl Place {
    /// The store, and the lease that the operation is about.
    pub(super) async fn new(case: Case, number: usize) -> (Self, Option<Lease<SqliteStore, u64>>) {
        let clock = ManualClock::at(Timestamp::from_millis(1_700_000_000_123));
        let folder = TempDir::new().unwrap();
        if case.kind != Kind::Memory {
            fs::write(folder.path().join(NAME), empty().await).unwrap();
        }
        let idem = opened(&clock, case.kind, folder.path()).await;
        let countdown = Countdown::default();
        case.fault.threaten(idem.store().engine(), &countdown);
        let lease = case.operation.prepare(&idem).await.unwrap();
        clock.advance(Duration::from_millis(1));
        assert_eq!(seen(&idem).await.unwrap(), case.operation.states().0);
        countdown.arm(number, case.lasts);
        let what = format!("{case:?}, {number}");
        (Self { case, folder, clock, countdown, number, idem, what }, lease)
    }

    /// Ends the fault; whether it has struck.
    pub(super) fn calm(&self) -> bool {
        self.countdown.disarm()
    }

    /// Nothing fails but for the fault, and it is told as what it is.
    pub(super) fn is_told<T>(&self, has_struck: bool, answer: &Result<T, Error>) {
        if let Err(error) = answer {
            let is_told =
                matches!(error.kind(), ErrorKind::Store) && self.case.fault.is_told_by(error);
            assert!(has_struck && is_told, "{}: {error:?}", self.what);
        }
    }

    /// Checks all that there is after that answer.
    pub(super) async fn settle(&self, answer: &Result<(), Error>) {
        let Case { operation, lasts, kind, .. } = self.case;
        let (on_file, is_lasting) = (kind != Kind::Memory, lasts == Lasts::On);
        if on_file && operation != Operation::Drop {
            self.is_unlocked();
        }
        // Nobody was told of it: it is ended in the background, which may have failed as well.
        let is_unknown = |error: &Error| error.certainty() == Certainty::Unknown;
        let may_end = operation == Operation::Claim && answer.as_ref().is_err_and(is_unknown);
        // The one number is looked at in the same handle, the next when it is opened again; the other way if it lasts.
        let goes_on = !on_file || self.number.is_multiple_of(2) == is_lasting;
        if operation != Operation::Drop && goes_on && !(may_end && is_lasting) {
            if may_end {
                self.claim_ends().await;
            }
            self.goes_on(answer).await;
        } else {
            within(&self.what, self.idem.close()).await.unwrap();
            self.holds_again(answer).await;
        }
    }

    /// The same handle finds what was answered, goes on from there, and leaves what it says.
    async fn goes_on(&self, answer: &Result<(), Error>) {
        // The very next transaction has nothing in its way.
        let other = Key::new("north", "order", "other").unwrap();
        assert!(!self.idem.forget(&other).await.unwrap(), "{}", self.what);
        self.holds(answer, &self.idem).await;
        let left = seen(&self.idem).await.unwrap();
        within(&self.what, self.idem.close()).await.unwrap();
        if self.case.kind != Kind::Memory {
            let idem = self.opened_again().await;
            assert_eq!(seen(&idem).await.unwrap(), left, "{}", self.what);
            idem.close().await.unwrap();
        }
    }

    /// When it is opened again the store holds what was answered, and goes on from there.
    async fn holds_again(&self, answer: &Result<(), Error>) {
        if self.case.kind != Kind::Memory {
            let idem = self.opened_again().await;
            self.holds(answer, &idem).await;
            idem.close().await.unwrap();
        }
    }

    /// What the store holds is what was answered, and it goes on from there.
    async fn holds(&self, answer: &Result<(), Error>, idem: &Idem<SqliteStore>) {
        let found = seen(idem).await.unwrap();
        self.case.operation.agrees(answer, found);
        self.case.operation.ask_again(idem, found).await.unwrap();
    }

    async fn claim_ends(&self) {
        let ended = async {
            while seen(&self.idem).await.unwrap().0 == Phase::Held {
                tokio::task::yield_now().await;
            }
        };
        within(&self.what, ended).await;
    }

    /// No connection holds the lock of the file any more.
    fn is_unlocked(&self) {
        let connection = Connection::open(self.folder.path().join(NAME)).unwrap();
        connection.busy_timeout(PATIENCE).unwrap();
        let begun = connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK");
        assert!(begun.is_ok(), "{}: {begun:?}", self.what);
    }

    async fn opened_again(&self) -> Idem<SqliteStore> {
        opened(&self.clock, self.case.kind, self.folder.path()).await
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("this is {}", self.what);
        }
    }
}

/// A database with idem's tables: making them anew each time would take most of the time.
async fn empty() -> &'static [u8] {
    static EMPTY: OnceCell<Vec<u8>> = OnceCell::const_new();
    let make = async || {
        let folder = TempDir::new().unwrap();
        let clock = ManualClock::at(Timestamp::from_millis(0));
        let idem = opened(&clock, Kind::File, folder.path()).await;
        idem.close().await.unwrap();
        fs::read(folder.path().join(NAME)).unwrap()
    };
    EMPTY.get_or_init(make).await
}

async fn opened(clock: &ManualClock, kind: Kind, folder: &Path) -> Idem<SqliteStore> {
    let options = SqliteStore::builder().clock(clock.clone()).busy_timeout(PATIENCE);
    let path = folder.join(NAME);
    let store = match kind {
        Kind::File => options.synchronous(Synchronous::Normal).open(path).await,
        Kind::Dedicated => options.dedicated_writer(true).open(path).await,
        Kind::Memory => options.open_in_memory().await,
    };
    Idem::new(store.unwrap())
}
