//! Files that cannot grow any more: the engine's writes fail, those of a commit.

use std::{collections::BTreeSet, process::Command};

use idem_conformance::child::{Child, say};
use idem_core::{Certainty, Error, ErrorKind, Idem, Outcome, Transaction};
use idem_sqlite::{SqliteStore, SqliteTransaction, Synchronous};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::{column, opened, orders, request, variables};

const KEYS: usize = 40;
/// More than the last of them cannot be written.
const BLOCKS: usize = 600;

fn name(number: usize) -> String {
    format!("key-{number:02}")
}

async fn put(idem: &Idem<SqliteStore>, name: &str) -> Result<Outcome<String>, Error> {
    let own = name.to_string();
    let effect = move |tx: &mut SqliteTransaction| {
        tx.execute("INSERT INTO orders VALUES (?1)", [&own])?;
        tx.put(own.as_bytes(), &[7; 5_000])?;
        Ok(own.clone())
    };
    idem.execute(&request(name), effect).await
}

/// The child of the test below; nothing without it.
#[tokio::test]
async fn child() {
    let Some((path, _)) = orders() else { return };
    let idem = opened(&path, Synchronous::Full).await;
    let mut told = BTreeSet::new();
    for number in 0..KEYS {
        let name = name(number);
        // The same key asked again tells, or fails again: the store does not give in.
        for _ in 0..2 {
            match put(&idem, &name).await {
                Ok(outcome) => {
                    assert_eq!(outcome.result(), Some(name.clone()));
                    say(&format!("told {name}"));
                    told.insert(name);
                    break;
                }
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::Store), "{error:?}");
                    assert_eq!(error.certainty(), Certainty::Unknown, "{error:?}");
                }
            }
        }
    }
    for name in &told {
        assert_eq!(put(&idem, name).await.unwrap(), Outcome::Replayed(name.clone()));
    }
    assert_eq!(idem.list(None, KEYS).await.unwrap().records.len(), told.len());
    drop(idem.close().await);
    say("held");
}

/// This program with a limit on the length of files, in blocks of 512 bytes.
fn limited(blocks: usize) -> Command {
    let mut shell = Command::new("sh");
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
    shell.arg("-c").arg(script).arg(std::env::current_exe().unwrap());
    shell
}

#[tokio::test]
async fn what_cannot_be_written_is_an_error_reading_goes_on_and_what_was_told_is_there() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE orders (name TEXT)").unwrap();
    let child = Child::start_by(&mut limited(BLOCKS), "unwritable::child", variables(&path, ""));
    let (mut told, mut held) = (BTreeSet::new(), false);
    while let Some(line) = child.line() {
        told.extend(line.strip_prefix("told ").map(str::to_string));
        held |= line == "held";
    }
    child.ends();
    assert!(held && !told.is_empty() && told.len() < KEYS, "{} of {KEYS} were told", told.len());

    let idem = opened(&path, Synchronous::Full).await;
    let set = |sql: &str| column::<String>(&path, sql).into_iter().collect::<BTreeSet<_>>();
    let receipts = set("SELECT key FROM idem_records");
    assert!(told.is_subset(&receipts));
    assert_eq!(set("SELECT name FROM orders"), receipts);
    assert_eq!(set("SELECT CAST(name AS TEXT) FROM idem_values"), receipts);
    for name in (0..KEYS).map(name) {
        let expected = match receipts.contains(&name) {
            true => Outcome::Replayed(name.clone()),
            false => Outcome::Created(name.clone()),
        };
        assert_eq!(put(&idem, &name).await.unwrap(), expected, "once there is room");
    }
    assert_eq!(column::<i64>(&path, "SELECT count(*) FROM orders"), [KEYS as i64]);
}
