//! Handles, threads and processes on one file, and closing it.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

mod common;

use std::{
    fs,
    path::Path,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use common::{nothing, opened, query, request};
use idem_core::{
    Certainty, Error, ErrorKind, Idem, Outcome,
    consumer::{Marked, Recorder},
};
use idem_sqlite::{SqliteStore, SqliteTransaction, Synchronous};
use rusqlite::Connection;
use tempfile::TempDir;
use tokio::sync::Barrier;

#[tokio::test]
async fn after_closing_every_call_says_so_and_closing_again_is_harmless() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    for store in [
        SqliteStore::open(&path).await.unwrap(),
        SqliteStore::builder().dedicated_writer(true).open(&path).await.unwrap(),
        SqliteStore::open_in_memory().await.unwrap(),
    ] {
        let idem = Idem::new(store.clone());
        let run = idem.execute(&request("a"), nothing).await.unwrap();
        assert_eq!(run.result(), Some(()));
        idem.close().await.unwrap();
        idem.close().await.unwrap();
        let closed = |error: Error| assert!(matches!(error.kind(), ErrorKind::Closed), "{error:?}");
        closed(idem.execute(&request("a"), nothing).await.unwrap_err());
        closed(idem.execute(&request("b"), nothing).await.unwrap_err());
        closed(idem.receipt(request("a").key()).await.unwrap_err());
        closed(idem.forget(request("a").key()).await.unwrap_err());
        closed(idem.purge(1).await.unwrap_err());
        closed(idem.list(None, 1).await.unwrap_err());
        closed(idem.value(&request("a").key().space(), b"x").await.unwrap_err());
        closed(store.is_processed("c", "1").await.unwrap_err());
        closed(store.mark_processed("c", "1").await.unwrap_err());
    }
    // The last one who closes a file takes its log away.
    assert!(!path.with_extension("db-wal").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn closing_waits_for_what_is_under_way() {
    let folder = TempDir::new().unwrap();
    let idem = opened(&folder.path().join("store.db")).await.unwrap();
    let (started, starts) = std::sync::mpsc::channel();
    let (finish, finished) = std::sync::mpsc::channel::<()>();
    let running = tokio::spawn({
        let idem = idem.clone();
        async move {
            let effect = move |_: &mut SqliteTransaction| {
                started.send(()).map_err(|_| "nobody waits for the start")?;
                finished.recv().map_err(|_| "nobody lets it finish")?;
                Ok(())
            };
            idem.execute(&request("slow"), effect).await
        }
    });
    tokio::task::spawn_blocking(move || starts.recv()).await.unwrap().unwrap();
    let closing = tokio::spawn({
        let idem = idem.clone();
        async move { idem.close().await }
    });
    // The closing has begun as soon as new calls are refused.
    while !matches!(
        idem.receipt(request("x").key())
            .await
            .map_err(|error| matches!(error.kind(), ErrorKind::Closed)),
        Err(true)
    ) {
        tokio::task::yield_now().await;
    }
    assert!(!closing.is_finished(), "it must wait for the effect");
    finish.send(()).unwrap();
    assert_eq!(running.await.unwrap().unwrap(), Outcome::Created(()));
    closing.await.unwrap().unwrap();
    let again = opened(&folder.path().join("store.db")).await.unwrap();
    assert_eq!(again.execute(&request("slow"), nothing).await.unwrap(), Outcome::Replayed(()));
}

#[tokio::test]
async fn an_effect_that_holds_the_last_handle_is_dropped_without_a_hang() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    let store = SqliteStore::builder().dedicated_writer(true).open(&path).await.unwrap();
    let idem = Idem::new(store.clone());
    let (dropped, drops) = tokio::sync::oneshot::channel::<()>();
    let foreign = Connection::open(&path).unwrap();
    foreign.execute_batch("BEGIN IMMEDIATE").unwrap();
    let request = request("a");
    let effect = move |_: &mut SqliteTransaction| {
        let _held = (&store, &dropped);
        Ok(())
    };
    let mut running = Box::pin(idem.execute(&request, effect));
    let waker = std::task::Waker::noop();
    assert!(running.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_pending());
    drop(running);
    drop(idem);
    foreign.execute_batch("COMMIT").unwrap();
    let gone = tokio::time::timeout(Duration::from_secs(20), drops).await;
    assert!(gone.expect("the writer must drop the effect").is_err());
    // The store is closed in the background: then this connection is the last, and gets the file alone.
    let alone = async {
        while foreign
            .execute_batch("PRAGMA journal_mode = DELETE; BEGIN EXCLUSIVE; COMMIT")
            .is_err()
        {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), alone).await.expect("the store must close");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_effect_that_closes_or_drops_its_own_store_elsewhere_ends() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    let builder = || SqliteStore::builder().busy_timeout(Duration::from_millis(300));
    let idem = Idem::new(builder().open(&path).await.unwrap());
    let closing = idem.clone();
    let effect = move |_: &mut SqliteTransaction| {
        let closing = closing.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let closed = std::thread::spawn(move || runtime.block_on(closing.close()));
        let error = closed.join().expect("it does not panic").unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Busy { .. }), "{error:?}");
        assert!(error.with_causes().to_string().contains("close again"), "{error:?}");
        Ok(())
    };
    let outcome = idem.execute(&request("a"), effect).await;
    assert_eq!(outcome.unwrap(), Outcome::Created(()));
    let error = idem.execute(&request("b"), nothing).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Closed), "{error:?}");
    let again = Idem::new(builder().open(&path).await.unwrap());
    assert_eq!(again.execute(&request("a"), nothing).await.unwrap(), Outcome::Replayed(()));
}

#[tokio::test]
async fn a_foreign_lock_is_waited_for_up_to_the_timeout_and_nothing_is_done() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    let builder = SqliteStore::builder().busy_timeout(Duration::from_millis(200));
    let idem = Idem::new(builder.open(&path).await.unwrap());
    assert_eq!(idem.execute(&request("before"), nothing).await.unwrap(), Outcome::Created(()));
    let foreign = Connection::open(&path).unwrap();
    foreign.execute_batch("BEGIN IMMEDIATE").unwrap();
    let start = Instant::now();
    let error = idem.execute(&request("a"), nothing).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Busy { .. }), "{error:?}");
    assert_eq!(error.certainty(), Certainty::NothingDone);
    assert!(start.elapsed() >= Duration::from_millis(200), "it waits as long as it may");
    let told = error.with_causes().to_string();
    assert!(told.contains("another process") && told.contains("busy_timeout"), "{told}");
    let replayed = idem.execute(&request("before"), nothing).await.unwrap();
    assert_eq!(replayed, Outcome::Replayed(()), "a replay needs no lock");
    foreign.execute_batch("COMMIT").unwrap();
    assert_eq!(idem.execute(&request("a"), nothing).await.unwrap(), Outcome::Created(()));
}

#[tokio::test]
async fn what_has_nothing_to_write_needs_no_lock() {
    for dedicated in [false, true] {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("store.db");
        let builder = SqliteStore::builder()
            .dedicated_writer(dedicated)
            .busy_timeout(Duration::from_secs(60));
        let idem = Idem::new(builder.open(&path).await.unwrap());
        // So many new keys that the next calls lead without looking.
        for number in 0..9 {
            let outcome = idem.execute(&request(&number.to_string()), nothing).await.unwrap();
            assert_eq!(outcome, Outcome::Created(()));
        }
        assert_eq!(idem.mark_processed("billing", "1").await.unwrap(), Marked::First);
        let foreign = Connection::open(&path).unwrap();
        foreign.execute_batch("BEGIN IMMEDIATE").unwrap();
        let start = Instant::now();
        assert_eq!(idem.execute(&request("0"), nothing).await.unwrap(), Outcome::Replayed(()));
        assert_eq!(idem.mark_processed("billing", "1").await.unwrap(), Marked::Again);
        assert!(idem.is_processed("billing", "1").await.unwrap());
        assert!(!idem.forget(request("absent").key()).await.unwrap());
        assert!(idem.receipt(request("0").key()).await.unwrap().is_some());
        assert!(start.elapsed() < Duration::from_secs(30), "nothing may wait for the lock");
        foreign.execute_batch("COMMIT").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_handles_open_a_fresh_file_at_once() {
    for _ in 0..10 {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("store.db");
        let barrier = Arc::new(Barrier::new(8));
        let opening = (0..8).map(|number| {
            let (path, barrier) = (path.clone(), Arc::clone(&barrier));
            tokio::spawn(async move {
                barrier.wait().await;
                let idem = opened(&path).await.unwrap();
                idem.execute(&request("a"), move |_| Ok(number)).await.unwrap()
            })
        });
        let mut outcomes = Vec::new();
        for opened in opening.collect::<Vec<_>>() {
            outcomes.push(opened.await.unwrap());
        }
        let created: Vec<_> =
            outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Created(_))).collect();
        assert_eq!(created.len(), 1, "{outcomes:?}");
        let first = created[0].result();
        assert!(outcomes.iter().all(|outcome| outcome.result() == first), "{outcomes:?}");
        assert_eq!(query::<i64>(&path, "SELECT count(*) FROM idem_version"), 1);
        assert_eq!(query::<i64>(&path, "SELECT count(*) FROM idem_token"), 1);
    }
}

#[tokio::test]
async fn several_processes_share_a_file() {
    const PATH: &str = "IDEM_TEST_SHARED_FILE";
    if let Ok(path) = std::env::var(PATH) {
        return share(&opened(Path::new(&path)).await.unwrap()).await;
    }
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    let sql = "CREATE TABLE orders (id INTEGER PRIMARY KEY)";
    Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    // This very test, in processes that find the path in their environment.
    let children = (0..4).map(|_| {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "several_processes_share_a_file"]).env(PATH, &path);
        child.spawn().unwrap()
    });
    for mut child in children.collect::<Vec<_>>() {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(query::<i64>(&path, "SELECT count(*) FROM orders"), 50);
    assert_eq!(query::<i64>(&path, "SELECT count(*) FROM idem_records"), 50);
}

async fn share(idem: &Idem<SqliteStore>) {
    for number in 0..50 {
        let request = request(&format!("shared-{number}"));
        let effect = |tx: &mut SqliteTransaction| {
            tx.execute("INSERT INTO orders DEFAULT VALUES", [])?;
            Ok(tx.last_insert_rowid())
        };
        let outcome = idem.execute(&request, effect).await.unwrap();
        assert!(matches!(outcome, Outcome::Created(_) | Outcome::Replayed(_)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_log_stays_bounded_under_load() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    let builder = SqliteStore::builder().synchronous(Synchronous::Normal);
    let idem = Idem::new(builder.open(&path).await.unwrap());
    let writing = (0..4).map(|task| {
        let idem = idem.clone();
        tokio::spawn(async move {
            for number in 0..250 {
                let request = request(&format!("{task}-{number}"));
                let outcome = idem.execute(&request, |_| Ok("x".repeat(100_000))).await.unwrap();
                assert!(matches!(outcome, Outcome::Created(_)));
            }
        })
    });
    for task in writing.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let log = fs::metadata(folder.path().join("store.db-wal")).unwrap().len();
    // Well below the backstop of 16000 pages, at which the writer itself would copy.
    assert!(log < 48 << 20, "of 100 MB written the log still holds {log} bytes");
}
