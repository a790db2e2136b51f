//! Listing a large store: no page looks at all of it.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use idem_core::{Filter, Idem, Key, KeyState, Outcome, Request};
use idem_memory::MemoryStore;

const COUNT: usize = 4 * Filter::MAX_SKIPPED;

/// The requests that a filter shows, each once, and the number of its pages.
async fn listed(idem: &Idem<MemoryStore>, filter: &Filter, limit: usize) -> (usize, usize) {
    let (mut shown, mut after, mut pages) = (BTreeSet::new(), None, 0);
    loop {
        let page = idem.list_where(filter, after.as_ref(), limit).await.unwrap();
        assert!(page.records.len() <= limit);
        for (key, _) in page.records {
            assert!(shown.insert(key.clone()), "{key:?} shows twice");
        }
        pages += 1;
        assert!(pages <= COUNT, "a listing must end");
        match page.next {
            Some(next) => after = Some(next),
            None => return (shown.len(), pages),
        }
    }
}

#[tokio::test]
async fn a_filter_that_few_records_match_is_told_in_some_pages() {
    let idem = Idem::new(MemoryStore::new());
    for number in 0..COUNT {
        let tenant = if number % 10_000 == 7 { "rare" } else { "north" };
        let request = Request::new(Key::new(tenant, "order", number).unwrap());
        assert_eq!(idem.execute(&request, |_| Ok(())).await.unwrap(), Outcome::Created(()));
    }
    let of = |tenant| Filter::all().tenant(tenant).unwrap();
    for (filter, count) in [
        (of("rare"), 4),
        (of("nobody"), 0),
        (Filter::all().state(KeyState::Held), 0),
        (of("rare").state(KeyState::Completed), 4),
    ] {
        let (shown, pages) = listed(&idem, &filter, 100).await;
        assert_eq!(shown, count, "{filter:?}");
        // Each but the last passes over at least as many as the bound: the rest of a shard besides.
        assert!((2..=5).contains(&pages), "{filter:?} in {pages} pages");
    }
    assert_eq!(listed(&idem, &Filter::all(), 999).await, (COUNT, COUNT.div_ceil(999)));
}
