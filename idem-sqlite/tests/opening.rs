//! Opening a file, and what is in it.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

mod common;

use std::{fs, time::Duration};

use common::{nothing, opened, query, request};
use idem_core::{
    Certainty, Durability, Error, ErrorKind, Idem, Key, ManualClock, Outcome, Purged, Request,
    Timestamp,
};
use idem_sqlite::{SqliteStore, Synchronous};
use rusqlite::Connection;
use tempfile::TempDir;

fn problem(opened: Result<SqliteStore, Error>) -> String {
    let Err(error) = opened else { panic!("this must not open") };
    assert_eq!(error.certainty(), Certainty::NothingDone);
    assert!(matches!(error.kind(), ErrorKind::CannotOpen { .. }), "{error:?}");
    error.to_string()
}

#[tokio::test]
async fn what_is_no_database_is_refused_by_its_path_and_left_as_it_was() {
    let folder = TempDir::new().unwrap();
    let text = folder.path().join("text.db");
    let content = "no database, but long enough to be taken for one ".repeat(100);
    fs::write(&text, &content).unwrap();
    let refused = problem(SqliteStore::open(&text).await);
    assert!(refused.contains("text.db") && refused.contains("not a database"), "{refused}");
    assert_eq!(fs::read_to_string(&text).unwrap(), content);

    let refused = problem(SqliteStore::open(folder.path().join("missing/store.db")).await);
    assert!(refused.contains("missing/store.db") && refused.contains("folder"), "{refused}");
    assert!(!folder.path().join("missing").exists());

    let refused = problem(SqliteStore::open(folder.path()).await);
    assert!(refused.contains(&folder.path().display().to_string()), "{refused}");
    assert!(refused.contains("it is a folder"), "{refused}");
}

#[tokio::test]
async fn what_keeps_a_database_from_being_opened_is_named() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    let idem = opened(&path).await.unwrap();
    idem.close().await.unwrap();
    for suffix in ["-wal", "-shm"] {
        let companion = folder.path().join(format!("store.db{suffix}"));
        fs::create_dir(&companion).unwrap();
        let refused = problem(SqliteStore::open(&path).await);
        assert!(refused.contains(&format!("store.db{suffix} is not a file")), "{refused}");
        fs::remove_dir(&companion).unwrap();
    }
    opened(&path).await.unwrap();
    let refused = problem(SqliteStore::open(path.join("store.db")).await);
    assert!(refused.contains("store.db is not a folder"), "{refused}");
    let refused = problem(SqliteStore::open(folder.path().join("missing/store.db")).await);
    assert!(refused.contains("missing does not exist: create it"), "{refused}");
}

#[tokio::test]
async fn a_url_opens_the_stores_own_type_with_its_options_on_top_of_the_builders() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a store.db");
    let url = format!("SQLite:{}/a%20store.db?synchronous=normal", folder.path().display());
    let clock = ManualClock::at(Timestamp::from_millis(7));
    let builder = SqliteStore::builder().clock(clock).synchronous(Synchronous::Full);
    let idem = Idem::new(builder.open_url(&url).await.unwrap());
    assert_eq!(idem.guarantees().durability, Durability::ProcessCrash);
    let insert = |tx: &mut idem_sqlite::SqliteTransaction| {
        Ok(tx.query_row("SELECT 1 + 1", [], |row| row.get::<_, i64>(0))?)
    };
    assert_eq!(idem.execute(&request("a"), insert).await.unwrap(), Outcome::Created(2));
    assert_eq!(query::<i64>(&path, "SELECT created_at FROM idem_records"), 7);

    let memory = Idem::new(SqliteStore::open_url("sqlite::memory:").await.unwrap());
    assert_eq!(memory.guarantees().durability, Durability::Process);
    for (url, said) in [
        ("sled:orders", "write `sqlite:`"),
        ("sqlite:", "names no file"),
        ("sqlite://orders.db", "would begin a host"),
        ("sqlite::memory:?synchronous=off", "`full` or `normal`"),
        ("sqlite::memory:?sync=full", "has no option `sync`"),
    ] {
        let Err(error) = SqliteStore::open_url(url).await else { panic!("{url} is refused") };
        assert!(matches!(error.kind(), ErrorKind::InvalidSetting { .. }), "{url}: {error:?}");
        assert!(error.to_string().contains(said), "{url}: {error}");
    }
}

#[tokio::test]
async fn a_path_that_names_no_file_is_refused() {
    let Err(error) = SqliteStore::open("").await else { panic!("nothing is no file") };
    assert!(matches!(error.kind(), ErrorKind::InvalidSetting { field: "path", .. }), "{error}");
    let Err(error) = SqliteStore::open("a\0b").await else { panic!("a NUL is in no path") };
    assert!(matches!(error.kind(), ErrorKind::CannotOpen { .. }), "{error}");
}

#[tokio::test]
async fn the_path_memory_is_a_database_of_its_own_in_memory() {
    for _ in 0..2 {
        let store = SqliteStore::open(":memory:").await.unwrap();
        let idem = Idem::new(store);
        assert_eq!(idem.guarantees().durability, Durability::Process);
        assert_eq!(idem.execute(&request("a"), nothing).await.unwrap(), Outcome::Created(()));
    }
    assert!(!std::path::Path::new(":memory:").exists());
}

#[tokio::test]
async fn bad_options_are_refused() {
    for timeout in [Duration::ZERO, Duration::from_secs(1 << 40), Duration::MAX] {
        let opened = SqliteStore::builder().busy_timeout(timeout).open_in_memory().await;
        let Err(error) = opened else { panic!("{timeout:?} is no timeout") };
        assert!(matches!(error.kind(), ErrorKind::InvalidDuration { field: "busy timeout", .. }));
    }
}

#[tokio::test]
async fn a_name_that_looks_like_a_uri_is_a_name() {
    let folder = TempDir::new().unwrap();
    // A relative path is what the engine would take for a URI.
    let location = folder.path().join("file:odd?mode=memory");
    let idem = opened(&location).await.unwrap();
    assert_eq!(idem.execute(&request("a"), nothing).await.unwrap(), Outcome::Created(()));
    idem.close().await.unwrap();
    assert!(location.exists());
}

#[tokio::test]
async fn tables_of_a_newer_version_are_refused_untouched() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    let sql = "CREATE TABLE idem_version (version INTEGER); INSERT INTO idem_version VALUES (99)";
    Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    let before = fs::read(&path).unwrap();
    let Err(error) = SqliteStore::open(&path).await else { panic!("99 is newer") };
    assert!(
        matches!(error.kind(), ErrorKind::SchemaNewer { found: 99, supported: 2, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("store.db"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn tables_that_are_not_idems_are_refused() {
    let prepared = [
        ("CREATE TABLE idem_records (mine)", "rename yours"),
        ("CREATE VIEW idem_values AS SELECT 1", "rename yours"),
        ("CREATE TABLE idem_version (version INTEGER)", "version 0"),
        ("CREATE TABLE idem_version (version); INSERT INTO idem_version VALUES (-3)", "version -3"),
        ("CREATE TABLE idem_version (version); INSERT INTO idem_version VALUES (1)", "missing"),
    ];
    for (sql, said) in prepared {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("store.db");
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        let Err(error) = SqliteStore::open(&path).await else { panic!("{sql} is not idem's") };
        assert!(error.to_string().contains(said), "{sql}: {error}");
        assert!(error.to_string().contains("store.db"), "{sql}: {error}");
        let tables = "SELECT count(*) FROM sqlite_schema WHERE type IN ('table', 'view')";
        assert_eq!(query::<i64>(&path, tables), 1, "{sql}: nothing may be added");
    }
}

#[tokio::test]
async fn the_users_own_database_is_left_as_it_is() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    let sql = "CREATE TABLE mine (a); INSERT INTO mine VALUES (7);
               PRAGMA user_version = 42; PRAGMA application_id = 43;";
    Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    let idem = opened(&path).await.unwrap();
    assert_eq!(idem.execute(&request("a"), nothing).await.unwrap(), Outcome::Created(()));
    idem.close().await.unwrap();
    assert_eq!(query::<i64>(&path, "SELECT a FROM mine"), 7);
    assert_eq!(query::<i64>(&path, "PRAGMA user_version"), 42);
    assert_eq!(query::<i64>(&path, "PRAGMA application_id"), 43);
    let foreign = "SELECT count(*) FROM sqlite_schema
                   WHERE tbl_name != 'mine' AND tbl_name NOT LIKE 'idem\\_%' ESCAPE '\\'";
    assert_eq!(query::<i64>(&path, foreign), 0);
}

#[tokio::test]
async fn the_tables_read_well_in_a_shell() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    let idem = opened(&path).await.unwrap();
    let request = Request::new(Key::new("north", "order", "007").unwrap()).retain_forever();
    let outcome =
        idem.execute(&request, |_| Ok(vec!["é".to_string(), "b".to_string()])).await.unwrap();
    assert!(matches!(outcome, Outcome::Created(_)));
    let row: String = query(
        &path,
        "SELECT concat_ws('|', kind, tenant, operation, key, state, result, typeof(result),
                          typeof(created_at), coalesce(expires_at, 'never')) FROM idem_records",
    );
    assert_eq!(row, r#"request|north|order|007|completed|["é","b"]|text|integer|never"#);
}

#[tokio::test]
async fn a_file_that_was_moved_away_does_not_come_back_empty() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    let idem = opened(&path).await.unwrap();
    assert_eq!(idem.execute(&request("a"), nothing).await.unwrap(), Outcome::Created(()));
    let again = opened(&path).await.unwrap();
    fs::rename(&path, folder.path().join("moved.db")).unwrap();
    // Its first read opens a connection.
    let error = again.receipt(request("a").key()).await.unwrap_err();
    assert_eq!(error.certainty(), Certainty::NothingDone);
    assert!(!path.exists(), "{error}");
}

#[tokio::test]
async fn purging_removes_more_than_one_transaction_takes() {
    let folder = TempDir::new().unwrap();
    let clock = ManualClock::at(Timestamp::from_millis(0));
    let builder = SqliteStore::builder().synchronous(Synchronous::Normal).clock(clock.clone());
    let idem = Idem::new(builder.open(folder.path().join("store.db")).await.unwrap());
    for number in 0..1_203 {
        let request = request(&number.to_string()).retain(Duration::from_millis(1));
        assert_eq!(idem.execute(&request, nothing).await.unwrap(), Outcome::Created(()));
    }
    clock.advance(Duration::from_millis(1));
    let purged = Purged::new;
    assert_eq!(idem.purge(1_001).await.unwrap(), purged(1_001, true));
    assert_eq!(idem.purge(500).await.unwrap(), purged(202, false));
    assert_eq!(idem.purge(500).await.unwrap(), purged(0, false));
}

#[tokio::test]
async fn what_a_store_declares_is_what_it_was_opened_with() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    let full = SqliteStore::open(&path).await.unwrap();
    assert_eq!(Idem::new(full).guarantees().durability, Durability::PowerLoss);
    let normal = SqliteStore::builder().synchronous(Synchronous::Normal).open(&path).await.unwrap();
    assert_eq!(Idem::new(normal).guarantees().durability, Durability::ProcessCrash);
    let memory = SqliteStore::open_in_memory().await.unwrap();
    assert_eq!(Idem::new(memory).guarantees().durability, Durability::Process);
}
