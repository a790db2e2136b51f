//! A store in a child that was forked while it was open: neither its committer nor the engine's threads are there.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

#[cfg(unix)]
mod forked {
    use std::{collections::BTreeSet, path::Path, sync::Mutex, time::Duration};

    use idem_conformance::forked::{Inherited, amid, block_on, in_child};
    use idem_core::{Error, ErrorKind, Idem, Key, Outcome, Request, erase};
    use idem_sled::SledStore;

    pub(super) const TESTS: [(&str, fn()); 4] = [
        ("every call of a child is refused, and its parent goes on", calls),
        ("a child that drops the last handle leaves the folder as it is", drops),
        ("a child cannot open a folder, of its parent's or its own", opening),
        ("no child hangs that was forked amid commits", amid_commits),
    ];

    fn open(path: &Path) -> Idem<SledStore> {
        Idem::new(block_on(SledStore::open(path)).unwrap())
    }

    fn order(idem: &Idem<SledStore>, name: &str) -> Result<Outcome<u64>, Error> {
        let request = Request::new(Key::new("north", "order", name).unwrap());
        let inserted = name.to_string();
        block_on(idem.execute(&request, move |tx| {
            tx.tree("orders")?.insert(inserted.as_str(), [7])?;
            Ok(7)
        }))
    }

    #[track_caller]
    fn ordered(idem: &Idem<SledStore>, name: &str) {
        assert_eq!(order(idem, name).unwrap(), Outcome::Created(7), "{name}");
    }

    /// The orders that are there after it was opened again, and each has its receipt.
    fn found(path: &Path) -> Vec<String> {
        let idem = open(path);
        let orders = idem.store().db().unwrap().open_tree("orders").unwrap();
        let names = orders.iter().keys().map(|name| String::from_utf8(name.unwrap().to_vec()));
        let names: Vec<_> = names.map(Result::unwrap).collect();
        drop(orders);
        for name in &names {
            assert_eq!(order(&idem, name).unwrap(), Outcome::Replayed(7));
        }
        block_on(idem.close()).unwrap();
        names
    }

    fn calls() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("orders");
        let store = block_on(SledStore::open(&path)).unwrap();
        let (idem, erased) = (Idem::new(store.clone()), Idem::new(erase(store.clone())));
        ordered(&idem, "a");
        let mut own = Some(block_on(Inherited::of(&idem, "own")));
        let mut dynamic = Some(block_on(Inherited::of(&erased, "dynamic")));
        in_child("the calls of a store", || own.take().unwrap().is_refused());
        in_child("the calls of any store", || dynamic.take().unwrap().is_refused());
        in_child("asking for the engine", || {
            let error = store.db().unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::OtherProcess { .. }), "{error:?}");
        });
        block_on(own.unwrap().goes_on());
        block_on(dynamic.unwrap().goes_on());
        ordered(&idem, "b");
        block_on(idem.close()).unwrap();
        drop((idem, erased, store));
        assert_eq!(found(&path), ["a", "b"]);
    }

    fn drops() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("orders");
        let mut idem = Some(open(&path));
        ordered(idem.as_ref().unwrap(), "a");
        in_child("the drop of a store", || {
            drop(idem.take());
            // Nothing is closed later, either.
            std::thread::sleep(Duration::from_millis(200));
        });
        let idem = idem.unwrap();
        ordered(&idem, "b");
        block_on(idem.close()).unwrap();
        assert_eq!(found(&path), ["a", "b"]);
    }

    fn opening() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("orders");
        let idem = open(&path);
        ordered(&idem, "a");
        in_child("opening a folder", || {
            for name in ["orders", "own"] {
                let error = block_on(SledStore::open(folder.path().join(name))).unwrap_err();
                assert!(matches!(error.kind(), ErrorKind::CannotOpen { .. }), "{error:?}");
                assert!(error.to_string().contains("forked"), "{error}");
            }
        });
        block_on(idem.close()).unwrap();
        assert_eq!(found(&path), ["a"]);
    }

    fn amid_commits() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("orders");
        let idem = open(&path);
        let told = Mutex::new(BTreeSet::new());
        let writer = |thread: usize| {
            let (idem, told) = (idem.clone(), &told);
            move |round: usize| {
                let name = format!("{thread}-{round}");
                ordered(&idem, &name);
                told.lock().unwrap().insert(name);
            }
        };
        amid((0..4).map(writer), |fork| {
            let mut inherited = Some(block_on(Inherited::of(&idem, &format!("fork-{fork}"))));
            in_child("the calls amid commits", || inherited.take().unwrap().is_refused());
            block_on(inherited.unwrap().goes_on());
        });
        block_on(idem.close()).unwrap();
        drop(idem);
        let told: Vec<_> = told.into_inner().unwrap().into_iter().collect();
        assert_eq!(found(&path), told);
    }
}

fn main() {
    #[cfg(unix)]
    idem_conformance::forked::run(&forked::TESTS);
}
