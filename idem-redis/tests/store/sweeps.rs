//! Listing and purging: each record once, each place of a listing good for its store alone.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use futures_util::future::join_all;
use idem_core::{
    Cursor, ErrorKind, Filter, KeyState, ManualClock, Outcome, Request, Timestamp,
    consumer::Recorder,
};
use idem_redis::{RedisBuilder, RedisStore, testing::Server};

use crate::setup::*;

fn by_hand() -> (ManualClock, RedisBuilder) {
    let clock = ManualClock::at(Timestamp::from_millis(1_000_000));
    (clock.clone(), RedisStore::builder().clock(clock))
}

/// Runs so many keys, retained for their number in milliseconds.
async fn fill(idem: &Front, count: u64) {
    let runs = (1..=count).map(|number| async move {
        let key = idem_core::Key::new(&format!("tenant-{}", number % 7), "order", number).unwrap();
        let request = Request::new(key).retain(Duration::from_millis(number));
        let outcome = idem.execute(&request, move |_| Ok(number)).await.unwrap();
        assert_eq!(outcome, Outcome::Created(number));
    });
    join_all(runs).await;
}

/// How often each key is listed, in pages of `limit`.
async fn listed(idem: &Front, limit: usize) -> BTreeMap<String, u32> {
    let (mut listed, mut after) = (BTreeMap::new(), None);
    loop {
        let page = idem.list(after.as_ref(), limit).await.unwrap();
        assert!(page.records.len() <= limit);
        for (key, _) in page.records {
            *listed.entry(key.request().to_string()).or_default() += 1;
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return listed,
        }
    }
}

#[tokio::test]
async fn pages_of_any_size_show_each_record_once() {
    let server = Server::start().unwrap();
    let (_, builder) = by_hand();
    let idem = open_with(builder, &server.url()).await;
    fill(&idem, 300).await;
    let expected: BTreeMap<_, _> = (1..=300).map(|number| (number.to_string(), 1)).collect();
    // Until the server has moved its table to the last place, a scan may show a key twice.
    for limit in [1, 2, 7, 299, 300, 1_000] {
        assert_eq!(listed(&idem, limit).await, expected, "{limit}");
    }
}

#[tokio::test]
async fn a_listing_goes_on_in_another_store_on_the_same_data() {
    let server = Server::start().unwrap();
    let (clock, builder) = by_hand();
    let idem = open_with(builder, &server.url()).await;
    fill(&idem, 50).await;
    let first = idem.list(None, 20).await.unwrap();
    let other = open_with(RedisStore::builder().clock(clock), &server.url()).await;
    let second = other.list(first.next.as_ref(), 1_000).await.unwrap();
    assert_eq!((first.records.len(), second.records.len()), (20, 30));
}

#[tokio::test]
async fn a_cursor_that_is_none_of_the_stores_is_refused() {
    let server = Server::start().unwrap();
    let idem = open(&server.url()).await;
    put_first(&idem, "k").await;
    let cursors = [
        Bytes::new(),
        Bytes::from_static(b"only"),
        Bytes::from_static(b"only\n0\n"),
        Bytes::from_static(b"only\n-1\n0\n"),
        Bytes::from_static(b"only\n0\n0\n\0\0\0\x09x"),
        Bytes::from_static(b"127.0.0.1:7000\n0\n0\n"),
        Bytes::from_static(b"\xff\n0\n0\n"),
    ];
    let cursors = cursors.map(Cursor).into_iter().chain([Cursor::after(&key("k"))]);
    for cursor in cursors {
        let error = idem.list(Some(&cursor), 10).await.unwrap_err();
        let is_cursor = matches!(error.kind(), ErrorKind::InvalidSetting { field: "cursor", .. });
        assert!(is_cursor, "{cursor:?}: {error:?}");
    }
    // Names in it that are no records of this store's show nothing, and harm nothing.
    let foreign = Cursor(Bytes::from_static(b"only\n0\n1\n\0\0\0\x05other\0\0\0\x02\xff\xfe"));
    assert_eq!(idem.list(Some(&foreign), 10).await.unwrap().records, []);
}

#[tokio::test]
async fn a_page_looks_at_a_bounded_number_of_names() {
    let server = Server::start().unwrap();
    let idem = open(&server.url()).await;
    put_first(&idem, "k").await;
    let fill = "for i = 1, 30000 do redis.call('SET', 'other:' .. i, '') end";
    server.command(&["EVAL", fill, "0"]).unwrap();
    let north = Filter::all().tenant("north").unwrap();
    for (filter, count) in [
        (north.clone(), 1),
        (north.clone().state(KeyState::Completed), 1),
        (north.state(KeyState::Held), 0),
        (Filter::all().tenant("nobody").unwrap(), 0),
    ] {
        let (mut shown, mut after, mut pages) = (0, None, 0);
        loop {
            let page = idem.list_where(&filter, after.as_ref(), 100).await.unwrap();
            shown += page.records.len();
            pages += 1;
            assert!(pages < 100, "a listing must end");
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        assert_eq!(shown, count, "{filter:?}");
        assert!(pages > 1, "{filter:?} in {pages} pages");
    }
}

/// Names that were taken for a page and did not fit into it come with the next.
#[tokio::test]
async fn a_page_of_a_state_loses_no_name_that_was_looked_at() {
    let server = Server::start().unwrap();
    let (_, builder) = by_hand();
    let idem = open_with(builder, &server.url()).await;
    fill(&idem, 300).await;
    let completed = Filter::all().state(KeyState::Completed);
    for limit in [1, 100, 127, 128, 129, 299, 300, 301] {
        let (mut shown, mut after) = (Vec::new(), None);
        loop {
            let page = idem.list_where(&completed, after.as_ref(), limit).await.unwrap();
            assert!(page.records.len() <= limit);
            shown.extend(page.records.into_iter().map(|(key, _)| key));
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        let count = shown.len();
        shown.sort();
        shown.dedup();
        assert_eq!((shown.len(), count), (300, 300), "in pages of {limit}");
    }
}

#[tokio::test]
async fn a_damaged_record_is_told_to_whoever_lists_its_tenant() {
    let server = Server::start().unwrap();
    let idem = open(&server.url()).await;
    put_first(&idem, "k").await;
    server.command(&["SET", "idem:{tnorth*}:r:5:order:a", "odd"]).unwrap();
    let of = |tenant| Filter::all().tenant(tenant).unwrap();
    assert_eq!(idem.list_where(&of("north"), None, 10).await.unwrap().records.len(), 1);
    for filter in [of("north*"), of("north*").state(KeyState::Held)] {
        let error = idem.list_where(&filter, None, 10).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Damaged { .. }), "{error:?}");
    }
    let other = of("north*").operation("other").unwrap();
    assert_eq!(idem.list_where(&other, None, 10).await.unwrap().records, []);
}

#[tokio::test]
async fn a_purge_removes_what_has_ended_and_nothing_else() {
    let server = Server::start().unwrap();
    let (clock, builder) = by_hand();
    let idem = open_with(builder, &server.url()).await;
    fill(&idem, 300).await;
    let forever = Request::new(key("forever")).retain_forever();
    let _ = idem.execute(&forever, |tx| put_one(tx, "effect")).await.unwrap();
    let _ = idem.mark_processed("billing", "7").await.unwrap();
    assert_eq!(idem.purge(10).await.unwrap().removed, 0);
    // At its very millisecond a receipt has ended.
    clock.advance(Duration::from_millis(1));
    assert_eq!(idem.purge(1_000).await.unwrap().removed, 1);
    clock.advance(Duration::from_millis(149));
    let purged = idem.purge(100).await.unwrap();
    assert_eq!((purged.removed, purged.more), (100, true));
    let purged = idem.purge(100).await.unwrap();
    assert_eq!((purged.removed, purged.more), (49, false));
    let left = listed(&idem, 1_000).await;
    assert_eq!(left.len(), 152);
    assert!((151..=300).all(|number| left.contains_key(&number.to_string())));
    clock.advance(Duration::from_secs(60));
    assert_eq!(idem.purge(1_000).await.unwrap().removed, 150);
    assert_eq!(value_of(&server, "effect").as_deref(), Some("1"), "effects stay");
    assert!(idem.is_processed("billing", "7").await.unwrap());
}

#[tokio::test]
async fn a_purge_goes_round_damage() {
    let server = Server::start().unwrap();
    let (clock, builder) = by_hand();
    let idem = open_with(builder, &server.url()).await;
    fill(&idem, 20).await;
    let foreign = ["idem:{tx}:r:x", "idem:{tx}:r:9:o:k", "idem:{x}:r:1:o:k", "idem:{t%zz}:r:1:o:k"];
    let damaged = ["idem:{tnorth}:r:5:order:a", "idem:{cbilling}:r:0::7"];
    for name in foreign.iter().chain(&damaged) {
        server.command(&["SET", name, "odd"]).unwrap();
    }
    server.command(&["HSET", "idem:{tnorth}:r:5:order:hash", "a", "b"]).unwrap();
    clock.advance(Duration::from_secs(1));
    let purged = idem.purge(1_000).await.unwrap();
    assert_eq!((purged.removed, purged.more), (20, false));
    let left: i64 = server.query(&["DBSIZE"]).unwrap();
    assert_eq!(left, 7, "what cannot be read stays");
    server.command(&["DEL", "idem:{tnorth}:r:5:order:hash", damaged[0], damaged[1]]).unwrap();
    assert_eq!(idem.list(None, 10).await.unwrap().records, [], "foreign names are not the store's");
}

/// A purge takes no record from a run that has replaced it meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn purges_and_runs_do_not_disturb_each_other() {
    let server = Server::start().unwrap();
    let (clock, builder) = by_hand();
    let idem = open_with(builder, &server.url()).await;
    for round in 1..=5 {
        let runs = (0..40).map(|number| {
            let (idem, name) = (idem.clone(), number.to_string());
            let call: idem_core::BoxFuture<()> = match number % 4 {
                0 => {
                    Box::pin(async move { assert!(idem.purge(1_000).await.unwrap().removed < 100) })
                }
                _ => Box::pin(async move {
                    let request = request(&name, "p");
                    let effect_name = name.clone();
                    let outcome = idem.execute(&request, move |tx| add(tx, &effect_name)).await;
                    assert_eq!(outcome.unwrap(), Outcome::Created(round));
                }),
            };
            call
        });
        together(runs).await;
        for number in (0..40).filter(|number| number % 4 != 0) {
            let name = number.to_string();
            assert!(idem.receipt(&key(&name)).await.unwrap().is_some(), "{name} in {round}");
            assert_eq!(count(&idem, &name).await, round);
        }
        clock.advance(Duration::from_secs(60));
    }
}
