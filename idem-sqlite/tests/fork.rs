//! A store in a child that was forked while it was open: SQLite's locks do not survive that.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

#[cfg(unix)]
mod forked {
    use std::{
        collections::BTreeSet,
        io::{PipeReader, PipeWriter, Read, Write, pipe},
        os::unix::fs::symlink,
        path::{Path, PathBuf},
        sync::Mutex,
        time::{Duration, SystemTime},
    };

    use idem_conformance::forked::{Forked, Inherited, amid, block_on, in_child};
    use idem_core::{Error, ErrorKind, Idem, Key, Outcome, Request, erase};
    use idem_sqlite::{SqliteBuilder, SqliteStore};
    use rusqlite::Connection;
    use tempfile::TempDir;

    pub(super) const TESTS: [(&str, fn()); 8] = [
        ("what a child commits after its parent has closed is refused and not lost", parent_closes),
        ("every call of a child is refused, and its parent goes on", calls),
        ("every call of a child is refused in each way to open", ways_to_open),
        ("a child that drops the last handle leaves the files as they are", drops),
        ("a file that was open at the fork cannot be opened in the child", same_file),
        ("a child opens another file as any process does", other_file),
        ("what was closed before the fork is opened by both", closed_before),
        ("no child hangs that was forked amid commits", amid_commits),
    ];

    fn database() -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("orders.db");
        let connection = Connection::open(&path).unwrap();
        connection.execute_batch("CREATE TABLE orders (name TEXT)").unwrap();
        (folder, path)
    }

    fn open(path: &Path) -> Idem<SqliteStore> {
        Idem::new(block_on(SqliteStore::open(path)).unwrap())
    }

    fn request(name: &str) -> Request {
        Request::new(Key::new("north", "order", name).unwrap())
    }

    fn order(idem: &Idem<SqliteStore>, name: &str) -> Result<Outcome<u64>, Error> {
        let inserted = name.to_string();
        block_on(idem.execute(&request(name), move |tx| {
            tx.execute("INSERT INTO orders (name) VALUES (?1)", [&inserted])?;
            Ok(7)
        }))
    }

    #[track_caller]
    fn ordered(idem: &Idem<SqliteStore>, name: &str) {
        assert_eq!(order(idem, name).unwrap(), Outcome::Created(7), "{name}");
    }

    #[track_caller]
    fn refused<T>(result: Result<T, Error>) {
        let Err(error) = result else { panic!("it was not refused in another process") };
        assert!(matches!(error.kind(), ErrorKind::OtherProcess { .. }), "{error:?}");
    }

    /// The orders that are there, and those with a receipt.
    fn found(path: &Path) -> (Vec<String>, Vec<String>) {
        let connection = Connection::open(path).unwrap();
        let names = |sql| {
            let mut statement = connection.prepare(sql).unwrap();
            let rows = statement.query_map([], |row| row.get(0)).unwrap();
            rows.map(Result::unwrap).collect()
        };
        let receipts = "SELECT key FROM idem_records WHERE operation = 'order' ORDER BY key";
        (names("SELECT name FROM orders ORDER BY name"), names(receipts))
    }

    #[track_caller]
    fn holds(path: &Path, names: &[&str]) {
        let (orders, receipts) = found(path);
        assert_eq!(orders, names);
        assert_eq!(receipts, names);
    }

    /// Says that something has happened.
    fn say(writer: &mut PipeWriter) {
        writer.write_all(&[1]).unwrap();
    }

    /// Waits until the other process says so.
    fn hear(reader: &mut PipeReader) {
        reader.read_exact(&mut [0]).unwrap();
    }

    fn parent_closes() {
        let (_folder, path) = database();
        let idem = open(&path);
        ordered(&idem, "a");
        let (mut closed, mut close) = pipe().unwrap();
        let child = Forked::start("an order after the parent has closed", || {
            hear(&mut closed);
            refused(order(&idem, "b"));
        });
        block_on(idem.close()).unwrap();
        say(&mut close);
        child.wait();
        holds(&path, &["a"]);
    }

    fn calls() {
        let (_folder, path) = database();
        let store = block_on(SqliteStore::open(&path)).unwrap();
        let (idem, erased) = (Idem::new(store.clone()), Idem::new(erase(store)));
        ordered(&idem, "a");
        let mut own = Some(block_on(Inherited::of(&idem, "own")));
        let mut dynamic = Some(block_on(Inherited::of(&erased, "dynamic")));
        in_child("the calls of a store", || own.take().unwrap().is_refused());
        in_child("the calls of any store", || dynamic.take().unwrap().is_refused());
        block_on(own.unwrap().goes_on());
        block_on(dynamic.unwrap().goes_on());
        ordered(&idem, "b");
        block_on(idem.close()).unwrap();
        holds(&path, &["a", "b"]);
        let idem = open(&path);
        assert_eq!(order(&idem, "a").unwrap(), Outcome::Replayed(7));
        ordered(&idem, "c");
        block_on(idem.close()).unwrap();
        holds(&path, &["a", "b", "c"]);
    }

    fn ways_to_open() {
        let (_folder, path) = database();
        let dedicated = SqliteBuilder::default().dedicated_writer(true);
        for store in
            [dedicated.open(&path).await_here(), SqliteStore::open_in_memory().await_here()]
        {
            let idem = Idem::new(store.unwrap());
            let mut inherited = Some(block_on(Inherited::of(&idem, "held")));
            in_child("the calls of a store", || inherited.take().unwrap().is_refused());
            block_on(inherited.unwrap().goes_on());
            block_on(idem.close()).unwrap();
        }
    }

    trait AwaitHere: Future + Sized {
        fn await_here(self) -> Self::Output {
            block_on(self)
        }
    }

    impl<F: Future> AwaitHere for F {}

    /// Without opening them: closing a plain descriptor would drop this process's locks.
    fn files(path: &Path) -> Vec<(u64, SystemTime)> {
        let looks = ["", "-wal", "-shm"].map(|end| {
            let file = format!("{}{end}", path.display());
            let file = std::fs::metadata(file).expect("the store is open, and has a log");
            (file.len(), file.modified().unwrap())
        });
        looks.to_vec()
    }

    fn drops() {
        let (_folder, path) = database();
        let mut idem = Some(open(&path));
        ordered(idem.as_ref().unwrap(), "a");
        let before = files(&path);
        in_child("the drop of a store", || {
            drop(idem.take());
            // Nothing is closed later, either.
            std::thread::sleep(Duration::from_millis(200));
        });
        assert_eq!(files(&path), before);
        let idem = idem.unwrap();
        ordered(&idem, "b");
        block_on(idem.close()).unwrap();
        holds(&path, &["a", "b"]);
    }

    fn same_file() {
        let (folder, path) = database();
        let link = folder.path().join("link.db");
        symlink(&path, &link).unwrap();
        let idem = open(&path);
        ordered(&idem, "a");
        let cannot_open = || {
            for name in [&path, &link] {
                let error = block_on(SqliteStore::open(name)).unwrap_err();
                assert!(matches!(error.kind(), ErrorKind::CannotOpen { .. }), "{error:?}");
                assert!(error.to_string().contains("forked"), "{error}");
            }
        };
        in_child("opening its parent's file", || {
            cannot_open();
            in_child("opening its grandparent's file", cannot_open);
        });
        // A handle more is no obstacle at home, and the file is refused as long as one is left.
        let other = open(&path);
        block_on(other.close()).unwrap();
        in_child("opening its parent's file", cannot_open);
        ordered(&idem, "b");
        block_on(idem.close()).unwrap();
        holds(&path, &["a", "b"]);
    }

    fn other_file() {
        let ((_folder, path), (_own_folder, own_path)) = (database(), database());
        let idem = open(&path);
        // So that the parent has the background threads which the child needs as well.
        let mut inherited = Some(block_on(Inherited::of(&idem, "held")));
        in_child("a file of the child's", || {
            drop(inherited.take());
            let own = open(&own_path);
            ordered(&own, "x");
            let held = Request::new(Key::new("north", "charge", "held").unwrap());
            let claim = block_on(own.claim::<u64>(&held, Duration::from_secs(60))).unwrap();
            drop(claim.lease().unwrap());
            let waiting = held.clone().wait_for(Duration::from_secs(30));
            let taken_over = block_on(own.claim::<u64>(&waiting, Duration::from_secs(60))).unwrap();
            block_on(taken_over.lease().unwrap().release()).unwrap();
            let purger = own.spawn_purge(Duration::from_millis(1), 10).unwrap();
            block_on(own.close()).unwrap();
            drop(purger);
        });
        block_on(inherited.unwrap().goes_on());
        let found_by_parent = open(&own_path);
        assert_eq!(order(&found_by_parent, "x").unwrap(), Outcome::Replayed(7));
        block_on(found_by_parent.close()).unwrap();
        holds(&own_path, &["x"]);
        block_on(idem.close()).unwrap();
    }

    fn closed_before() {
        let (_folder, path) = database();
        let idem = open(&path);
        ordered(&idem, "a");
        block_on(idem.close()).unwrap();
        let (mut parents_turn, mut told_parent) = pipe().unwrap();
        let (mut childs_turn, mut told_child) = pipe().unwrap();
        let child = Forked::start("a store on the same file", || {
            refused(order(&idem, "x"));
            let own = open(&path);
            ordered(&own, "b");
            say(&mut told_parent);
            hear(&mut childs_turn);
            assert_eq!(order(&own, "c").unwrap(), Outcome::Replayed(7));
            // The parent has closed its store meanwhile.
            ordered(&own, "d");
            block_on(own.close()).unwrap();
        });
        hear(&mut parents_turn);
        let again = open(&path);
        assert_eq!(order(&again, "b").unwrap(), Outcome::Replayed(7));
        ordered(&again, "c");
        block_on(again.close()).unwrap();
        say(&mut told_child);
        child.wait();
        holds(&path, &["a", "b", "c", "d"]);
    }

    fn amid_commits() {
        let (_folder, path) = database();
        let idem = open(&path);
        let told = Mutex::new(BTreeSet::new());
        let writer = |thread: usize| {
            let idem = idem.clone();
            let told = &told;
            move |round: usize| {
                let name = format!("{thread}-{round}");
                ordered(&idem, &name);
                told.lock().unwrap().insert(name);
            }
        };
        amid((0..4).map(writer), |fork| {
            let mut inherited = Some(block_on(Inherited::of(&idem, &format!("fork-{fork}"))));
            in_child("the calls amid commits", || {
                inherited.take().unwrap().is_refused();
                // It would take the parent's locks for its own.
                assert!(block_on(SqliteStore::open(&path)).is_err());
            });
            block_on(inherited.unwrap().goes_on());
        });
        block_on(idem.close()).unwrap();
        let (orders, receipts) = found(&path);
        assert_eq!(orders, receipts);
        assert_eq!(orders, told.into_inner().unwrap().into_iter().collect::<Vec<_>>());
    }
}

fn main() {
    #[cfg(unix)]
    idem_conformance::forked::run(&forked::TESTS);
}
