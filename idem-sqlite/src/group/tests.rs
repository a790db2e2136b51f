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
    location::Location,
    options::Config,
    queue::Queue,
    schema,
    writer::Writer,
};

mod faults;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Answer = oneshot::Receiver<Result<idem_core::Committed, Error>>;
type Effect = fn(&mut SqliteTransaction) -> Result<(), BoxError>;

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
    fn queue(
        &self,
        name: &str,
        mut effect: impl FnMut(&mut SqliteTransaction) -> Result<(), BoxError> + Send + 'static,
    ) -> Answer {
        let key = Key::new("", "order", name).unwrap();
        let run = move |tx: &mut SqliteTransaction| {
            effect(tx)
                .map_err(|error| Error::nothing_done(ErrorKind::Effect).with_source(error))?;
            Ok(Bytes::new())
        };
        let step = Box::new(Execute::new(&Request::new(key.clone()), 10, run).unwrap());
        let (reply, answer) = oneshot::channel();
        let job = Job::Step(StepJob { key, step, reply, alone: false });
        assert!(matches!(self.queue.submit(job), Ok(None)), "a dedicated queue leads for nobody");
        answer
    }

    fn insert(&self, q: i64) -> Answer {
        self.queue(&q.to_string(), move |tx| {
            tx.execute("INSERT INTO orders VALUES (?1)", [q])?;
            Ok(())
        })
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
fn a_replay_that_comes_first_takes_nobody_into_its_group() {
    let bench = Bench::new();
    let mut first = bench.insert(1);
    bench.take_turns();
    assert!(ran(&mut first));
    let mut replay = bench.insert(1);
    let mut neighbour = bench.insert(2);
    let mut lead = bench.queue.lead().unwrap();
    assert_eq!(turn(&mut lead, Wait::Yes), Turn::Done);
    assert!(!ran(&mut replay), "it is answered before its neighbour runs");
    assert!(neighbour.try_recv().is_err());
    assert_eq!(turn(&mut lead, Wait::Yes), Turn::Done);
    assert!(ran(&mut neighbour));
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
    assert_eq!(turn(&mut lead, Wait::No(&|_| None)), Turn::Blocked);
    assert!(answer.try_recv().is_err(), "it waits");
    foreign.execute_batch("COMMIT").unwrap();
    assert_eq!(turn(&mut lead, Wait::No(&|_| None)), Turn::Done);
    assert!(ran(&mut answer));
}

#[test]
fn what_one_step_sets_on_the_connection_is_not_its_neighbours() {
    use rusqlite::{config::DbConfig, limits::Limit};
    let bench = Bench::new();
    let connection = rusqlite::Connection::open(bench.folder.path().join("store.db")).unwrap();
    let trigger = "CREATE TRIGGER doubles AFTER INSERT ON orders WHEN NEW.q < 100
                   BEGIN INSERT INTO orders VALUES (NEW.q + 100); END";
    connection.execute_batch(trigger).unwrap();
    let mut first = bench.insert(1);
    let mut setting = bench.queue("setting", |tx| {
        let connection = tx.connection();
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, false)?;
        connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, 30)?;
        connection.set_prepared_statement_cache_capacity(0);
        Ok(())
    });
    let mut neighbour = bench.insert(2);
    let mut orphan = bench.queue("orphan", |tx| {
        tx.execute("INSERT INTO child VALUES (5)", [])?;
        Ok(())
    });
    bench.take_turns();
    assert!(ran(&mut first) && ran(&mut setting) && ran(&mut neighbour));
    assert_eq!(refused(&mut orphan).kind().name(), "effect");
    assert_eq!(bench.orders(), ["1", "2", "101", "102"]);
}

#[test]
fn a_defiance_that_kills_the_group_is_not_held_against_the_next_step() {
    let bench = Bench::new();
    let mut first = bench.insert(1);
    let mut defiant = bench.queue("defiant", |tx| {
        drop(tx.execute_batch("COMMIT"));
        drop(tx.execute("INSERT OR ROLLBACK INTO orders VALUES (1)", []));
        drop(tx.execute("INSERT OR ROLLBACK INTO orders VALUES (1)", []));
        Ok(())
    });
    let mut after = bench.insert(2);
    bench.take_turns();
    assert!(ran(&mut first) && ran(&mut after));
    assert_eq!(refused(&mut defiant).kind().name(), "ended");
    let mut alone = bench.queue("alone", |tx| {
        drop(tx.execute_batch("COMMIT"));
        drop(tx.execute("INSERT OR ROLLBACK INTO orders VALUES (1)", []));
        Ok(())
    });
    bench.take_turns();
    let mut later = bench.insert(3);
    bench.take_turns();
    assert_eq!(refused(&mut alone).kind().name(), "ended");
    assert!(ran(&mut later));
}

#[test]
fn an_innocent_step_of_a_dead_group_runs_again_and_counts_once() {
    let bench = Bench::new();
    let runs = Arc::new(std::sync::atomic::AtomicI64::new(0));
    let counted = Arc::clone(&runs);
    let mut innocent = bench.queue("innocent", move |tx| {
        let run = 1 + counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        tx.execute("INSERT INTO orders VALUES (?1)", [run])?;
        Ok(())
    });
    let mut killer = bench.queue("killer", |tx| {
        tx.execute("INSERT OR ROLLBACK INTO orders VALUES (1)", [])?;
        Ok(())
    });
    bench.take_turns();
    assert!(ran(&mut innocent));
    assert_eq!(runs.load(std::sync::atomic::Ordering::SeqCst), 2);
    assert!(ran(&mut killer), "alone, it takes nobody's place");
    assert_eq!(bench.orders(), ["1", "2"], "one set of writes, the last run's");
    assert_eq!(bench.receipts(), ["innocent", "killer"]);
}

#[test]
fn a_group_ends_by_count() {
    let bench = Bench::new();
    // Each does nothing, so that time does not end the group first.
    let answers: Vec<_> =
        (0..=super::MAX_STEPS).map(|step| bench.queue(&step.to_string(), |_| Ok(()))).collect();
    let turns = bench.take_turns();
    assert!(turns >= 2, "one more than a group takes: {turns}");
    for mut answer in answers {
        assert!(ran(&mut answer));
    }
}

#[test]
fn a_group_ends_by_time() {
    let bench = Bench::new();
    let mut slow = bench.queue("slow", |tx| {
        let start = std::time::Instant::now();
        while start.elapsed() < super::MAX_TIME {
            tx.execute("INSERT OR IGNORE INTO orders VALUES (1)", [])?;
        }
        Ok(())
    });
    let mut next = bench.insert(2);
    assert_eq!(bench.take_turns(), 2);
    assert!(ran(&mut slow) && ran(&mut next));
}

/// An error that panics when it is dropped, unless the thread panics already.
#[derive(Debug)]
struct Bomb;

impl std::fmt::Display for Bomb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a bomb")
    }
}

impl std::error::Error for Bomb {}

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "it goes off");
    }
}

#[test]
fn an_error_whose_destructor_panics_harms_no_neighbour() {
    let bench = Bench::new();
    let mut first = bench.insert(1);
    // Its caller goes while the step runs, so that the answer is dropped by the leader.
    let slot = Arc::new(std::sync::Mutex::new(None::<Answer>));
    let gone = Arc::clone(&slot);
    let answer = bench.queue("bomb", move |_| {
        drop(gone.lock().unwrap().take());
        Err(Box::new(Bomb))
    });
    *slot.lock().unwrap() = Some(answer);
    let mut second = bench.insert(2);
    bench.take_turns();
    assert!(ran(&mut first) && ran(&mut second));
    assert_eq!(bench.orders(), ["1", "2"]);
}
