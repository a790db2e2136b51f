//! A store in a child that was forked while it was open.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

#[cfg(unix)]
mod forked {
    use idem_conformance::forked::{Inherited, amid, block_on, in_child};
    use idem_core::{Error, Idem, Key, Outcome, Request, Store, Transaction, erase};
    use idem_memory::MemoryStore;

    pub(super) const TESTS: [(&str, fn()); 4] = [
        ("every call of a child is refused, and its parent goes on", calls),
        ("a child that drops the last handle leaves the parent's as it is", drops),
        ("a store that a child opens is its own", own_store),
        ("no child hangs that was forked amid commits", amid_commits),
    ];

    fn order<S>(idem: &Idem<S>, name: &str) -> Result<Outcome<u64>, Error>
    where
        S: Store<Transaction: Transaction>,
    {
        let request = Request::new(Key::new("north", "order", name).unwrap());
        block_on(idem.execute(&request, |tx| {
            tx.put(b"ordered", b"yes")?;
            Ok(7)
        }))
    }

    fn calls() {
        let store = MemoryStore::new();
        let (idem, erased) = (Idem::new(store.clone()), Idem::new(erase(store)));
        assert_eq!(order(&idem, "before").unwrap(), Outcome::Created(7));
        let mut own = Some(block_on(Inherited::of(&idem, "own")));
        let mut dynamic = Some(block_on(Inherited::of(&erased, "dynamic")));
        in_child("the calls of a store", || own.take().unwrap().is_refused());
        in_child("the calls of any store", || dynamic.take().unwrap().is_refused());
        block_on(own.unwrap().goes_on());
        block_on(dynamic.unwrap().goes_on());
        assert_eq!(order(&idem, "before").unwrap(), Outcome::Replayed(7));
        assert_eq!(order(&erased, "after").unwrap(), Outcome::Created(7));
        block_on(idem.close()).unwrap();
    }

    fn drops() {
        let mut idem = Some(Idem::new(MemoryStore::new()));
        assert_eq!(order(idem.as_ref().unwrap(), "before").unwrap(), Outcome::Created(7));
        in_child("the drop of a store", || drop(idem.take()));
        assert_eq!(order(&idem.unwrap(), "before").unwrap(), Outcome::Replayed(7));
    }

    fn own_store() {
        let idem = Idem::new(MemoryStore::new());
        let lease = block_on(Inherited::of(&idem, "held"));
        in_child("a store of the child's", || {
            let own = Idem::new(MemoryStore::new());
            assert_eq!(order(&own, "first").unwrap(), Outcome::Created(7));
            // Its leases end, and it sleeps, on threads of the child's.
            let held = Request::new(Key::new("north", "order", "held").unwrap());
            let claim = block_on(own.claim::<u64>(&held, std::time::Duration::from_secs(60)));
            drop(claim.unwrap().lease().unwrap());
            block_on(own.close()).unwrap();
        });
        block_on(lease.goes_on());
    }

    fn amid_commits() {
        let idem = Idem::new(MemoryStore::new());
        let writer = |thread: usize| {
            let idem = idem.clone();
            move |round: usize| {
                let outcome = order(&idem, &format!("{thread}-{round}")).unwrap();
                assert_eq!(outcome, Outcome::Created(7));
            }
        };
        amid((0..4).map(writer), |fork| {
            let mut inherited = Some(block_on(Inherited::of(&idem, &format!("fork-{fork}"))));
            in_child("the calls amid commits", || inherited.take().unwrap().is_refused());
            block_on(inherited.unwrap().goes_on());
        });
    }
}

fn main() {
    #[cfg(unix)]
    idem_conformance::forked::run(&forked::TESTS);
}
