//! What a purge removes, and what it must not.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use idem_core::{ErrorKind, Idem, Outcome, Purged};
use tokio::{sync::Barrier, task::JoinSet};

use crate::{
    Fixture,
    callers::{give_way, together, until, within},
    setup::{Setup, add, kept, key, request},
};

/// How long the receipts of [`request`] live.
const LIFE: Duration = Duration::from_secs(60);

/// 53. A purge removes the expired alone, at most the limit, which may not be zero, and counts exactly.
pub async fn a_purge_removes_only_the_expired_and_counts_exactly<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    assert_eq!(setup.idem.purge(5).await.unwrap(), Purged::new(0, false));
    for name in ["a", "b", "c", "d", "e", "f", "g"] {
        assert!(matches!(setup.add(&request(name, "p"), "count").await, Outcome::Created(_)));
    }
    // Before and after the others in the order of keys.
    let live = [
        request("0-longer", "p").retain(LIFE + Duration::from_millis(1)),
        request("1-much-longer", "p").retain(Duration::from_secs(3600)),
        request("forever", "p").retain_forever(),
    ];
    for request in &live {
        assert!(matches!(setup.add(request, "count").await, Outcome::Created(_)));
    }
    assert_eq!(setup.idem.purge(5).await.unwrap(), Purged::new(0, false));
    setup.clock.advance(LIFE);
    let error = setup.idem.purge(0).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InvalidSetting { field: "limit", .. }), "{error:?}");
    assert_eq!(kept(setup.idem.store(), 4).await.len(), 10, "a refused purge removes nothing");
    for (removed, more) in [(3, true), (3, true), (1, false), (0, false)] {
        assert_eq!(setup.idem.purge(3).await.unwrap(), Purged::new(removed, more));
    }
    let mut left: Vec<_> = kept(setup.idem.store(), 4).await;
    left.sort_by(|(one, _), (other, _)| one.cmp(other));
    let names: Vec<_> = left.iter().map(|(key, _)| key.request()).collect();
    assert_eq!(names, ["0-longer", "1-much-longer", "forever"], "a purge leaves what is live");
    for request in &live {
        assert!(matches!(setup.add(request, "count").await, Outcome::Replayed(_)), "{request:?}");
    }
    setup.clock.advance(Duration::from_secs(3600));
    let all = setup.idem.purge(usize::MAX).await.unwrap();
    assert_eq!(all, Purged::new(2, false), "the largest limit is a limit");
}

/// 53. Many keys are listed and purged to the last, also where an engine takes fewer at once.
pub async fn many_keys_are_listed_and_purged_to_the_last<F: Fixture>() {
    const KEYS: usize = 150;
    let setup = Setup::<F>::new().await;
    for number in 0..KEYS {
        let request = request(&format!("key-{number}"), "p");
        assert_eq!(setup.idem.execute(&request, |_| Ok(1)).await.unwrap(), Outcome::Created(1));
    }
    assert_eq!(kept(setup.idem.store(), usize::MAX).await.len(), KEYS);
    setup.clock.advance(LIFE);
    let mut removed = 0;
    loop {
        let purged = setup.idem.purge(usize::MAX).await.unwrap();
        removed += purged.removed;
        if !purged.more {
            break;
        }
        assert!(removed <= KEYS && purged.removed > 0, "a purge must come to its end: {purged:?}");
    }
    assert_eq!(removed, KEYS);
    assert_eq!(kept(setup.idem.store(), usize::MAX).await, []);
}

/// 54. A purge beside running callers never removes the live receipt that took an expired one's place.
pub async fn a_purge_never_removes_what_took_an_expired_ones_place<F: Fixture>() {
    const KEYS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    const PURGERS: usize = 2;
    let setup = Setup::<F>::new().await;
    for round in 1..=12 {
        let barrier = Arc::new(Barrier::new(KEYS.len() + PURGERS));
        let done = Arc::new(AtomicBool::new(false));
        let mut callers = JoinSet::new();
        for name in KEYS {
            let (idem, barrier) = (setup.idem.clone(), Arc::clone(&barrier));
            callers.spawn(async move {
                barrier.wait().await;
                let call = async || {
                    let effect = move |tx: &mut _| add(tx, name);
                    idem.execute(&request(name, "p"), effect).await.unwrap()
                };
                assert_eq!(call().await, Outcome::Created(round), "{name} had expired");
                assert_eq!(call().await, Outcome::Replayed(round), "{name} is live");
            });
        }
        let mut purgers = JoinSet::new();
        for _ in 0..PURGERS {
            let (idem, barrier) = (setup.idem.clone(), Arc::clone(&barrier));
            let done = Arc::clone(&done);
            purgers.spawn(async move {
                barrier.wait().await;
                while !done.load(Ordering::Relaxed) {
                    idem.purge(2).await.unwrap();
                    tokio::task::yield_now().await;
                }
            });
        }
        within("callers beside a purge", callers.join_all()).await;
        done.store(true, Ordering::Relaxed);
        within("the purges to end", purgers.join_all()).await;
        assert_eq!(setup.receipts().await, KEYS.len());
        for name in KEYS {
            let replayed = setup.add(&request(name, "p"), name).await;
            assert_eq!(replayed, Outcome::Replayed(round), "{name} is live");
        }
        setup.clock.advance(LIFE);
    }
}

/// 53. A background purge removes nothing before its interval, then all that is expired, until it is dropped.
pub async fn a_background_purge_keeps_its_interval_and_ends_with_its_handle<F: Fixture>() {
    const EVERY: Duration = Duration::from_secs(10);
    let setup = Setup::<F>::new().await;
    let store = Arc::new(setup.fixture.open(setup.clock.clone()).await);
    let idem = Idem::new(Arc::clone(&store));
    let forever = request("forever", "p").retain_forever();
    assert_eq!(setup.add(&forever, "count").await, Outcome::Created(1));
    for name in ["a", "b", "c", "d", "e"] {
        assert!(matches!(setup.add(&request(name, "p"), "count").await, Outcome::Created(_)));
    }
    setup.clock.advance(LIFE);

    let purger = idem.spawn_purge(EVERY, 2).unwrap();
    setup.clock.advance(EVERY - Duration::from_millis(1));
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    assert_eq!(kept(setup.idem.store(), 10).await.len(), 6, "the interval has not passed");
    assert_eq!(purger.removed(), 0);
    // The purge may have gone to sleep only now, so one interval more may be needed than was asked for.
    let has_begun = || {
        setup.clock.advance(EVERY);
        purger.removed() > 0
    };
    until("a background purge to begin", has_begun).await;
    // The clock stands still: no further interval may be needed for the rest.
    until("a background purge to remove what is over its limit", || purger.removed() >= 5).await;
    assert_eq!((purger.removed(), purger.failures()), (5, 0));
    let left = kept(setup.idem.store(), 10).await;
    assert!(matches!(&left[..], [(left, _)] if *left == key("forever")), "{left:?}");

    drop(idem);
    drop(purger);
    // The task holds the store as long as it goes on.
    until("a background purge to end with its handle", || Arc::strong_count(&store) == 1).await;
}

/// 53. Purges at the same time count each record once between them, and none ends while there is more to remove.
pub async fn purges_at_the_same_time_count_each_record_once<F: Fixture>() {
    const KEYS: usize = 40;
    const PURGERS: usize = 4;
    let setup = Setup::<F>::new().await;
    for number in 0..KEYS {
        let request = request(&format!("key-{number}"), "p");
        assert_eq!(setup.idem.execute(&request, |_| Ok(1)).await.unwrap(), Outcome::Created(1));
    }
    setup.clock.advance(LIFE);
    let purger = |_| {
        let idem = setup.idem.clone();
        async move {
            let (mut removed, mut tries) = (0, 0);
            while !kept(idem.store(), 100).await.is_empty() {
                tries += 1;
                assert!(tries <= 10 * KEYS, "what has expired is purged in the end");
                let purged = idem.purge(3).await.unwrap();
                removed += purged.removed;
                // Whatever it did not remove itself another has.
                let left = kept(idem.store(), 100).await.len();
                assert!(purged.more || left == 0, "{left} are left after {purged:?}");
                tokio::task::yield_now().await;
            }
            removed
        }
    };
    let removed = together((0..PURGERS).map(purger)).await;
    assert_eq!(removed.iter().sum::<usize>(), KEYS, "each is removed once: {removed:?}");
}

/// 53. A background purge with an interval or a limit of zero is refused, and purges nothing.
pub async fn a_background_purge_of_nothing_is_refused<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    assert_eq!(setup.add(&request("a", "p"), "count").await, Outcome::Created(1));
    setup.clock.advance(LIFE);
    let error = setup.idem.spawn_purge(Duration::ZERO, 1).unwrap_err();
    let is_interval = matches!(error.kind(), ErrorKind::InvalidDuration { field: "interval", .. });
    assert!(is_interval, "{error:?}");
    let error = setup.idem.spawn_purge(LIFE, 0).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InvalidSetting { field: "limit", .. }), "{error:?}");
    give_way().await;
    setup.clock.advance(LIFE);
    give_way().await;
    assert_eq!(kept(setup.idem.store(), 10).await.len(), 1, "what was refused must not purge");
}
