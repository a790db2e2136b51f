//! A whole store whose disk is full, or whose commits fail.

use std::time::Duration;

use idem_core::{
    Certainty, Claim, EffectError, Error, ErrorKind, Idem, Key, Lease, ManualClock, Outcome,
    Purged, Request, Timestamp, Transaction,
    consumer::{Marked, Recorder},
};
use rusqlite::ffi;
use tempfile::TempDir;

use crate::{SqliteStore, SqliteTransaction};

const LEASE: Duration = Duration::from_secs(3600);

/// Longer than the pages of a full disk have room for.
fn large() -> String {
    "x".repeat(100_000)
}

fn request(name: &str) -> Request {
    Request::new(Key::new("north", "order", name).unwrap()).retain(Duration::from_millis(1_000))
}

struct World {
    _folder: TempDir,
    clock: ManualClock,
    idem: Idem<SqliteStore>,
}

impl World {
    async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("store.db");
        let tables = "CREATE TABLE orders (name TEXT)";
        rusqlite::Connection::open(&path).unwrap().execute_batch(tables).unwrap();
        let clock = ManualClock::at(Timestamp::from_millis(0));
        let store = SqliteStore::builder().clock(clock.clone()).open(&path).await.unwrap();
        Self { _folder: folder, clock, idem: Idem::new(store) }
    }

    /// The engine's own bound on the file's size answers as a full disk does.
    fn is_full(&self, is_full: bool) {
        let more = if is_full { 0 } else { i32::MAX.into() };
        self.idem.store().engine().queue.borrow_writer(|writer| writer.bound_pages(more));
    }

    /// Has the next commit fail with an error of the disk, after it was done or instead of it.
    fn fail_commit(&self, after: bool) {
        let queue = &self.idem.store().engine().queue;
        queue.borrow_writer(|writer| writer.fail_commit(ffi::SQLITE_IOERR_FSYNC, after));
    }

    /// An effect in the user's own table, with a result that is as long as that.
    async fn order(&self, name: &'static str, result: String) -> Result<Outcome<String>, Error> {
        let effect = move |tx: &mut SqliteTransaction| order(tx, name, &result);
        self.idem.execute(&request(name), effect).await
    }

    async fn orders(&self) -> String {
        let reading = Request::new(Key::fresh("", "reading").unwrap());
        let read = |tx: &mut SqliteTransaction| {
            let names = "SELECT coalesce(group_concat(name ORDER BY name), '') FROM orders";
            Ok(tx.query_row(names, [], |row| row.get::<_, String>(0))?)
        };
        self.idem.execute(&reading, read).await.unwrap().result().unwrap()
    }

    async fn hold(&self, name: &str) -> Lease<SqliteStore, String> {
        match self.idem.claim(&request(name), LEASE).await.unwrap() {
            Claim::Acquired(lease) => lease,
            other => panic!("{other:?}"),
        }
    }
}

fn order(tx: &mut SqliteTransaction, name: &str, result: &str) -> Result<String, EffectError> {
    tx.execute("INSERT INTO orders VALUES (?1)", [name])?;
    Ok(result.to_string())
}

fn is_full(error: &Error) {
    assert!(matches!(error.kind(), ErrorKind::Full), "{error:?}");
    assert_eq!(error.certainty(), Certainty::NothingDone);
}

fn is_unknown(error: &Error) {
    assert!(matches!(error.kind(), ErrorKind::Store), "{error:?}");
    assert_eq!(error.certainty(), Certainty::Unknown);
}

#[tokio::test]
async fn on_a_full_disk_a_receipt_that_does_not_fit_leaves_no_effect_and_reading_goes_on() {
    let world = World::new().await;
    let created = world.order("before", "small".to_string()).await.unwrap();
    assert_eq!(created, Outcome::Created("small".to_string()));
    world.is_full(true);
    is_full(&world.order("a", large()).await.unwrap_err());
    let put = |tx: &mut SqliteTransaction| Ok(tx.put(b"large", large().as_bytes())?);
    is_full(&world.idem.execute(&request("put"), put).await.unwrap_err());
    // The engine has rolled back by itself: an effect that swallows that is no success.
    let swallow = |tx: &mut SqliteTransaction| {
        tx.execute("INSERT INTO orders VALUES ('swallows')", [])?;
        drop(tx.put(b"large", large().as_bytes()));
        Ok(())
    };
    is_full(&world.idem.execute(&request("swallows"), swallow).await.unwrap_err());

    let replayed = world.order("before", String::new()).await.unwrap();
    assert_eq!(replayed, Outcome::Replayed("small".to_string()));
    assert!(world.idem.receipt(request("before").key()).await.unwrap().is_some());
    assert!(world.idem.receipt(request("a").key()).await.unwrap().is_none());
    assert_eq!(world.idem.list(None, 10).await.unwrap().records.len(), 1);
    let space = request("put").key().space();
    assert_eq!(world.idem.value(&space, b"large").await.unwrap(), None);

    world.is_full(false);
    assert_eq!(world.orders().await, "before");
    assert_eq!(world.order("a", large()).await.unwrap(), Outcome::Created(large()));
    assert_eq!(world.idem.execute(&request("put"), put).await.unwrap(), Outcome::Created(()));
    assert_eq!(world.orders().await, "a,before");
}

#[tokio::test]
async fn on_a_full_disk_a_lease_that_cannot_be_completed_stays_held_and_completes_when_there_is_room()
 {
    let world = World::new().await;
    let lease = world.hold("a").await;
    world.is_full(true);
    let refused = lease.complete_with(|tx| order(tx, "a", &large())).await.unwrap_err();
    let (error, lease) = refused.into_parts();
    is_full(&error);
    let claim = world.idem.claim::<String>(&request("a"), LEASE).await.unwrap();
    assert!(matches!(claim, Claim::InProgress { .. }), "{claim:?}");
    world.is_full(false);
    assert_eq!(lease.complete_with(|tx| order(tx, "a", &large())).await.unwrap(), large());
    assert_eq!(world.orders().await, "a");
}

#[tokio::test]
async fn a_completion_whose_commit_failed_is_unknown_and_found_when_it_is_asked_again() {
    for is_committed in [false, true] {
        let world = World::new().await;
        let lease = world.hold("a").await;
        world.fail_commit(is_committed);
        let effect = |tx: &mut SqliteTransaction| order(tx, "a", "first");
        let (error, lease) = lease.complete_with(effect).await.unwrap_err().into_parts();
        is_unknown(&error);
        assert_eq!(lease.complete_with(effect).await.unwrap(), "first");
        assert_eq!(world.orders().await, "a", "committed {is_committed}");
    }
}

#[tokio::test]
async fn a_mark_and_a_claim_whose_commit_failed_are_unknown_and_the_same_call_tells() {
    for is_committed in [false, true] {
        let world = World::new().await;
        world.fail_commit(is_committed);
        is_unknown(&world.idem.mark_processed("billing", "1").await.unwrap_err());
        let expected = if is_committed { Marked::Again } else { Marked::First };
        assert_eq!(world.idem.mark_processed("billing", "1").await.unwrap(), expected);

        world.fail_commit(is_committed);
        is_unknown(&world.idem.claim::<String>(&request("a"), LEASE).await.unwrap_err());
        let claim = world.idem.claim::<String>(&request("a"), LEASE).await.unwrap();
        assert_eq!(matches!(claim, Claim::Acquired(_)), !is_committed, "{claim:?}");
    }
}

#[tokio::test]
async fn a_purge_whose_commit_failed_is_unknown_and_the_next_one_ends_it() {
    for is_committed in [false, true] {
        let world = World::new().await;
        for name in ["a", "b"] {
            let outcome = world.order(name, String::new()).await.unwrap();
            assert_eq!(outcome, Outcome::Created(String::new()));
        }
        world.clock.advance(Duration::from_millis(1_000));
        world.fail_commit(is_committed);
        is_unknown(&world.idem.purge(10).await.unwrap_err());
        let left = if is_committed { 0 } else { 2 };
        assert_eq!(world.idem.purge(10).await.unwrap(), Purged::new(left, false));
    }
}
