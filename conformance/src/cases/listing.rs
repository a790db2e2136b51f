//! Which keys a filtered listing shows.

use std::collections::BTreeSet;

use idem_core::{
    Cursor, Error, ErrorKind, Filter, Idem, Key, KeyState, Kind, Outcome, Page, Request, Space,
    Store, Timestamp, consumer::Recorder,
};

use crate::{
    Fixture,
    setup::{START, Setup, request_for, start_plus},
    steps::{LEASE, claimed},
};

/// Names that one of the others begins with, or matches as a pattern, or is but for case or an escape.
const NAMES: [&str; 30] = [
    "a", "A", "aa", "ab", "a ", "a:", "a:r", "b", "*", "a*", "?", "??", "[a]", "[^a]", "[a-z]",
    "]", "{a}", "{", "}", "a}", "a{b", "\\", "\\a", "a\\", "%", "_", "%7B", "%25", "^", "\u{e9}",
];

fn of_tenant(tenant: &str) -> Filter {
    Filter::all().tenant(tenant).expect("a good tenant")
}

fn of_consumer(consumer: &str) -> Filter {
    Filter::all().in_namespace(&Space::consumer(consumer).expect("a good consumer"))
}

fn of_operation(filter: Filter, operation: &str) -> Filter {
    filter.operation(operation).expect("a good operation")
}

/// Completes a key.
async fn complete<S: Store>(idem: &Idem<S>, request: &Request) {
    let outcome = idem.execute(request, |_| Ok(1)).await.expect("nothing fails here");
    assert_eq!(outcome, Outcome::Created(1), "{:?} is new", request.key());
}

/// All that a store lists for a filter, in pages of `limit`: sorted, and as often as it comes.
async fn listed<S: Store>(store: &S, filter: &Filter, limit: usize, now: Timestamp) -> Vec<Key> {
    let (mut listed, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = store.list(filter, after.as_ref(), limit).await.expect("listing works");
        assert!(page.records.len() <= limit, "a page of {limit} holds {}", page.records.len());
        assert_eq!(page.now, now);
        listed.extend(page.records.into_iter().map(|(key, _)| key));
        pages += 1;
        assert!(pages < 1_000, "a listing of {filter:?} in pages of {limit} must end");
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    listed.sort();
    listed
}

/// Asserts that a filter shows each key for which `is_shown` once, and no other, in pages of any size.
async fn shows<S: Store>(
    store: &S,
    filter: &Filter,
    keys: &[Key],
    is_shown: impl Fn(&Key) -> bool,
) {
    let mut expected: Vec<_> = keys.iter().filter(|key| is_shown(key)).cloned().collect();
    expected.sort();
    for limit in [1, 2, usize::MAX] {
        let listed = listed(store, filter, limit, START).await;
        assert_eq!(listed, expected, "{filter:?} in pages of {limit}");
    }
}

/// 85. A filter shows one tenant's or one consumer's keys and no others, whatever their names look like.
pub async fn a_filter_shows_its_namespace_alone<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let mut keys = Vec::new();
    for name in NAMES {
        keys.push(Key::new(name, "o", "k").unwrap());
        keys.push(Key::event(name, "k").unwrap());
    }
    for (operation, request) in [("o", "k"), ("o", "k2"), ("oo", "k"), ("a", "a")] {
        keys.push(Key::new("", operation, request).unwrap());
        keys.push(Key::new("a", operation, format!("{request}-a")).unwrap());
    }
    for key in &keys {
        complete(&setup.idem, &request_for(key.clone(), "p")).await;
    }
    let store = setup.idem.store();
    for name in NAMES.into_iter().chain(["", "nobody"]) {
        let is_of = |kind: Kind| move |key: &Key| key.kind() == kind && key.tenant() == name;
        shows(store, &of_tenant(name), &keys, is_of(Kind::Request)).await;
        if !name.is_empty() {
            shows(store, &of_consumer(name), &keys, is_of(Kind::Event)).await;
        }
    }
    shows(store, &Filter::all(), &keys, |_| true).await;
}

/// 86. A filter shows one operation's keys and no others, of one tenant or of all; no event has an operation.
pub async fn a_filter_shows_its_operation_alone<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let mut keys = vec![Key::event("a", "a").unwrap(), Key::event("b", "a:k").unwrap()];
    for name in NAMES {
        for tenant in ["", "a", "aa"] {
            keys.push(Key::new(tenant, name, "k").unwrap());
        }
    }
    for key in &keys {
        complete(&setup.idem, &request_for(key.clone(), "p")).await;
    }
    let store = setup.idem.store();
    for name in NAMES.into_iter().chain(["none"]) {
        let of_all = of_operation(Filter::all(), name);
        shows(store, &of_all, &keys, |key| key.operation() == name).await;
        let is_of_both = |key: &Key| key.operation() == name && key.tenant() == "a";
        let of_both = of_operation(of_tenant("a"), name);
        shows(store, &of_both, &keys, |key| key.kind() == Kind::Request && is_of_both(key)).await;
        shows(store, &of_operation(of_consumer("a"), name), &keys, |_| false).await;
    }
}

/// 87. A filter shows the keys that are in one state, to the millisecond of each end, and never what is gone.
pub async fn a_filter_shows_each_state_to_the_millisecond<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let idem = &setup.idem;
    let of = |name: &str| Key::new("north", "order", name).unwrap();
    let minute = |name: &str| request_for(of(name), "p");
    let forever = |name: &str| minute(name).retain_forever();
    complete(idem, &minute("done")).await;
    complete(idem, &forever("done-forever")).await;
    let _ = idem.store().mark_processed("north", "marked").await.unwrap();
    claimed(idem, &minute("held")).await;
    claimed(idem, &forever("held-forever")).await;
    // Its end is ten milliseconds from now, whatever a clock says that is set back.
    claimed(idem, &minute("ended")).await;
    setup.clock.set(start_plus(10));
    assert!(idem.end_held(&of("ended")).await.unwrap().is_some());
    for millis in [5, LEASE - 1, LEASE, 59_999, 60_000, 60_009, 60_010, 89_999, 90_000, 90_001] {
        let now = start_plus(millis);
        setup.clock.set(now);
        let keys = |conditions: &[(&str, bool)]| -> BTreeSet<Key> {
            let shown = conditions.iter().filter(|(_, is_shown)| *is_shown);
            shown.map(|(name, _)| of(name)).collect()
        };
        let (is_held, is_gone) = (millis < LEASE, millis >= LEASE + 60_000);
        let mut completed = keys(&[("done", millis < 60_000), ("done-forever", true)]);
        completed.insert(Key::event("north", "marked").unwrap());
        let held = keys(&[("held", is_held), ("held-forever", is_held)]);
        let ended = keys(&[
            ("held", !is_held && !is_gone),
            ("held-forever", !is_held),
            ("ended", millis < 60_010),
        ]);
        let all = [&completed, &held, &ended].into_iter().flatten().cloned().collect();
        let in_state = |state| Filter::all().state(state);
        for (filter, expected) in [
            (in_state(KeyState::Completed), completed),
            (in_state(KeyState::Held), held),
            (in_state(KeyState::Ended), ended),
        ] {
            for limit in [1, 2, 100] {
                let listed = listed(idem.store(), &filter, limit, now).await;
                let expected: Vec<_> = expected.iter().cloned().collect();
                assert_eq!(listed, expected, "{filter:?} after {millis} ms in pages of {limit}");
            }
        }
        // Through the front nothing that is gone shows without a state either.
        let page = idem.list_where(&Filter::all(), None, 100).await.unwrap();
        let shown: BTreeSet<_> = page.records.into_iter().map(|(key, _)| key).collect();
        assert_eq!((shown, page.next), (all, None), "after {millis} ms");
    }
    let error = idem.list_where(&Filter::all(), None, 0).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InvalidSetting { field: "limit", .. }), "{error:?}");
}

/// Keys of some tenants and operations in each state.
async fn mixed<S: Store>(idem: &Idem<S>) -> Vec<(Key, KeyState)> {
    let mut mixed = Vec::new();
    for tenant in ["", "north", "north2"] {
        for operation in ["order", "orders"] {
            for number in 0..9 {
                let key = Key::new(tenant, operation, number).unwrap();
                let request = request_for(key.clone(), "p");
                let state = KeyState::ALL[number % 3];
                match state {
                    KeyState::Completed => complete(idem, &request).await,
                    KeyState::Held => drop(claimed(idem, &request).await),
                    KeyState::Ended => {
                        claimed(idem, &request).await;
                        assert!(idem.end_held(&key).await.unwrap().is_some());
                    }
                }
                mixed.push((key, state));
            }
        }
    }
    mixed
}

/// The filters of one tenant, or of all, with each operation and each state, or none.
fn combined() -> Vec<Filter> {
    let mut filters = Vec::new();
    for filter in [Filter::all(), of_tenant(""), of_tenant("north"), of_tenant("none")] {
        let of_orders = of_operation(filter.clone(), "order");
        for filter in [filter, of_orders] {
            filters.extend(KeyState::ALL.map(|state| filter.clone().state(state)));
            filters.push(filter);
        }
    }
    filters
}

/// 88. Filters combine: in pages of any size each key that matches shows once, and none is missed.
pub async fn filters_combine_and_their_pages_show_each_key_once<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let keys = mixed(&setup.idem).await;
    for filter in combined() {
        let is_shown = |(key, state): &&(Key, KeyState)| {
            filter.only_namespace().is_none_or(|space| key.tenant() == space.owner())
                && filter.only_operation().is_none_or(|operation| key.operation() == operation)
                && filter.only_state().is_none_or(|only| *state == only)
        };
        let mut expected: Vec<_> =
            keys.iter().filter(is_shown).map(|(key, _)| key.clone()).collect();
        expected.sort();
        for limit in [1, 2, 7, usize::MAX] {
            let listed = listed(setup.idem.store(), &filter, limit, START).await;
            assert_eq!(listed, expected, "{filter:?} in pages of {limit}");
        }
    }
}

/// 89. A cursor that another filter made shows no key that does not match, or is refused.
pub async fn a_cursor_of_another_filter_shows_no_wrong_key<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    mixed(&setup.idem).await;
    let filters = combined();
    for of_cursor in &filters {
        let page = setup.idem.list_where(of_cursor, None, 2).await.unwrap();
        for filter in filters.iter().filter(|_| page.next.is_some()) {
            let (mut after, mut pages) = (page.next.clone(), 0);
            while let Some(cursor) = after {
                let page = setup.idem.list_where(filter, Some(&cursor), 20).await;
                after = shown_or_refused(filter, &cursor, page);
                pages += 1;
                assert!(pages < 1_000, "a listing of {filter:?} must end");
            }
        }
    }
}

/// Asserts that a page shows only what matches, and returns its next.
fn shown_or_refused(filter: &Filter, cursor: &Cursor, page: Result<Page, Error>) -> Option<Cursor> {
    match page {
        Ok(page) => {
            let wrong = page.records.iter().find(|(k, r)| !filter.matches(k, r, page.now));
            assert!(wrong.is_none(), "{filter:?} after {cursor:?} shows {wrong:?}");
            page.next
        }
        Err(error) => {
            let is_refused =
                matches!(error.kind(), ErrorKind::InvalidSetting { field: "cursor", .. });
            assert!(is_refused, "{filter:?} after {cursor:?}: {error:?}");
            None
        }
    }
}
