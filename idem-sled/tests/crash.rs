//! Processes that die, and disks that fill up: this test runs itself as a child.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]
#![cfg(unix)]

mod common;

use std::{
    collections::HashMap,
    env,
    hash::{BuildHasher, RandomState},
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::Duration,
};

use common::{nothing, opened, request, space};
use idem_core::{Certainty, Error, ErrorKind, Idem, Outcome, Transaction};
use idem_sled::{SledStore, SledTransaction};
use tempfile::TempDir;
use tokio::task::JoinSet;

const FOLDER: &str = "IDEM_SLED_TEST_FOLDER";
const ROUND: &str = "IDEM_SLED_TEST_ROUND";
const SIZE: &str = "IDEM_SLED_TEST_SIZE";
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the value of a key is: some are too long for the engine's log.
fn length(number: usize) -> usize {
    if number.is_multiple_of(40) { 200_000 } else { 100 }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{line}").unwrap();
    out.flush().unwrap();
}

/// Writes a value of that length to the space, and another to a tree.
async fn put(idem: &Idem<SledStore>, name: &str, length: usize) -> Result<Outcome<usize>, Error> {
    let value = name.to_string();
    let effect = move |tx: &mut SledTransaction| {
        tx.put(value.as_bytes(), &vec![7; length])?;
        tx.tree("lengths")?.insert(&value, length.to_string())?;
        Ok(length)
    };
    idem.execute(&request(name), effect).await
}

/// The child of the tests below; nothing without them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let (Ok(folder), Ok(round)) = (env::var(FOLDER), env::var(ROUND)) else { return };
    match env::var(SIZE) {
        Err(_) => commit_for_ever(Path::new(&folder), &round).await,
        Ok(size) => commit_until_it_fails(Path::new(&folder), size.parse().unwrap()).await,
    }
}

async fn commit_for_ever(folder: &Path, round: &str) {
    let idem = opened(folder).await.unwrap();
    let mut callers = JoinSet::new();
    for caller in 0..8 {
        let (idem, round) = (idem.clone(), round.to_string());
        callers.spawn(async move {
            for number in (caller..).step_by(8) {
                let name = format!("{round}-{number}");
                let length = length(number);
                assert_eq!(put(&idem, &name, length).await.unwrap(), Outcome::Created(length));
                say(&format!("told {name} {length}"));
            }
        });
    }
    callers.join_all().await;
}

/// A child of this test, on that folder.
fn start(program: &mut Command, folder: &Path, round: usize) -> Child {
    let child = program
        .args(["--exact", "child", "--nocapture"])
        .env(FOLDER, folder)
        .env(ROUND, round.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    child.spawn().unwrap()
}

/// Its lines, as they come.
fn lines(child: &mut Child) -> mpsc::Receiver<String> {
    let output = BufReader::new(child.stdout.take().unwrap());
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            sender.send(line).ok();
        }
    });
    receiver
}

/// The name and the length that a child was told of.
fn told(line: &str) -> Option<(String, usize)> {
    let (name, length) = line.strip_prefix("told ")?.split_once(' ')?;
    Some((name.to_string(), length.parse().ok()?))
}

/// Every key that was told replays, with its effect in the space and in the tree.
async fn check(idem: &Idem<SledStore>, told: &HashMap<String, usize>) {
    let lengths = idem.store().db().unwrap().open_tree("lengths").unwrap();
    for (name, length) in told {
        assert_eq!(put(idem, name, 0).await.unwrap(), Outcome::Replayed(*length), "{name}");
        let value = idem.value(&space(), name.as_bytes()).await.unwrap().unwrap();
        assert!(value == vec![7; *length], "{name}");
        assert_eq!(lengths.get(name).unwrap().unwrap(), length.to_string().as_bytes(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_told_before_a_kill_is_there_after_it() {
    const ROUNDS: usize = 20;
    let folder = TempDir::new().unwrap();
    let mut all = HashMap::new();
    for round in 0..ROUNDS {
        let mut child = start(&mut Command::new(env::current_exe().unwrap()), folder.path(), round);
        let output = lines(&mut child);
        let enough = 1 + RandomState::new().hash_one(round) % 300;
        let mut count = 0;
        while count < enough {
            let line = output.recv_timeout(PATIENCE).expect("the child commits");
            if let Some((name, length)) = told(&line) {
                all.insert(name, length);
                count += 1;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        all.extend(output.iter().filter_map(|line| told(&line)));
        let idem = opened(folder.path()).await.unwrap();
        check(&idem, &all).await;
        // What was not told is whole or not there.
        let values = idem.store().db().unwrap().open_tree("lengths").unwrap();
        for entry in values.iter() {
            let (name, length) = entry.unwrap();
            let name = String::from_utf8(name.to_vec()).unwrap();
            let length: usize = std::str::from_utf8(&length).unwrap().parse().unwrap();
            assert_eq!(put(&idem, &name, 0).await.unwrap(), Outcome::Replayed(length), "{name}");
        }
        drop(values);
        idem.close().await.unwrap();
    }
    assert!(all.len() >= ROUNDS);
}

/// The test's program with a limit on the length of files, in blocks of 512 bytes: what is beyond it fails as on a
/// full disk.
fn limited(blocks: usize) -> Command {
    let mut shell = Command::new("sh");
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
    shell.arg("-c").arg(script).arg(env::current_exe().unwrap());
    shell
}

async fn commit_until_it_fails(folder: &Path, size: usize) {
    let builder = SledStore::builder().busy_timeout(Duration::from_millis(500));
    let idem = Idem::new(builder.open(folder).await.unwrap());
    let mut told = HashMap::new();
    let (name, error) = loop {
        let name = told.len().to_string();
        // The last one is as long as the test wants it.
        let length = if told.len() < 20 { 1_000 } else { size };
        match put(&idem, &name, length).await {
            Ok(outcome) => {
                assert_eq!(outcome, Outcome::Created(length));
                say(&format!("told {name} {length}"));
                told.insert(name, length);
            }
            Err(error) => break (name, error),
        }
    };
    assert!(matches!(error.kind(), ErrorKind::Full), "{error:?}");
    if error.certainty() == Certainty::Unknown {
        let again = put(&idem, &name, 1).await.unwrap_err();
        assert_eq!(again.certainty(), Certainty::Unknown, "{again:?}");
    }
    let later = put(&idem, "later", 1).await.unwrap_err();
    assert_eq!(later.certainty(), Certainty::NothingDone, "{later:?}");
    assert!(matches!(later.kind(), ErrorKind::Full), "{later:?}");
    for (name, length) in &told {
        match idem.execute(&request(name), |_| Ok(0)).await {
            Ok(replayed) => assert_eq!(replayed, Outcome::Replayed(*length), "{name}"),
            // Reading, too, can ask the engine to write: it splits pages.
            Err(error) => assert!(matches!(error.kind(), ErrorKind::Full), "{error:?}"),
        }
    }
    assert!(idem.close().await.is_err(), "it cannot leave all durable");
    let closed = idem.execute(&request("a"), nothing).await.unwrap_err();
    assert!(matches!(closed.kind(), ErrorKind::Closed), "{closed:?}");
    say("held");
}

/// Runs the child above, and returns what it was told.
fn run_limited(folder: PathBuf, blocks: usize, size: usize) -> HashMap<String, usize> {
    let mut child = start(limited(blocks).env(SIZE, size.to_string()), &folder, 0);
    let output = lines(&mut child);
    let (mut all, mut held) = (HashMap::new(), false);
    while !held {
        let line = output.recv_timeout(PATIENCE).expect("the child must neither hang nor fail");
        all.extend(told(&line));
        held = line == "held";
    }
    child.kill().unwrap();
    child.wait().unwrap();
    all
}

/// Opens what a full disk has left; if a commit was cut short, after somebody has accepted that.
async fn opened_after_failure(folder: &Path) -> Idem<SledStore> {
    match opened(folder).await {
        Ok(idem) => idem,
        Err(error) => {
            let ErrorKind::CannotOpen { problem, .. } = error.kind() else { panic!("{error:?}") };
            assert!(problem.contains("in the middle of a commit"), "{problem}");
            std::fs::remove_file(folder.join("idem")).unwrap();
            opened(folder).await.unwrap()
        }
    }
}

#[tokio::test]
async fn what_was_told_before_the_log_could_not_grow_is_there_and_the_rest_is_an_error() {
    let folder = TempDir::new().unwrap();
    let told = run_limited(folder.path().to_path_buf(), 4096, 2_000);
    assert!(told.len() > 20);
    let idem = opened_after_failure(folder.path()).await;
    check(&idem, &told).await;
    assert_eq!(put(&idem, "more", 1).await.unwrap(), Outcome::Created(1));
}

#[tokio::test]
async fn a_value_whose_file_could_not_be_written_hangs_nobody() {
    let folder = TempDir::new().unwrap();
    let told = run_limited(folder.path().to_path_buf(), 4096, 5_000_000);
    assert_eq!(told.len(), 20);
    let idem = opened_after_failure(folder.path()).await;
    check(&idem, &told).await;
    assert_eq!(put(&idem, "more", 1).await.unwrap(), Outcome::Created(1));
}
