//! Disks that fill up: this test runs itself as a child.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]
#![cfg(unix)]

mod common;

use std::{
    collections::HashMap,
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use common::{nothing, opened, request, space};
use idem_conformance::child::{Child, say};
use idem_core::{Certainty, Error, ErrorKind, Idem, Outcome, Transaction};
use idem_sled::{SledStore, SledTransaction};
use tempfile::TempDir;

const FOLDER: &str = "IDEM_SLED_TEST_FOLDER";
const SIZE: &str = "IDEM_SLED_TEST_SIZE";

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
    let (Ok(folder), Ok(size)) = (env::var(FOLDER), env::var(SIZE)) else { return };
    commit_until_it_fails(Path::new(&folder), size.parse().unwrap()).await;
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

/// The test's program with a limit on the length of files, in blocks of 512 bytes: what is beyond it fails as on a
/// full disk.
fn limited(blocks: usize) -> Command {
    let mut shell = Command::new("sh");
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
    shell.arg("-c").arg(script).arg(env::current_exe().unwrap());
    // What fails there is meant to.
    shell.stderr(Stdio::null());
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
    let folder = folder.to_str().unwrap().to_string();
    let variables = [(FOLDER, folder), (SIZE, size.to_string())];
    let child = Child::start_by(&mut limited(blocks), "child", variables);
    let mut all = HashMap::new();
    loop {
        match child.line().expect("the child goes on") {
            line if line == "held" => return all,
            line => all.extend(told(&line)),
        }
    }
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
