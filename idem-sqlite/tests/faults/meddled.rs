//! Files that somebody removes, moves, replaces or overwrites under a store that has them open.

use std::{
    fs::{self, OpenOptions},
    io::Read,
    path::{Path, PathBuf},
    time::Duration,
};

use idem_core::{Certainty, Error, ErrorKind, Idem, Outcome, consumer::Recorder};
use idem_sqlite::{SqliteStore, SqliteTransaction};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::{PATIENCE, column, request};

/// What is there when the store is closed.
enum Left {
    /// All that was told, in the file that this finds.
    All(fn(&Path) -> PathBuf),
    /// No file.
    Nothing,
    /// The file of somebody else, as it was.
    Another,
    /// A damaged file.
    Damage,
}

fn log_of(path: &Path) -> PathBuf {
    path.with_extension("db-wal")
}

fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap()
}

fn moved(path: &Path) -> PathBuf {
    folder_of(path).with_extension("moved")
}

/// In place: what was there is gone for those who have it open.
fn overwrite(path: &Path) {
    let length = fs::metadata(path).unwrap().len();
    let mut file = OpenOptions::new().write(true).open(path).unwrap();
    std::io::copy(&mut std::io::repeat(0xa5).take(length), &mut file).unwrap();
}

fn cut(path: &Path, length: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(length).unwrap();
}

/// What is done, how, and what is left of it.
type Meddling = (&'static str, fn(&Path), Left);

const MEDDLINGS: [Meddling; 9] = [
    ("the database is removed", |path| fs::remove_file(path).unwrap(), Left::Nothing),
    ("the folder is removed", |path| fs::remove_dir_all(folder_of(path)).unwrap(), Left::Nothing),
    (
        "the log is removed",
        |path| fs::remove_file(log_of(path)).unwrap(),
        Left::All(Path::to_path_buf),
    ),
    (
        "the folder is moved",
        |path| fs::rename(folder_of(path), moved(path)).unwrap(),
        Left::All(|path| moved(path).join("store.db")),
    ),
    (
        "the database is replaced",
        |path| {
            fs::remove_file(path).unwrap();
            let sql = "CREATE TABLE mine (a); INSERT INTO mine VALUES (7)";
            Connection::open(path).unwrap().execute_batch(sql).unwrap();
        },
        Left::Another,
    ),
    ("the database is overwritten", overwrite, Left::Damage),
    ("the database is cut", |path| cut(path, 4096), Left::Damage),
    ("the log is overwritten", |path| overwrite(&log_of(path)), Left::Damage),
    ("the log is cut", |path| cut(&log_of(path), 5_000), Left::Damage),
];

async fn insert(idem: &Idem<SqliteStore>, name: &str) -> Result<Outcome<()>, Error> {
    let own = name.to_string();
    let effect = move |tx: &mut SqliteTransaction| {
        tx.execute("INSERT INTO orders VALUES (?1, randomblob(3000))", [&own])?;
        Ok(())
    };
    idem.execute(&request(name), effect).await
}

/// Asks everything, more than once; each call answers or fails as an engine fails. Returns the keys that ran.
async fn ask(idem: &Idem<SqliteStore>, prefix: &str) -> Vec<String> {
    let mut created = Vec::new();
    for round in 0..3 {
        let new = format!("{prefix}-{round}");
        let (old, claimed) = (request("old"), request(&format!("{prefix}-claimed-{round}")));
        let inserted = insert(idem, &new).await;
        if let Ok(outcome) = &inserted {
            assert_eq!(*outcome, Outcome::Created(()), "{new}");
            created.push(new.clone());
        }
        let told = [
            inserted.map(drop),
            insert(idem, "old").await.map(drop),
            idem.receipt(old.key()).await.map(drop),
            idem.claim::<i64>(&claimed, Duration::from_secs(1)).await.map(drop),
            idem.forget(request("absent").key()).await.map(drop),
            idem.mark_processed("billing", &new).await.map(drop),
            idem.is_processed("billing", "1").await.map(drop),
            idem.list(None, 10).await.map(drop),
            idem.value(&old.key().space(), b"x").await.map(drop),
            idem.purge(10).await.map(drop),
        ];
        for error in told.into_iter().filter_map(Result::err) {
            let kind = matches!(
                error.kind(),
                ErrorKind::Store | ErrorKind::Damaged { .. } | ErrorKind::Effect
            );
            assert!(kind, "{error:?}");
            assert!(!error.with_causes().to_string().contains("is gone"), "a panic: {error:?}");
            assert_ne!(error.certainty(), Certainty::Done, "{error:?}");
        }
    }
    created
}

async fn check(path: &Path, left: &Left, mut created: Vec<String>) {
    match left {
        Left::All(file) => {
            let path = file(path);
            created.push("old".to_string());
            created.sort();
            let receipts = "SELECT key FROM idem_records WHERE kind = 'request' AND state = 'completed' ORDER BY key";
            assert_eq!(column::<String>(&path, receipts), created);
            assert_eq!(column::<String>(&path, "SELECT name FROM orders ORDER BY name"), created);
            assert_eq!(column::<String>(&path, "PRAGMA integrity_check"), ["ok"]);
        }
        Left::Nothing => assert!(!path.exists()),
        Left::Another => assert_eq!(column::<i64>(path, "SELECT a FROM mine"), [7]),
        Left::Damage => match SqliteStore::open(path).await {
            Ok(store) => drop(ask(&Idem::new(store), "later").await),
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::CannotOpen { .. }), "{error:?}")
            }
        },
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_done_to_the_files_of_an_open_store_its_calls_answer_or_fail_and_it_closes() {
    for (what, meddle, left) in MEDDLINGS {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("inner").join("store.db");
        fs::create_dir(folder_of(&path)).unwrap();
        let tables = "CREATE TABLE orders (name TEXT, data BLOB)";
        Connection::open(&path).unwrap().execute_batch(tables).unwrap();
        let idem = Idem::new(SqliteStore::open(&path).await.unwrap());
        assert_eq!(insert(&idem, "old").await.unwrap(), Outcome::Created(()));
        meddle(&path);
        // On a task, so that a call that blocks does not keep the bound from being noticed.
        let asked = tokio::spawn(async move {
            let created = ask(&idem, "new").await;
            let replayed = insert(&idem, "old").await;
            assert!(!matches!(replayed, Ok(Outcome::Created(()))), "it runs again");
            idem.close().await.unwrap();
            check(&path, &left, created).await;
        });
        tokio::time::timeout(PATIENCE, asked).await.expect(what).expect(what);
    }
}
