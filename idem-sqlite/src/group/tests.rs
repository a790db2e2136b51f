//! Groups under the hands of the test: jobs are queued first, then one turn is taken.

use std::sync::Arc;

use bytes::Bytes;
use idem_core::{Error, ErrorKind, Execute, Key, Request};
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::{Turn, Wait, turn};
use crate::{
    SqliteBuilder, SqliteTransaction,
    checkpoint::Checkpoints,
    job::{Job, StepJob},
    queue::Queue,
    schema::{self, Location},
    store::Config,
    writer::Writer,
};

type Answer = oneshot::Receiver<Result<idem_core::Committed, Error>>;
type Effect = fn(&mut SqliteTransaction) -> Result<(), Box<dyn std::error::Error + Send + Sync>>;

struct Bench {
    folder: TempDir,
    queue: Queue<Writer, Job>,
}

impl Bench {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let location = Location::file(&folder.path().join("store.db")).unwrap();
        let options = SqliteBuilder::default();
        let connection = schema::open(&location, &options).unwrap();
        connection
            .execute_batch(
                "CREATE TABLE orders (q INTEGER UNIQUE);
                 CREATE TABLE parent (id INTEGER PRIMARY KEY);
                 CREATE TABLE child (
                     p INTEGER REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED);",
            )
            .unwrap();
        let config = Arc::new(Config { location, options });
        let writer = Writer::new(connection, config, Checkpoints::default()).unwrap();
        Self { folder, queue: Queue::new(writer, true) }
    }

    /// Queues an effect under the key of that name.
    fn queue(&self, name: &str, effect: Effect) -> Answer {
        let key = Key::new("", "order", name).unwrap();
        let run = move |tx: &mut SqliteTransaction| {
            effect(tx).map_err(|error| Error::new(ErrorKind::Effect).with_source(error))?;
            Ok(Bytes::new())
        };
        let step = Box::new(Execute::new(&Request::new(key.clone()), 10, run).unwrap());
        let (reply, answer) = oneshot::channel();
        let job = Job::Step(StepJob { key, step, reply, alone: false });
        assert!(matches!(self.queue.submit(job), Ok(None)), "a dedicated queue leads for nobody");
        answer
    }

    /// Takes turns until nothing is queued, and counts them.
    fn take_turns(&self) -> usize {
        let mut lead = self.queue.lead().expect("there are jobs");
        let mut turns = 0;
        while turn(&mut lead, Wait::Yes) != Turn::Idle {
            turns += 1;
        }
        turns
    }

    fn column(&self, query: &str) -> Vec<String> {
        let connection = rusqlite::Connection::open(self.folder.path().join("store.db")).unwrap();
        let mut statement = connection.prepare(query).unwrap();
        let rows = statement.query_map([], |row| row.get::<_, rusqlite::types::Value>(0)).unwrap();
        rows.map(|value| match value.unwrap() {
            rusqlite::types::Value::Integer(number) => number.to_string(),
            rusqlite::types::Value::Text(text) => text,
            other => panic!("unexpected {other:?}"),
        })
        .collect()
    }

    fn orders(&self) -> Vec<String> {
        self.column("SELECT q FROM orders ORDER BY q")
    }

    fn receipts(&self) -> Vec<String> {
        self.column("SELECT key FROM idem_records ORDER BY key")
    }
}

fn ran(answer: &mut Answer) -> bool {
    answer.try_recv().unwrap().unwrap().ran
}

fn refused(answer: &mut Answer) -> Error {
    answer.try_recv().unwrap().unwrap_err()
}

#[test]
fn a_group_of_good_steps_is_one_transaction() {
    let bench = Bench::new();
    let mut answers = [
        bench.queue("1", |tx| Ok(tx.execute("INSERT INTO orders VALUES (1)", []).map(drop)?)),
        bench.queue("2", |tx| {
            // Sees what its neighbour wrote: they are in one transaction.
            let count: i64 = tx.query_row("SELECT count(*) FROM orders", [], |row| row.get(0))?;
            tx.execute("INSERT INTO orders VALUES (?1)", [10 + count])?;
            Ok(())
        }),
    ];
    assert_eq!(bench.take_turns(), 1);
    assert!(answers.iter_mut().all(ran));
    assert_eq!(bench.orders(), ["1", "11"]);
    assert_eq!(bench.receipts(), ["1", "2"]);
}

#[test]
fn of_eight_steps_six_of_them_bad_exactly_the_two_good_ones_remain() {
    let bench = Bench::new();
    let mut good_first =
        bench.queue("1", |tx| Ok(tx.execute("INSERT INTO orders VALUES (1)", []).map(drop)?));
    let bad: [(&str, Effect); 6] = [
        ("2-or-rollback", |tx| {
            tx.execute("INSERT OR IGNORE INTO orders VALUES (1)", [])?;
            drop(tx.execute("INSERT OR ROLLBACK INTO orders VALUES (1)", []));
            drop(tx.execute("INSERT INTO orders VALUES (900)", []));
            Ok(())
        }),
        ("3-deferred-key", |tx| Ok(tx.execute("INSERT INTO child VALUES (5)", []).map(drop)?)),
        ("4-cached-commit", |tx| {
            tx.execute("INSERT INTO orders VALUES (901)", [])?;
            drop(tx.prepare_cached("COMMIT").and_then(|mut commit| commit.raw_execute()));
            Ok(())
        }),
        ("5-query-only", |tx| {
            tx.execute("INSERT INTO orders VALUES (902)", [])?;
            Ok(tx.execute_batch("PRAGMA query_only = ON")?)
        }),
        ("6-panic", |tx| {
            tx.execute("INSERT INTO orders VALUES (903)", [])?;
            panic!("in the middle")
        }),
        ("7-own-tables", |tx| Ok(tx.execute("DELETE FROM idem_records", []).map(drop)?)),
    ];
    let mut refusals = bad.map(|(name, effect)| bench.queue(name, effect));
    let mut good_last =
        bench.queue("8", |tx| Ok(tx.execute("INSERT INTO orders VALUES (8)", []).map(drop)?));

    // The group dies at its second step, and its two steps run alone; the rest is a group again.
    bench.take_turns();

    assert!(ran(&mut good_first));
    assert!(ran(&mut good_last));
    let kinds = refusals.each_mut().map(|answer| refused(answer).kind().name());
    let expected = ["ended", "effect", "ended", "effect", "panicked", "effect"];
    assert_eq!(kinds, expected);
    assert_eq!(bench.orders(), ["1", "8"]);
    assert_eq!(bench.receipts(), ["1", "8"]);
}

trait Name {
    fn name(&self) -> &'static str;
}

impl Name for ErrorKind {
    fn name(&self) -> &'static str {
        match self {
            Self::TransactionEnded => "ended",
            Self::Effect => "effect",
            Self::Panicked(_) => "panicked",
            other => panic!("unexpected {other:?}"),
        }
    }
}

#[test]
fn a_step_that_kills_its_group_is_alone_to_blame() {
    let bench = Bench::new();
    let _seed =
        bench.queue("seed", |tx| Ok(tx.execute("INSERT INTO orders VALUES (1)", []).map(drop)?));
    bench.take_turns();
    let mut before = bench
        .queue("before", |tx| Ok(tx.execute("INSERT INTO orders VALUES (2)", []).map(drop)?));
    let mut killer = bench.queue("killer", |tx| {
        Ok(tx.execute("INSERT OR ROLLBACK INTO orders VALUES (1)", []).map(drop)?)
    });
    let mut after =
        bench.queue("after", |tx| Ok(tx.execute("INSERT INTO orders VALUES (3)", []).map(drop)?));
    // One that dies, two alone, one that was not in it.
    assert_eq!(bench.take_turns(), 4);
    assert!(ran(&mut before) && ran(&mut after));
    let error = refused(&mut killer);
    assert!(error.effect_error::<rusqlite::Error>().is_some(), "its own error: {error:?}");
    assert_eq!(bench.orders(), ["1", "2", "3"]);
    assert_eq!(bench.receipts(), ["after", "before", "seed"]);
}

#[test]
fn a_statement_that_is_left_open_costs_only_its_own_step() {
    let bench = Bench::new();
    let mut before = bench
        .queue("before", |tx| Ok(tx.execute("INSERT INTO orders VALUES (2)", []).map(drop)?));
    let mut leaving = bench.queue("leaving", |tx| {
        let mut insert = tx.prepare("INSERT INTO orders VALUES (900), (901) RETURNING q")?;
        let mut rows = insert.query([])?;
        rows.next()?;
        std::mem::forget(rows);
        std::mem::forget(insert);
        Ok(())
    });
    let mut after =
        bench.queue("after", |tx| Ok(tx.execute("INSERT INTO orders VALUES (3)", []).map(drop)?));
    bench.take_turns();
    assert!(ran(&mut before) && ran(&mut after));
    assert!(matches!(refused(&mut leaving).kind(), ErrorKind::TransactionEnded));
    assert_eq!(bench.orders(), ["2", "3"]);
}

#[test]
fn a_failing_step_of_a_living_group_is_undone_alone() {
    let bench = Bench::new();
    let mut answers = [
        bench.queue("1", |tx| Ok(tx.execute("INSERT INTO orders VALUES (1)", []).map(drop)?)),
        bench.queue("2", |tx| {
            tx.execute("INSERT INTO orders VALUES (2)", [])?;
            Err("declined".into())
        }),
        bench.queue("3", |tx| Ok(tx.execute("INSERT INTO orders VALUES (3)", []).map(drop)?)),
    ];
    assert_eq!(bench.take_turns(), 1, "an error is no death");
    assert_eq!(refused(&mut answers[1]).kind().name(), "effect");
    assert!(ran(&mut answers[0]) && ran(&mut answers[2]));
    assert_eq!(bench.orders(), ["1", "3"]);
    assert_eq!(bench.receipts(), ["1", "3"]);
}

#[test]
fn a_first_step_that_fails_leaves_the_others_their_group() {
    let bench = Bench::new();
    let mut failing = bench.queue("1", |tx| {
        tx.execute("INSERT INTO orders VALUES (1)", [])?;
        Err("declined".into())
    });
    let mut others = [
        bench.queue("2", |tx| Ok(tx.execute("INSERT INTO orders VALUES (2)", []).map(drop)?)),
        bench.queue("3", |tx| Ok(tx.execute("INSERT INTO orders VALUES (3)", []).map(drop)?)),
    ];
    assert_eq!(bench.take_turns(), 2);
    assert_eq!(refused(&mut failing).kind().name(), "effect");
    assert!(others.iter_mut().all(ran));
    assert_eq!(bench.orders(), ["2", "3"]);
}

#[test]
fn a_repeated_key_in_one_group_is_answered_after_the_commit_it_rests_on() {
    let bench = Bench::new();
    let insert: Effect = |tx| Ok(tx.execute("INSERT INTO orders VALUES (1)", []).map(drop)?);
    let mut first = bench.queue("same", insert);
    let mut second = bench.queue("same", insert);
    assert_eq!(bench.take_turns(), 1);
    assert!(ran(&mut first));
    let second = second.try_recv().unwrap().unwrap();
    assert!(!second.ran && second.before.is_some());
    assert_eq!(bench.orders(), ["1"]);
}

#[test]
fn a_replay_does_not_outlive_the_group_that_it_rests_on() {
    let bench = Bench::new();
    let insert: Effect = |tx| Ok(tx.execute("INSERT INTO orders VALUES (1)", []).map(drop)?);
    let mut first = bench.queue("same", insert);
    let mut second = bench.queue("same", insert);
    // Fails the group's commit, so that all run again alone.
    let mut culprit = bench
        .queue("culprit", |tx| Ok(tx.execute("INSERT INTO child VALUES (5)", []).map(drop)?));
    bench.take_turns();
    assert!(ran(&mut first));
    assert!(!ran(&mut second));
    assert_eq!(refused(&mut culprit).kind().name(), "effect");
    assert_eq!(bench.orders(), ["1"]);
    assert_eq!(bench.receipts(), ["same"]);
}

#[test]
fn an_abandoned_step_does_not_run() {
    let bench = Bench::new();
    drop(bench.queue("gone", |tx| Ok(tx.execute("INSERT INTO orders VALUES (1)", []).map(drop)?)));
    let mut stays =
        bench.queue("stays", |tx| Ok(tx.execute("INSERT INTO orders VALUES (2)", []).map(drop)?));
    bench.take_turns();
    assert!(ran(&mut stays));
    assert_eq!(bench.orders(), ["2"]);
    assert_eq!(bench.receipts(), ["stays"]);
}

#[test]
fn a_leader_that_may_not_wait_leaves_a_foreign_lock_to_the_thread() {
    let bench = Bench::new();
    let foreign = rusqlite::Connection::open(bench.folder.path().join("store.db")).unwrap();
    foreign.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut answer =
        bench.queue("a", |tx| Ok(tx.execute("INSERT INTO orders VALUES (1)", []).map(drop)?));
    let mut lead = bench.queue.lead().unwrap();
    assert_eq!(turn(&mut lead, Wait::No), Turn::Blocked);
    assert!(answer.try_recv().is_err(), "it waits");
    foreign.execute_batch("COMMIT").unwrap();
    assert_eq!(turn(&mut lead, Wait::No), Turn::Done);
    assert!(ran(&mut answer));
}
