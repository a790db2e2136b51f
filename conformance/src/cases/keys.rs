//! What tells two keys, and two requests, apart.

use std::{collections::BTreeSet, time::Duration};

use idem_core::{
    Certainty, Error, ErrorKind, Fingerprint, FingerprintError, Key, Outcome, Request, Store,
    consumer::{Handler, Recorder},
};

use crate::{
    Fixture,
    setup::{Runs, START, Setup, add, kept, key, request, request_for, start_plus},
    steps::{LEASE, claim, claim_of_free, claimed},
};

/// Texts that something between a caller and an engine may take for another, or for something to obey.
const TEXTS: [&str; 50] = [
    "7",
    "007",
    "7.0",
    "+7",
    "0x7",
    "7e0",
    "a",
    "A",
    " a",
    "a ",
    "a  ",
    " ",
    "\u{a0}",
    "null",
    "NULL",
    "true",
    "\u{e9}",
    "e\u{301}",
    "\u{c9}",
    "\u{fb01}",
    "fi",
    "\u{130}",
    "i",
    "\u{131}",
    "\u{df}",
    "ss",
    "%",
    "_",
    "*",
    "?",
    "[a]",
    "{a}",
    "{",
    "}",
    "'",
    "''",
    "\"",
    "\\",
    "a:b",
    "a/b",
    "a|b",
    "'; DROP TABLE receipts; --",
    "' OR '1'='1",
    "\\u0000",
    "%00",
    "\u{2028}",
    "\u{200b}a",
    "\u{feff}a",
    "\u{1f980}",
    "\u{10ffff}",
];

/// Keys that are one if their parts are joined.
fn joined() -> Vec<Key> {
    let of = |tenant, operation, name| Key::new(tenant, operation, name).unwrap();
    vec![
        of("a:b", "c", "d"),
        of("a", "b:c", "d"),
        of("a", "b", "c:d"),
        of("a/b", "c", "d"),
        of("a", "b/c", "d"),
        of("ab", "c", "d"),
        of("a", "bc", "d"),
        of("a", "b", "cd"),
        of("", "ab", "cd"),
        of("", "a", "bcd"),
        of("a", "a", "aa"),
        of("aa", "a", "a"),
        of("a", "aa", "a"),
        // An event has no operation, and its consumer is no tenant.
        Key::event("a", "bcd").unwrap(),
        Key::event("ab", "cd").unwrap(),
        Key::event("a", "aa").unwrap(),
        Key::event("aa", "a").unwrap(),
    ]
}

fn distinct() -> Vec<Key> {
    let in_each_part = |text: &str| {
        [Key::new(text, "o", "k"), Key::new("t", text, "k"), Key::new("t", "o", text)]
            .map(Result::unwrap)
    };
    let events = TEXTS.map(|text| Key::event("c", text).unwrap());
    joined().into_iter().chain(TEXTS.into_iter().flat_map(in_each_part)).chain(events).collect()
}

/// 80. Keys that look alike are distinct: each runs, replays and is forgotten on its own.
pub async fn keys_that_look_alike_are_distinct<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let keys = distinct();
    let ask = async |number: usize, key: &Key| {
        let request = request_for(key.clone(), "p");
        setup.idem.execute(&request, move |_| Ok(number)).await.unwrap()
    };
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(ask(number, key).await, Outcome::Created(number), "{key:?} is new");
    }
    for (number, key) in keys.iter().enumerate() {
        let replayed = ask(usize::MAX, key).await;
        assert_eq!(replayed, Outcome::Replayed(number), "{key:?} has its own result");
    }
    let kept: BTreeSet<_> = kept(setup.idem.store(), 1000).await.into_iter().map(|r| r.0).collect();
    assert_eq!(kept, keys.iter().cloned().collect(), "keys must come back as they were given");
    // Each once among the forgotten, and once among those that must stay.
    for parity in [0, 1] {
        let (forgotten, left): (Vec<_>, Vec<_>) =
            keys.iter().enumerate().partition(|(number, _)| number % 2 == parity);
        for (_, key) in &forgotten {
            assert!(setup.idem.forget(key).await.unwrap(), "{key:?}");
        }
        for (number, key) in left {
            let replayed = ask(usize::MAX, key).await;
            assert_eq!(replayed, Outcome::Replayed(number), "{key:?} was not forgotten");
        }
        for (number, key) in forgotten {
            assert_eq!(ask(number, key).await, Outcome::Created(number), "{key:?} was forgotten");
        }
    }
}

/// 80. Tenants that look alike have spaces of their own, and so have a tenant and a consumer of one name.
pub async fn owners_that_look_alike_have_spaces_of_their_own<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let of_tenant = |text: &str| Key::new(text, "o", "k").unwrap();
    let of_consumer = |text: &str| Key::event(text, "k").unwrap();
    let keys = TEXTS.into_iter().flat_map(|text| [of_tenant(text), of_consumer(text)]);
    for key in keys.chain([Key::new("", "o", "k").unwrap()]) {
        let outcome = setup.add(&request_for(key.clone(), "p"), "count").await;
        assert_eq!(outcome, Outcome::Created(1), "{key:?} must find no other owner's value");
    }
}

/// 81. The empty tenant is a tenant; what is no key is refused, with the same error on every path.
pub async fn what_is_no_key_is_refused_alike<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let default = request_for(Key::new("", "order", "a").unwrap(), "p");
    assert_eq!(setup.add(&default, "count").await, Outcome::Created(1));
    assert_eq!(setup.add(&default, "count").await, Outcome::Replayed(1));
    assert_eq!(setup.count("", "count").await, 1);

    let long = "\u{e9}".repeat(128);
    let store = setup.idem.store();
    for bad in ["", "a\0", "\n", "\u{7f}", "\u{85}", &long] {
        if !bad.is_empty() {
            is_refused("tenant", bad, Key::new(bad, "o", "k"));
        }
        is_refused("operation", bad, Key::new("t", bad, "k"));
        is_refused("request key", bad, Key::new("t", "o", bad));
        is_refused("consumer", bad, Key::event(bad, "e"));
        is_refused("event id", bad, Key::event("c", bad));
        is_refused("consumer", bad, store.is_processed(bad, "e").await);
        is_refused("event id", bad, store.is_processed("c", bad).await);
        is_refused("consumer", bad, store.mark_processed(bad, "e").await);
        is_refused("event id", bad, store.mark_processed("c", bad).await);
        let runs = Runs::default();
        let ran = runs.clone();
        let atomic = move |_: &mut <F::Store as Store>::Transaction, (): &()| {
            ran.bump();
            Ok(())
        };
        is_refused("consumer", bad, Handler::atomic(&setup.idem, bad, atomic.clone()));
        let handler = Handler::atomic(&setup.idem, "c", atomic).unwrap();
        is_refused("event id", bad, handler.handle(bad, ()).await);
        let ran = runs.clone();
        let outside = move |()| {
            ran.bump();
            std::future::ready(Ok::<_, std::fmt::Error>(()))
        };
        is_refused("consumer", bad, Handler::outside(&setup.idem, bad, outside.clone()));
        let handler = Handler::outside(&setup.idem, "c", outside).unwrap();
        is_refused("event id", bad, handler.handle(bad, ()).await);
        assert_eq!(runs.get(), 0, "a handler must not run for an event that has no key");
    }
    assert_eq!(kept(store, 10).await.len(), 1, "what was refused must leave nothing");
}

fn is_refused<T>(part: &str, bad: &str, result: Result<T, Error>) {
    let Err(error) = result else { panic!("{bad:?} must be refused as {part}") };
    let ErrorKind::InvalidKey { field, length, .. } = *error.kind() else {
        panic!("{bad:?} must be refused as {part}: {error:?}")
    };
    assert_eq!((field, length, error.certainty()), (part, bad.len(), Certainty::NothingDone));
}

/// 82. Parts of 255 bytes are kept whole, whatever the bytes of a character.
pub async fn parts_of_255_bytes_are_kept_whole<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let texts = [
        "x".repeat(255),
        "\u{e9}".repeat(127) + "x",
        "\u{6f22}".repeat(85),
        "\u{1f980}".repeat(63) + "\u{6f22}",
        "'".repeat(255),
        "%".repeat(255),
    ];
    let mut keys = BTreeSet::new();
    for text in &texts {
        assert_eq!(text.len(), Key::MAX_PART);
        keys.insert(Key::new(text, text, text).unwrap());
        keys.insert(Key::event(text, text).unwrap());
        // One byte less is another key.
        keys.insert(Key::new(text, text, &text[text.char_indices().nth(1).unwrap().0..]).unwrap());
    }
    for key in &keys {
        let request = request_for(key.clone(), "p");
        assert_eq!(setup.idem.execute(&request, |_| Ok(1)).await.unwrap(), Outcome::Created(1));
        assert_eq!(setup.idem.execute(&request, |_| Ok(2)).await.unwrap(), Outcome::Replayed(1));
    }
    let kept: BTreeSet<_> = kept(setup.idem.store(), 4).await.into_iter().map(|r| r.0).collect();
    assert_eq!(kept, keys, "keys must come back as they were given");
}

/// 81. Listing in pages of any size shows each key once while nothing changes; a limit of zero is refused.
pub async fn listing_in_pages_shows_each_key_once<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let expired = request("expired", "p").retain(std::time::Duration::from_millis(1));
    assert_eq!(setup.add(&expired, "count").await, Outcome::Created(1));
    setup.clock.set(start_plus(1));
    let claimed_one = request("claimed", "p");
    claimed(&setup.idem, &claimed_one).await;
    let mut expected = vec![claimed_one.key().clone()];
    for key in joined().into_iter().chain(TEXTS.map(|text| Key::new("t", "o", text).unwrap())) {
        let created = setup.idem.execute(&request_for(key.clone(), "p"), |_| Ok(1)).await.unwrap();
        assert_eq!(created, Outcome::Created(1));
        expected.push(key);
    }
    expected.sort();
    for limit in [1, 2, 7, expected.len() + 1, expected.len() + 2, usize::MAX] {
        let (mut listed, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let page = setup.idem.list(after.as_ref(), limit).await.unwrap();
            assert!(page.records.len() <= limit, "a page of {limit} holds {}", page.records.len());
            assert_eq!(page.now, start_plus(1));
            listed.extend(page.records.into_iter().map(|(key, _)| key));
            pages += 1;
            assert!(pages <= 10 * expected.len(), "a listing in pages of {limit} must end");
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        listed.sort();
        assert_eq!(listed, expected, "in pages of {limit}");
    }
    let error = setup.idem.list(None, 0).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InvalidSetting { field: "limit", .. }), "{error:?}");
}

/// 81. A listing shows what was there all along, whatever comes and goes between its pages.
pub async fn a_listing_shows_what_was_there_all_along<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let create = async |name: String| {
        let created = setup.idem.execute(&request(&name, "p"), |_| Ok(1)).await.unwrap();
        assert_eq!(created, Outcome::Created(1), "{name} is new");
    };
    for number in 0..10 {
        create(format!("{number}-goes")).await;
        create(format!("{number}-stays")).await;
    }
    let (mut shown, mut after, mut pages) = (BTreeSet::new(), None, 0);
    loop {
        let page = setup.idem.list(after.as_ref(), 3).await.unwrap();
        for (key, _) in page.records {
            if key.request().ends_with("goes") {
                setup.idem.forget(&key).await.unwrap();
            }
            shown.insert(key);
        }
        pages += 1;
        assert!(pages <= 1000, "a listing must end");
        create(format!("page-{pages}-comes")).await;
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    for number in 0..10 {
        let stays = key(&format!("{number}-stays"));
        assert!(shown.contains(&stays), "{stays:?} was there all along: {shown:?}");
    }
}

/// 83. Requests whose fingerprints are equal replay, those whose differ conflict.
pub async fn equal_fingerprints_replay_and_different_ones_conflict<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let of = |text: &str| Fingerprint::of_json(text).unwrap();
    let sets: [(&str, &[&str], &[&str]); 6] = [
        (
            r#"{"a":1,"b":[1,2]}"#,
            &[r#"{ "b": [1, 2], "a": 1 }"#, r#"{"\u0061":1,"b":[1,2]}"#],
            &[r#"{"a":1,"b":[2,1]}"#, r#"{"a":"1","b":[1,2]}"#, r#"{"a":1.0,"b":[1,2]}"#, "{}"],
        ),
        (r#"{"a":null}"#, &[r#" {"a" : null}"#], &["{}", r#"{"a":false}"#, r#"{"a":"null"}"#]),
        ("9007199254740992", &[" 9007199254740992 "], &["9007199254740993", "9007199254740992.0"]),
        ("9223372036854775808", &[], &["9223372036854775807", "9223372036854775809"]),
        ("18446744073709551616", &[], &["18446744073709551615", "18446744073709551617"]),
        ("0.0", &["-0.0", "0.00"], &["0", "\"0.0\""]),
    ];
    for (number, (first, equal, different)) in sets.into_iter().enumerate() {
        let request =
            |fingerprint| Request::new(key(&format!("key-{number}"))).with_fingerprint(fingerprint);
        let ask =
            async |text: &str| setup.idem.execute(&request(of(text)), |_| Ok(1)).await.unwrap();
        assert_eq!(ask(first).await, Outcome::Created(1));
        for text in equal {
            assert_eq!(ask(text).await, Outcome::Replayed(1), "{first} is {text}");
        }
        for text in different {
            assert_eq!(ask(text).await, Outcome::Conflict, "{first} is not {text}");
        }
        assert_eq!(
            setup.receipt(&key(&format!("key-{number}"))).await.fingerprint,
            Some(of(first))
        );
    }
    let fresh = || Request::new(key("refused"));
    let error = fresh().fingerprint(&f64::NAN).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InvalidFingerprint(FingerprintError::NonFinite)));
    let error = Error::from(Fingerprint::of_json(r#"{"a":1,"a":1}"#).unwrap_err());
    let ErrorKind::InvalidFingerprint(FingerprintError::DuplicateMember { .. }) = error.kind()
    else {
        panic!("a duplicate member has no fingerprint: {error:?}")
    };
    assert_eq!(error.certainty(), Certainty::NothingDone);
}

/// Fingerprints of all kinds of bytes, and none.
fn fingerprints() -> Vec<(Key, Option<Fingerprint>)> {
    let digests = [[0; 32], [0xff; 32], [b'\''; 32], std::array::from_fn(|i| 0x80 + i as u8)];
    let of = |digest: [u8; 32]| {
        let bytes = [&[Fingerprint::VERSION][..], &digest].concat();
        Fingerprint::from_bytes(&bytes).expect("a fingerprint of this version")
    };
    let some = digests.map(|digest| Some(of(digest)));
    let all = some.into_iter().chain([Some(Fingerprint::of_bytes("")), None]);
    all.enumerate().map(|(number, one)| (key(&format!("key-{number}")), one)).collect()
}

fn asking(key: &Key, fingerprint: Option<Fingerprint>) -> Request {
    let request = Request::new(key.clone()).retain_forever();
    fingerprint.map_or(request.clone(), |fingerprint| request.with_fingerprint(fingerprint))
}

/// 84. A fingerprint is exact after completion, after a claim and its takeover, and through a fresh handle.
pub async fn a_fingerprint_is_kept_exactly<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let fresh = setup.handle().await;
    for (key, fingerprint) in fingerprints() {
        let request = asking(&key, fingerprint);
        let other = asking(&key, Some(Fingerprint::of_bytes("other")));
        setup.clock.set(START);
        let short = other.clone().retain(Duration::from_millis(1));
        let claim_of_other = claim_of_free(&setup.idem, &short).await;
        setup.clock.set(start_plus(LEASE + 1));
        let next = claim(&fresh, &request).await;
        assert_eq!(next.before, Some(claim_of_other));
        let next = next.after.and_then(|record| record.fingerprint);
        assert_eq!(next, fingerprint, "a claim after one that is gone has its own fingerprint");
        setup.clock.set(start_plus(3 * LEASE));
        let taken = claim(&setup.idem, &request).await.after.and_then(|record| record.fingerprint);
        assert_eq!(taken, fingerprint, "a takeover keeps the fingerprint");
        setup.clock.set(start_plus(5 * LEASE));
        assert!(matches!(setup.add(&request, "count").await, Outcome::Created(_)));
        for idem in [&setup.idem, &fresh] {
            let receipt = idem.receipt(&key).await.unwrap().expect("the key is completed");
            assert_eq!(receipt.fingerprint, fingerprint);
            let replayed = idem.execute(&request, |tx| add(tx, "count")).await.unwrap();
            assert!(matches!(replayed, Outcome::Replayed(_)), "{replayed:?}");
            let conflict = idem.execute(&other, |tx| add(tx, "count")).await.unwrap();
            assert_eq!(conflict, Outcome::Conflict);
        }
    }
}

/// 84. Receipts, values and marks are exact after closing and opening again. Needs `reopen`.
pub async fn what_is_kept_survives_reopening_exactly<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let mut receipts = Vec::new();
    for (key, fingerprint) in fingerprints() {
        let outcome = setup.add(&asking(&key, fingerprint), "count").await;
        assert!(matches!(outcome, Outcome::Created(_)));
        receipts.push((setup.receipt(&key).await, key, fingerprint));
    }
    let _ = setup.idem.store().mark_processed("billing", "e").await.unwrap();
    let mut before = kept(setup.idem.store(), 10).await;
    let count = setup.count("north", "count").await;
    let setup = setup.reopened().await;
    for (receipt, key, fingerprint) in receipts {
        assert_eq!(receipt.fingerprint, fingerprint);
        assert_eq!(setup.receipt(&key).await, receipt, "{key:?} after reopening");
        let replayed = setup.add(&asking(&key, fingerprint), "count").await;
        assert!(matches!(replayed, Outcome::Replayed(_)), "{key:?}: {replayed:?}");
        let other = asking(&key, Some(Fingerprint::of_bytes("other")));
        assert_eq!(setup.add(&other, "count").await, Outcome::Conflict);
    }
    assert!(setup.idem.store().is_processed("billing", "e").await.unwrap());
    assert!(!setup.idem.store().is_processed("billing", "f").await.unwrap());
    assert_eq!(setup.count("north", "count").await, count);
    let mut after = kept(setup.idem.store(), 10).await;
    before.sort_by(|(one, _), (other, _)| one.cmp(other));
    after.sort_by(|(one, _), (other, _)| one.cmp(other));
    assert_eq!(after, before);
}
