//! Processes that all want to write at the same time: each gets its share, and none waits for long.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

mod common;

use std::{
    env,
    fs::{File, TryLockError},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use common::{nothing, opened, query, request};
use idem_conformance::child::{Child, hear, say};
use idem_core::{EffectError, Outcome};
use idem_sqlite::{SqliteStore, run_in};
use rusqlite::Connection;
use tempfile::TempDir;

const PATH: &str = "IDEM_TEST_TURNS_PATH";
const NAME: &str = "IDEM_TEST_TURNS_NAME";
const WAY: &str = "IDEM_TEST_TURNS_WAY";

/// How long an effect has the write lock.
const EFFECT: Duration = Duration::from_millis(20);

/// A bound for what must come, on a loaded machine too.
const PATIENCE: Duration = Duration::from_secs(60);

fn database() -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    let mut connection = Connection::open(&path).unwrap();
    connection.pragma_update(None, "journal_mode", "WAL").unwrap();
    idem_sqlite::create_tables(&mut connection).unwrap();
    connection.execute_batch("CREATE TABLE effects (id INTEGER PRIMARY KEY)").unwrap();
    (folder, path)
}

fn effects(path: &Path) -> usize {
    query::<i64>(path, "SELECT count(*) FROM effects").try_into().unwrap()
}

fn start(path: &Path, name: usize, way: &str) -> Child {
    let path = path.to_str().unwrap().to_string();
    Child::start("child", [(PATH, path), (NAME, name.to_string()), (WAY, way.to_string())])
}

/// A child of the tests below; nothing without them.
#[tokio::test]
async fn child() {
    let Ok(path) = env::var(PATH) else { return };
    let (path, name, way) = (Path::new(&path), env::var(NAME).unwrap(), env::var(WAY).unwrap());
    let mut writer = Writer::new(path, &way).await;
    say("ready");
    hear();
    let (mut made, mut longest) = (0, 0);
    loop {
        let before = effects(path);
        if before >= EFFECTS {
            break;
        }
        let own = writer.write(path, &format!("{name}-{made}")).await;
        made += 1;
        longest = longest.max(effects(path) - before - own);
    }
    say(&format!("made {made} {longest}"));
}

/// How many effects the processes of one test have together.
const EFFECTS: usize = 160;

/// The ways in which a process writes.
enum Writer {
    Store(idem_core::Idem<SqliteStore>),
    /// By a store that is opened for each effect.
    Opening,
    Purge(idem_core::Idem<SqliteStore>),
    /// In a transaction of the user's that has the write lock from the start.
    Begun(Connection),
    /// In one that takes it only when idem is asked.
    Deferred(Connection),
}

fn insert(connection: &Connection) -> Result<(), EffectError> {
    connection.execute("INSERT INTO effects DEFAULT VALUES", [])?;
    thread::sleep(EFFECT);
    Ok(())
}

impl Writer {
    async fn new(path: &Path, way: &str) -> Self {
        match way {
            "store" => Self::Store(opened(path).await.unwrap()),
            "opening" => Self::Opening,
            "purge" => Self::Purge(opened(path).await.unwrap()),
            "begun" => Self::Begun(Connection::open(path).unwrap()),
            "deferred" => Self::Deferred(Connection::open(path).unwrap()),
            way => panic!("unknown {way:?}"),
        }
    }

    /// Writes once; returns how many effects that was.
    async fn write(&mut self, path: &Path, name: &str) -> usize {
        let outcome = match self {
            Self::Store(idem) => idem.execute(&request(name), |tx| insert(tx.connection())).await,
            Self::Opening => {
                let idem = opened(path).await.unwrap();
                let outcome = idem.execute(&request(name), |tx| insert(tx.connection())).await;
                idem.close().await.unwrap();
                outcome
            }
            Self::Purge(idem) => {
                idem.purge(10).await.unwrap();
                return 0;
            }
            Self::Begun(connection) => {
                let transaction = idem_sqlite::begin_immediate(connection).unwrap();
                let outcome = run_in(&transaction, &request(name), |tx| insert(tx));
                transaction.commit().unwrap();
                outcome
            }
            Self::Deferred(connection) => {
                let transaction = connection.transaction().unwrap();
                let outcome = run_in(&transaction, &request(name), |tx| insert(tx));
                transaction.commit().unwrap();
                outcome
            }
        };
        assert_eq!(outcome.unwrap(), Outcome::Created(()));
        1
    }
}

/// Has processes write in these ways without a pause. None may be overtaken by more than ten rounds of the others'
/// effects; returns how often each wrote.
fn write_in(ways: &[&str]) -> Vec<usize> {
    let (_folder, path) = database();
    let children = ways.iter().enumerate().map(|(name, way)| start(&path, name, way));
    let mut children: Vec<_> = children.collect();
    for child in &children {
        child.said("ready");
    }
    for child in &mut children {
        child.go_on();
    }
    let mut all = Vec::new();
    for (child, way) in children.into_iter().zip(ways) {
        let said = child.said("made");
        child.ends();
        let (made, overtaken) = said.split_once(' ').unwrap();
        let (made, overtaken): (usize, usize) = (made.parse().unwrap(), overtaken.parse().unwrap());
        eprintln!("{way}: {made} times, overtaken by {overtaken} effects at most");
        assert!(overtaken <= 10 * ways.len(), "{way}: {overtaken} others came first");
        all.push(made);
    }
    all
}

/// None wrote more than so many times as often as another.
fn assert_fair(made: &[usize], times: usize) {
    let (least, most) = (made.iter().min().unwrap(), made.iter().max().unwrap());
    assert!(*most <= times * least, "{made:?}");
}

#[test]
fn processes_that_write_without_a_pause_get_an_equal_share() {
    assert_fair(&write_in(&["store"; 4]), 4);
}

#[test]
fn whoever_opens_purges_or_has_its_own_transaction_gets_a_share_beside_busy_stores() {
    let made = write_in(&["store", "store", "opening", "begun", "deferred", "purge"]);
    // Opening takes its time as well.
    assert_fair(&made, 10);
}

fn turn_of(path: &Path) -> PathBuf {
    path.with_extension("db-turn")
}

/// Waits until somebody has the turn.
fn wait_for_turn(path: &Path) {
    let start = Instant::now();
    let is_taken = |file: File| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
    while !File::open(turn_of(path)).is_ok_and(is_taken) {
        assert!(start.elapsed() < PATIENCE, "nobody waits");
        thread::yield_now();
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_process_that_is_stopped_in_its_turn_holds_up_nobody_for_long() {
    let (_folder, path) = database();
    let idem = opened(&path).await.unwrap();
    let foreign = Connection::open(&path).unwrap();
    let mut child = start(&path, 0, "store");
    child.said("ready");
    foreign.execute_batch("BEGIN IMMEDIATE").unwrap();
    child.go_on();
    wait_for_turn(&path);
    child.signal("STOP");
    let start = Instant::now();
    while !child.is_stopped() {
        assert!(start.elapsed() < PATIENCE, "the child does not stop");
        thread::yield_now();
    }
    foreign.execute_batch("COMMIT").unwrap();
    for name in ["a", "b"] {
        let outcome = idem.execute(&request(name), nothing).await;
        assert_eq!(outcome.unwrap(), Outcome::Created(()));
    }
    child.kill();
}

#[tokio::test]
async fn the_file_of_the_turn_is_made_by_who_waits_and_removed_by_who_closes() {
    let (_folder, path) = database();
    let idem = opened(&path).await.unwrap();
    assert_eq!(idem.execute(&request("a"), nothing).await.unwrap(), Outcome::Created(()));
    assert!(!turn_of(&path).exists(), "nobody has waited");
    let foreign = Connection::open(&path).unwrap();
    foreign.execute_batch("BEGIN IMMEDIATE").unwrap();
    let waiting = tokio::spawn({
        let idem = idem.clone();
        async move { idem.execute(&request("b"), nothing).await }
    });
    let turn = path.clone();
    tokio::task::spawn_blocking(move || wait_for_turn(&turn)).await.unwrap();
    foreign.execute_batch("COMMIT").unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), Outcome::Created(()));
    idem.close().await.unwrap();
    assert!(!turn_of(&path).exists());
}
