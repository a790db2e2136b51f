//! What an effect cannot do to the store and to its neighbours.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use idem_core::{
    Certainty, EffectError, Error, ErrorKind, Idem, Key, Outcome, Purged, Request,
    consumer::Recorder,
};
use idem_sqlite::{SqliteStore, SqliteTransaction};
use rusqlite::{Connection, config::DbConfig, limits::Limit};
use tempfile::TempDir;

struct World {
    folder: TempDir,
    idem: Idem<SqliteStore>,
}

impl World {
    async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("store.db");
        let sql = "CREATE TABLE orders (q INTEGER PRIMARY KEY)";
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        let store = SqliteStore::builder().busy_timeout(Duration::from_millis(500));
        Self { idem: Idem::new(store.open(&path).await.unwrap()), folder }
    }

    async fn run(
        &self,
        name: &str,
        effect: fn(&mut SqliteTransaction) -> Result<i64, EffectError>,
    ) -> Result<Outcome<i64>, Error> {
        self.idem.execute(&request(name), effect).await
    }

    fn orders(&self) -> i64 {
        let connection = Connection::open(self.folder.path().join("store.db")).unwrap();
        connection.query_row("SELECT count(*) FROM orders", [], |row| row.get(0)).unwrap()
    }
}

fn request(name: &str) -> Request {
    Request::new(Key::new("", "order", name).unwrap())
}

fn insert(tx: &mut SqliteTransaction) -> Result<i64, EffectError> {
    tx.execute("INSERT INTO orders DEFAULT VALUES", [])?;
    Ok(tx.last_insert_rowid())
}

fn is_denied(error: &Error) -> bool {
    let denied = rusqlite::ErrorCode::AuthorizationForStatementDenied;
    let engine = error.effect_error::<rusqlite::Error>();
    engine.is_some_and(|error| error.sqlite_error_code() == Some(denied))
}

#[tokio::test]
async fn what_outlives_a_transaction_and_what_is_idems_own_is_denied() {
    let world = World::new().await;
    let statements = [
        "PRAGMA query_only = ON",
        "PRAGMA ignore_check_constraints = ON",
        "PRAGMA busy_timeout = 0",
        "PRAGMA foreign_keys = OFF",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA synchronous = OFF",
        "PRAGMA writable_schema = ON",
        "PRAGMA application_id = 7",
        "PRAGMA wal_checkpoint",
        "ATTACH ':memory:' AS other",
        "DETACH main",
        "DELETE FROM idem_records",
        "UPDATE idem_token SET last = 0",
        "UPDATE IDEM_Version SET version = 99",
        "INSERT INTO idem_values VALUES ('request', '', x'00', x'00')",
        "DROP TABLE idem_records",
        "ALTER TABLE idem_records ADD COLUMN more",
        "CREATE INDEX mine ON idem_records (state)",
        "DROP INDEX idem_records_expiry",
        "CREATE TRIGGER mine AFTER INSERT ON idem_records BEGIN SELECT 1; END",
        "CREATE TEMP TRIGGER mine AFTER INSERT ON main.idem_records BEGIN SELECT 1; END",
        "CREATE TEMP TABLE idem_records (k)",
        "CREATE TEMP TABLE orders (q)",
        "CREATE TEMP VIEW orders AS SELECT 1",
        "CREATE TEMP TRIGGER mine AFTER INSERT ON orders BEGIN SELECT 1; END",
        "CREATE TABLE temp.orders (q)",
        "CREATE VIRTUAL TABLE temp.orders USING fts5 (q)",
        "CREATE TEMP VIEW idem_values AS SELECT 1",
        "CREATE VIEW Idem_Mine AS SELECT 1",
        "CREATE TRIGGER mine AFTER INSERT ON orders BEGIN DELETE FROM idem_records; END;
         INSERT INTO orders DEFAULT VALUES",
    ];
    for (number, statement) in statements.into_iter().enumerate() {
        let effect = move |tx: &mut SqliteTransaction| {
            insert(tx)?;
            tx.execute_batch(statement)?;
            Ok(0)
        };
        let error = world.idem.execute(&request(&number.to_string()), effect).await;
        let error = error.expect_err(statement);
        assert!(is_denied(&error), "{statement}: {error:?}");
        assert_eq!(error.certainty(), Certainty::NothingDone);
    }
    assert_eq!(world.orders(), 0);
    assert_eq!(world.run("after", insert).await.unwrap(), Outcome::Created(1));
}

#[tokio::test]
async fn a_refusal_names_what_was_refused_and_what_to_do_instead() {
    let world = World::new().await;
    let refused = [
        ("COMMIT", "may not COMMIT: the store commits when the effect returns `Ok`"),
        ("ROLLBACK", "may not ROLLBACK: the store commits"),
        ("BEGIN", "may not BEGIN: the store commits"),
        ("SAVEPOINT mine", "may not use a savepoint (`mine`)"),
        ("ATTACH ':memory:' AS other", "may not ATTACH: use tables of the store's own"),
        ("PRAGMA query_only = ON", "may not use PRAGMA query_only: it would outlive"),
        ("DELETE FROM idem_records", "may not write to `idem_records`: names that begin with"),
        ("DROP TABLE idem_values", "may not drop `idem_values`: names that begin with"),
        ("CREATE VIEW idem_mine AS SELECT 1", "may not create the view `idem_mine`"),
        ("CREATE TEMP TABLE mine (q)", "it would outlive the effect: use a table of your own"),
        (
            "CREATE TRIGGER mine AFTER INSERT ON orders BEGIN DELETE FROM idem_records; END;
             INSERT INTO orders DEFAULT VALUES",
            "may not write to `idem_records` in the trigger or view `mine`",
        ),
    ];
    type Run = fn(&mut SqliteTransaction, &str) -> rusqlite::Result<()>;
    let ways: [Run; 3] = [
        |tx, sql| tx.execute_batch(sql),
        |tx, sql| tx.connection().execute_batch(sql),
        |tx, sql| {
            insert(tx).unwrap();
            tx.execute_batch(sql)
        },
    ];
    for (number, (statement, said)) in refused.into_iter().enumerate() {
        for (way, run) in ways.into_iter().enumerate() {
            let effect = move |tx: &mut SqliteTransaction| Ok(run(tx, statement).map(|()| 0)?);
            let error = world.idem.execute(&request(&format!("{number}-{way}")), effect).await;
            let told = error.expect_err(statement).with_causes().to_string();
            assert!(told.contains(said), "{statement}: {told}");
        }
    }
    let swallowed = world.run("swallowed", |tx| {
        drop(tx.execute_batch("COMMIT"));
        Ok(0)
    });
    let told = swallowed.await.unwrap_err().with_causes().to_string();
    assert!(told.contains("may not COMMIT: the store commits"), "{told}");
    let mine = world.run("mine", |tx| {
        drop(tx.execute_batch("DELETE FROM idem_records"));
        Err("declined".into())
    });
    let told = mine.await.unwrap_err().with_causes().to_string();
    assert!(told.ends_with("declined"), "{told}");
}

#[tokio::test]
async fn idems_tables_cannot_be_taken_out_of_the_schema() {
    let world = World::new().await;
    assert_eq!(world.run("before", insert).await.unwrap(), Outcome::Created(1));
    // An index of the user's own, made by other means, is none of it.
    let path = world.folder.path().join("store.db");
    let index = "CREATE INDEX by_start ON idem_records (created_at)";
    Connection::open(&path).unwrap().execute_batch(index).unwrap();
    let exposed = |tx: &mut SqliteTransaction| Ok(i64::from(tx.connection().is_autocommit()));
    assert_eq!(world.run("exposed", exposed).await.unwrap(), Outcome::Created(0));
    for hostile in [
        "DELETE FROM sqlite_schema WHERE tbl_name LIKE 'idem_%'",
        "DELETE FROM sqlite_schema WHERE name = 'idem_records_expiry'",
        "UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = 'idem_values')
         WHERE name = 'idem_records'",
        "UPDATE sqlite_schema SET sql = replace(sql, 'tenant', 'tenants') WHERE name = 'idem_records'",
        "INSERT INTO sqlite_schema VALUES ('trigger', 'wipe', 'idem_records', 0,
         'CREATE TRIGGER wipe AFTER INSERT ON idem_records BEGIN DELETE FROM idem_records; END')",
    ] {
        let effect = move |tx: &mut SqliteTransaction| {
            insert(tx)?;
            let connection = tx.connection();
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, false)?;
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, true)?;
            connection.execute(hostile, [])?;
            Ok(2)
        };
        let error = world.idem.execute(&request("hostile"), effect).await.unwrap_err();
        assert!(error.with_causes().to_string().contains("idem's own tables"), "{error:?}");
        assert_eq!((error.certainty(), world.orders()), (Certainty::NothingDone, 1), "{hostile}");
        assert_eq!(world.run("before", insert).await.unwrap(), Outcome::Replayed(1), "{hostile}");
    }
    world.idem.close().await.unwrap();
    let store = SqliteStore::open(&path).await.unwrap();
    let again = Idem::new(store).execute(&request("before"), insert).await.unwrap();
    assert_eq!(again, Outcome::Replayed(1));
}

/// Makes a table whose rows refer to receipts, by what `more` says besides, and has a row refer to `linked`.
async fn link(world: &World, more: &'static str) {
    let refer = move |tx: &mut SqliteTransaction| {
        let columns = "kind TEXT, tenant TEXT, operation TEXT, key TEXT";
        tx.connection().execute_batch(&format!(
            "CREATE TABLE links ({columns},
             FOREIGN KEY (kind, tenant, operation, key) REFERENCES idem_records {more}"
        ))?;
        tx.execute("INSERT INTO links VALUES ('request', '', 'order', 'linked')", [])?;
        Ok(0)
    };
    let linked = world.idem.execute(&request("refer"), refer).await.unwrap();
    assert_eq!(linked, Outcome::Created(0));
}

/// Runs three keys that are soon due, and links one of them.
async fn linked_world(more: &'static str) -> World {
    let world = World::new().await;
    for name in ["a", "linked", "z"] {
        let made = world.idem.execute(&short(name), insert).await.unwrap();
        assert!(matches!(made, Outcome::Created(_)), "{made:?}");
    }
    link(&world, more).await;
    tokio::time::timeout(Duration::from_secs(20), async {
        while world.idem.receipt(short("z").key()).await.unwrap().is_some() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the last of them expires");
    world
}

#[tokio::test]
async fn a_trigger_that_would_write_to_idems_tables_with_the_store_is_refused() {
    let world = World::new().await;
    let effect = |tx: &mut SqliteTransaction| {
        tx.connection().execute_batch(
            "CREATE TABLE links (kind TEXT, tenant TEXT, operation TEXT, key TEXT,
             FOREIGN KEY (kind, tenant, operation, key) REFERENCES idem_records ON DELETE CASCADE);
             CREATE TRIGGER wipe AFTER DELETE ON links BEGIN DELETE FROM idem_records; END",
        )?;
        Ok(1)
    };
    let error = world.run("hostile", effect).await.unwrap_err();
    assert!(error.with_causes().to_string().contains("a trigger"), "{error:?}");
    assert_eq!(error.certainty(), Certainty::NothingDone);
    // Made by other means, it has its way with no statement of the store's.
    let sql = "CREATE TABLE links (kind TEXT, tenant TEXT, operation TEXT, key TEXT,
               FOREIGN KEY (kind, tenant, operation, key) REFERENCES idem_records ON DELETE CASCADE);
               CREATE TRIGGER wipe AFTER DELETE ON links BEGIN DELETE FROM idem_records; END;
               INSERT INTO links VALUES ('request', '', 'order', 'linked')";
    assert_eq!(world.run("linked", insert).await.unwrap(), Outcome::Created(1));
    assert_eq!(world.run("other", insert).await.unwrap(), Outcome::Created(2));
    Connection::open(world.folder.path().join("store.db")).unwrap().execute_batch(sql).unwrap();
    let error = world.idem.forget(request("linked").key()).await.unwrap_err();
    assert_eq!(error.certainty(), Certainty::NothingDone, "{error:?}");
    assert_eq!(world.run("linked", insert).await.unwrap(), Outcome::Replayed(1));
    assert_eq!(world.run("other", insert).await.unwrap(), Outcome::Replayed(2));
}

fn short(name: &str) -> Request {
    request(name).retain(Duration::from_millis(1))
}

#[tokio::test]
async fn a_row_that_refers_to_a_receipt_holds_up_no_other_purge() {
    for more in [
        ")",
        "DEFERRABLE INITIALLY DEFERRED)",
        "ON DELETE CASCADE);
         CREATE TRIGGER keep BEFORE DELETE ON links BEGIN SELECT RAISE(ROLLBACK, 'links stay'); END",
    ] {
        let world = linked_world(more).await;
        assert_eq!(world.idem.purge(10).await.unwrap(), Purged::new(2, false), "{more}");
        assert_eq!(world.idem.purge(10).await.unwrap(), Purged::new(0, false), "{more}");
        let live = world.idem.list(None, 10).await.unwrap().records;
        assert_eq!(live.len(), 1, "what is live stays: {more}");
        assert_eq!(world.run("refer", insert).await.unwrap(), Outcome::Replayed(0), "{more}");
    }
}

#[tokio::test]
async fn what_an_effect_may_do_with_its_own_tables_works() {
    let world = World::new().await;
    let outcome = world.run("a", |tx| {
        tx.execute_batch(
            "CREATE TABLE mine (a INTEGER, b TEXT);
             CREATE INDEX mine_b ON mine (b);
             ALTER TABLE mine ADD COLUMN c;
             CREATE TABLE idempotent (name TEXT);
             INSERT INTO mine VALUES (1, 'x', NULL);
             PRAGMA user_version = 42;",
        )?;
        let columns: i64 =
            tx.query_row("SELECT count(*) FROM pragma_table_info('mine')", [], |row| row.get(0))?;
        let seen: i64 = tx.query_row("SELECT count(*) FROM idem_records", [], |row| row.get(0))?;
        assert_eq!(seen, 0, "reading idem's tables is allowed");
        Ok(columns)
    });
    assert_eq!(outcome.await.unwrap(), Outcome::Created(3));
    let connection = Connection::open(world.folder.path().join("store.db")).unwrap();
    let version = connection.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0));
    assert_eq!(version.unwrap(), 42);
}

#[tokio::test]
async fn a_swallowed_refusal_of_transaction_control_is_an_error_all_the_same() {
    let world = World::new().await;
    let statements = [
        "COMMIT",
        "END",
        "ROLLBACK",
        "BEGIN",
        "SAVEPOINT mine",
        "RELEASE mine",
        "ROLLBACK TO mine",
    ];
    for statement in statements {
        let effect = move |tx: &mut SqliteTransaction| {
            insert(tx)?;
            drop(tx.execute_batch(statement));
            Ok(0)
        };
        let error = world.idem.execute(&request(statement), effect).await.expect_err(statement);
        assert!(matches!(error.kind(), ErrorKind::TransactionEnded), "{statement}: {error:?}");
    }
    let error = world.run("unchecked", |tx| {
        insert(tx)?;
        drop(tx.connection().unchecked_transaction());
        Ok(0)
    });
    assert!(matches!(error.await.unwrap_err().kind(), ErrorKind::TransactionEnded));
    assert_eq!(world.orders(), 0);
    assert_eq!(world.run("after", insert).await.unwrap(), Outcome::Created(1));
}

#[tokio::test]
async fn the_stores_own_statements_cannot_be_had_by_their_text() {
    let world = World::new().await;
    assert_eq!(world.run("warm", insert).await.unwrap(), Outcome::Created(1));
    for text in ["COMMIT", "BEGIN IMMEDIATE", "ROLLBACK", "DELETE FROM main.idem_records"] {
        let effect = move |tx: &mut SqliteTransaction| {
            tx.prepare_cached(text)?;
            Ok(0)
        };
        let error = world.idem.execute(&request(text), effect).await.expect_err(text);
        assert!(is_denied(&error) || matches!(error.kind(), ErrorKind::TransactionEnded), "{text}");
    }
}

#[tokio::test]
async fn an_interrupted_effect_leaves_nothing_and_the_store_usable() {
    let world = World::new().await;
    let error = world.run("interrupted", |tx| {
        insert(tx)?;
        let handle = tx.connection().get_interrupt_handle();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let interrupter = std::thread::spawn(move || {
            while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                handle.interrupt();
                std::thread::yield_now();
            }
        });
        let endless = "INSERT INTO orders WITH RECURSIVE n (i) AS
            (SELECT 10 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n";
        let interrupted = tx.execute(endless, []);
        drop(stop);
        interrupter.join().expect("it only interrupts");
        assert!(interrupted.is_err(), "only an interrupt can end it");
        Ok(0)
    });
    assert!(matches!(error.await.unwrap_err().kind(), ErrorKind::TransactionEnded));
    assert_eq!(world.orders(), 0);
    assert_eq!(world.run("after", insert).await.unwrap(), Outcome::Created(1));
}

#[tokio::test]
async fn settings_of_the_bare_connection_are_set_back() {
    let world = World::new().await;
    let outcome = world.run("a", |tx| {
        let connection = tx.connection();
        connection.busy_timeout(Duration::from_secs(3600))?;
        connection.set_limit(Limit::SQLITE_LIMIT_SQL_LENGTH, 50)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
        connection.set_prepared_statement_cache_capacity(0);
        insert(tx)
    });
    assert_eq!(outcome.await.unwrap(), Outcome::Created(1), "the store's own statements as well");
    let settings = world.run("b", |tx| {
        let connection = tx.connection();
        let is_on = |config| connection.db_config(config);
        assert!(is_on(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY)?);
        assert!(is_on(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER)?);
        Ok(connection.limit(Limit::SQLITE_LIMIT_SQL_LENGTH)?.into())
    });
    let Outcome::Created(length) = settings.await.unwrap() else { panic!("a new key") };
    assert!(length > 1_000_000, "the limit must be set back: {length}");
}

/// Runs a future where no runtime may be entered.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(value) => return value,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

#[tokio::test]
async fn an_effect_that_asks_its_own_store_reads_or_is_told_and_never_hangs() {
    let world = World::new().await;
    assert_eq!(world.run("before", insert).await.unwrap(), Outcome::Created(1));
    let other_handle =
        Idem::new(SqliteStore::open(world.folder.path().join("store.db")).await.unwrap());
    for idem in [world.idem.clone(), other_handle] {
        let name = format!("{:p}", idem.store());
        let effect = move |tx: &mut SqliteTransaction| {
            insert(tx)?;
            let start = Instant::now();
            let replayed = block_on(idem.execute(&request("before"), insert))?;
            assert_eq!(replayed, Outcome::Replayed(1), "what is committed can be read");
            assert!(!block_on(idem.store().is_processed("billing", "1"))?);
            let kinds = [
                block_on(idem.execute(&request("nested"), insert)).unwrap_err(),
                block_on(idem.forget(request("before").key())).unwrap_err(),
                block_on(idem.store().mark_processed("billing", "1")).unwrap_err(),
                block_on(idem.purge(1)).unwrap_err(),
                block_on(idem.close()).unwrap_err(),
            ];
            for error in kinds {
                assert!(matches!(error.kind(), ErrorKind::Reentrant), "{error:?}");
            }
            assert!(start.elapsed() < Duration::from_secs(1));
            Ok(1)
        };
        let outcome = world.idem.execute(&request(&name), effect).await.unwrap();
        assert_eq!(outcome, Outcome::Created(1));
    }
    assert_eq!(world.orders(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_effect_that_waits_for_its_own_store_on_another_thread_is_freed_by_the_timeout() {
    let world = World::new().await;
    let idem = world.idem.clone();
    let effect = move |tx: &mut SqliteTransaction| {
        let idem = idem.clone();
        let nested = std::thread::spawn(move || block_on(idem.execute(&request("nested"), insert)));
        let error = nested.join().expect("it does not panic").unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Busy { .. }), "{error:?}");
        insert(tx)
    };
    let start = Instant::now();
    let outcome = world.idem.execute(&request("outer"), effect).await.unwrap();
    assert_eq!(outcome, Outcome::Created(1));
    assert!(start.elapsed() < Duration::from_secs(5), "the busy timeout is half a second");
    assert_eq!(world.run("nested", insert).await.unwrap(), Outcome::Created(2));
}

#[tokio::test]
async fn in_memory_a_statement_left_open_ends_the_store_and_says_so() {
    let idem = Idem::new(SqliteStore::open_in_memory().await.unwrap());
    let (table, leaving) = (request("table"), request("leaving"));
    let made = idem
        .execute(&table, |tx| Ok(tx.execute_batch("CREATE TABLE orders (q INTEGER PRIMARY KEY)")?));
    assert_eq!(made.await.unwrap(), Outcome::Created(()));
    let left_open = idem.execute(&leaving, |tx: &mut SqliteTransaction| {
        let mut insert = tx.prepare("INSERT INTO orders VALUES (1), (2) RETURNING q")?;
        let mut rows = insert.query([])?;
        rows.next()?;
        std::mem::forget(rows);
        std::mem::forget(insert);
        Ok(())
    });
    let error = left_open.await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::TransactionEnded), "{error:?}");
    // Its only connection is lost, and the data with it: it must not go on as an empty one.
    for _ in 0..2 {
        let error = idem.execute(&request("table"), |_| Ok(())).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Store), "{error:?}");
        assert_eq!(error.certainty(), Certainty::NothingDone);
    }
    idem.close().await.unwrap();
}

#[tokio::test]
async fn a_panicking_destructor_of_an_effect_harms_nobody() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "it goes off unless it would abort");
        }
    }
    let world = World::new().await;
    let bomb = Bomb;
    let effect = move |tx: &mut SqliteTransaction| {
        let _ = &bomb;
        insert(tx)
    };
    let outcome = world.idem.execute(&request("bomb"), effect).await;
    assert_eq!(outcome.unwrap(), Outcome::Created(1));
    assert_eq!(world.run("after", insert).await.unwrap(), Outcome::Created(2));
}
