//! What one caller after another is told.

use std::collections::BTreeMap;

use bytes::Bytes;
use idem_core::{
    Certainty, ErrorKind, Fingerprint, Key, Outcome, Request, Timestamp, Transaction,
    consumer::Recorder,
};
use serde::{Deserialize, Serialize};

use crate::{
    Fixture,
    setup::{Runs, START, Setup, Tx, add, key, request, request_for},
};

/// 1. A new key runs its effect and stores a receipt whose every field is exact.
pub async fn a_new_key_runs_and_stores_an_exact_receipt<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    assert_eq!(setup.idem.receipt(&key("a")).await.unwrap(), None);
    assert_eq!(setup.add(&request("a", "p"), "count").await, Outcome::Created(1));
    assert_eq!(setup.count("north", "count").await, 1, "the effect must be visible");
    let receipt = setup.receipt(&key("a")).await;
    assert_eq!(receipt.fingerprint, Some(Fingerprint::of("p").unwrap()));
    assert_eq!(receipt.result, Bytes::from_static(b"1"));
    assert_eq!(receipt.created_at, START);
    let expires_at = Timestamp::from_millis(START.as_millis() + 60_000);
    assert_eq!(receipt.expires_at, Some(expires_at));
    assert_eq!(setup.receipts().await, 1);
}

/// 2, 9. The same key with the same fingerprint is replayed, and the caller can tell.
pub async fn a_repeated_key_is_replayed_and_says_so<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    assert_eq!(setup.add(&request("a", "p"), "count").await, Outcome::Created(1));
    for _ in 0..3 {
        assert_eq!(setup.add(&request("a", "p"), "count").await, Outcome::Replayed(1));
    }
    assert_eq!(setup.count("north", "count").await, 1);
    assert_eq!(setup.receipts().await, 1);
}

/// 3. The replay is the same to the byte the 2nd, 3rd and 100th time, and through a fresh handle.
pub async fn a_replay_is_byte_identical_through_every_handle<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let result: Bytes = (0..=255).cycle().take(3000).collect::<Vec<u8>>().into();
    let request = request("a", "p");
    let first = result.clone();
    let created = setup.idem.execute_bytes(&request, move |_| Ok(first.clone())).await.unwrap();
    assert_eq!(created, Outcome::Created(result.clone()));
    let never = |_: &mut _| panic!("a replay must not run");
    for _ in 0..100 {
        let replayed = setup.idem.execute_bytes(&request, never).await.unwrap();
        assert_eq!(replayed, Outcome::Replayed(result.clone()));
    }
    let replayed = setup.handle().await.execute_bytes(&request, never).await.unwrap();
    assert_eq!(replayed, Outcome::Replayed(result));
}

/// 4, 5. Another fingerprint conflicts and changes nothing; the true request still replays.
pub async fn another_fingerprint_conflicts_and_changes_nothing<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    assert_eq!(setup.add(&request("a", "p"), "count").await, Outcome::Created(1));
    let before = setup.receipt(&key("a")).await;
    let absent = Request::new(key("a"));
    for other in [request("a", "q"), request("a", ""), absent] {
        assert_eq!(setup.add(&other, "count").await, Outcome::Conflict);
    }
    assert_eq!(setup.count("north", "count").await, 1);
    assert_eq!(setup.receipt(&key("a")).await, before);
    assert_eq!(setup.add(&request("a", "p"), "count").await, Outcome::Replayed(1));
}

/// 4. An absent fingerprint equals only an absent one.
pub async fn an_absent_fingerprint_equals_only_an_absent_one<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let absent = Request::new(key("a"));
    assert_eq!(setup.add(&absent, "count").await, Outcome::Created(1));
    assert_eq!(setup.add(&absent, "count").await, Outcome::Replayed(1));
    assert_eq!(setup.add(&request("a", "p"), "count").await, Outcome::Conflict);
    assert_eq!(setup.receipt(&key("a")).await.fingerprint, None);
}

/// 6, 7. Another tenant, operation or request key runs on its own, with the same fingerprint too.
pub async fn every_part_of_a_key_tells_it_apart<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let scopes = [
        ("north", "order", "a"),
        ("south", "order", "a"),
        ("north", "refund", "a"),
        ("north", "order", "b"),
    ];
    let requests =
        scopes.map(|(tenant, op, name)| request_for(Key::new(tenant, op, name).unwrap(), "p"));
    for request in &requests {
        assert!(matches!(setup.add(request, "count").await, Outcome::Created(_)), "{request:?}");
    }
    for request in &requests {
        assert!(matches!(setup.add(request, "count").await, Outcome::Replayed(_)), "{request:?}");
    }
    assert_eq!(setup.count("north", "count").await, 3);
    assert_eq!(setup.count("south", "count").await, 1);
    assert_eq!(setup.receipts().await, 4);
}

/// 8. The effect does not run on a replay, nor on a conflict.
pub async fn an_effect_runs_on_neither_replay_nor_conflict<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    assert_eq!(setup.add(&request("a", "p"), "count").await, Outcome::Created(1));
    let runs = Runs::default();
    for parameters in ["p", "q"] {
        let runs = runs.clone();
        let effect = move |tx: &mut _| {
            runs.bump();
            add(tx, "count")
        };
        let outcome = setup.idem.execute(&request("a", parameters), effect).await.unwrap();
        assert_eq!(outcome.result(), (parameters == "p").then_some(1));
    }
    assert!(runs.get() == 0 || setup.idem.guarantees().speculative, "it must not even run");
    assert_eq!(setup.count("north", "count").await, 1);
}

/// 10. Empty and falsy results, and bytes that are no text, replay as what they were.
pub async fn empty_and_falsy_results_replay_as_what_they_were<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let results: [&'static [u8]; 12] = [
        b"",
        b"null",
        b"false",
        b"0",
        b"\"\"",
        b"[]",
        b"{}",
        b"\0",
        b"a\0b",
        b"\xff\xfe\0\x80",
        b"007",
        b" ",
    ];
    for (number, result) in results.into_iter().enumerate() {
        let request = request(&format!("key-{number}"), "p");
        let effect = move |_: &mut _| Ok(Bytes::from_static(result));
        let created = setup.idem.execute_bytes(&request, effect).await.unwrap();
        assert_eq!(created, Outcome::Created(Bytes::from_static(result)));
        let never = move |_: &mut _| panic!("{result:?} must replay");
        let replayed = setup.idem.execute_bytes(&request, never).await.unwrap();
        assert_eq!(replayed, Outcome::Replayed(Bytes::from_static(result)));
    }
    let never = |_: &mut _| -> Result<(), _> { panic!("a unit must replay") };
    let unit = request("unit", "p");
    assert_eq!(setup.idem.execute(&unit, |_| Ok(())).await.unwrap(), Outcome::Created(()));
    assert_eq!(setup.idem.execute(&unit, never).await.unwrap(), Outcome::Replayed(()));
}

/// 11. A result at the size limit is stored; one byte more is refused, and its effect is not committed.
pub async fn a_result_over_the_limit_is_refused_with_its_effect<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let limit = 1 << 20;
    let of = |length: usize| {
        move |tx: &mut <F::Store as idem_core::Store>::Transaction| {
            add(tx, "count")?;
            Ok(Bytes::from(vec![b'x'; length]))
        }
    };
    let at = setup.idem.execute_bytes(&request("at", "p"), of(limit)).await.unwrap();
    assert_eq!(at.result().map(|result| result.len()), Some(limit));
    let replayed = setup.idem.execute_bytes(&request("at", "p"), of(0)).await.unwrap();
    assert!(replayed == Outcome::Replayed(vec![b'x'; limit].into()), "it must replay whole");
    let over = setup.idem.execute_bytes(&request("over", "p"), of(limit + 1)).await.unwrap_err();
    let ErrorKind::ResultTooLarge { length, limit: named } = *over.kind() else {
        panic!("a result over the limit must be refused as such: {over:?}")
    };
    assert_eq!((length, named, over.certainty()), (limit + 1, limit, Certainty::NothingDone));
    assert_eq!(setup.count("north", "count").await, 1, "the refused effect must not be committed");
    assert_eq!(setup.idem.receipt(&key("over")).await.unwrap(), None);
    let narrow = setup.idem.clone().with_result_limit(3);
    let result = narrow.execute(&request("narrow", "p"), |_| Ok(1234)).await;
    assert!(matches!(
        result.unwrap_err().kind(),
        ErrorKind::ResultTooLarge { length: 4, limit: 3 }
    ));
    let (wide, length) = (setup.idem.clone().with_result_limit(2 * limit), limit + limit / 2);
    let whole = Bytes::from(vec![b'x'; length]);
    match wide.execute_bytes(&request("wide", "p"), of(length)).await {
        Ok(created) => {
            assert!(created == Outcome::Created(whole.clone()), "it must be returned whole");
            let replayed = wide.execute_bytes(&request("wide", "p"), of(0)).await.unwrap();
            assert!(replayed == Outcome::Replayed(whole), "what is not refused must replay whole");
        }
        Err(error) => assert_eq!(error.certainty(), Certainty::NothingDone, "{error:?}"),
    }
}

/// 12. A stored result that does not decode is an error that says the key is done, and never a new run.
pub async fn a_result_that_does_not_decode_is_never_a_new_run<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let request = request("a", "p");
    let text = setup.idem.execute(&request, |_| Ok("text".to_string())).await.unwrap();
    assert_eq!(text, Outcome::Created("text".to_string()));
    let number = setup.idem.execute(&request, |tx| add(tx, "count")).await.unwrap_err();
    assert!(matches!(number.kind(), ErrorKind::ResultUndecodable { length: 6 }), "{number:?}");
    assert_eq!(number.certainty(), Certainty::Done);
    assert_eq!(setup.count("north", "count").await, 0);
    let text = setup.idem.execute(&request, |_| Ok(String::new())).await.unwrap();
    assert_eq!(text, Outcome::Replayed("text".to_string()));
}

/// 12. A result that would not read back is refused before the commit.
pub async fn a_result_that_would_not_read_back_is_refused<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let request = request("a", "p");
    let error = setup.idem.execute(&request, |tx| add(tx, "count").map(|_| f64::NAN)).await;
    let error = error.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ResultUnreadable), "{error:?}");
    assert_eq!(error.certainty(), Certainty::NothingDone);
    let error = setup.idem.execute(&request, |tx| add(tx, "count").map(|_| Some(f64::NAN))).await;
    assert!(matches!(error.unwrap_err().kind(), ErrorKind::ResultUnreadable));
    // Keys that are equal only in JSON: one of them would be lost.
    let alike = |tx: &mut Tx<F>| {
        add(tx, "count").map(|_| [Id::Number(1), Id::Text("1".into())].map(named).into())
    };
    let error = setup.idem.execute::<BTreeMap<Id, u8>, _>(&request, alike).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ResultUnreadable), "{error:?}");
    assert_eq!(setup.count("north", "count").await, 0);
    let distinct = [Id::Number(1), Id::Text("2".into())].map(named);
    let effect = move |_: &mut Tx<F>| Ok(BTreeMap::from(distinct.clone()));
    let created = setup.idem.execute(&request, effect).await.unwrap();
    assert_eq!(created.result().map(|result| result.len()), Some(2));
}

/// A key of a map that JSON writes as text, whatever it was.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
enum Id {
    Number(u8),
    Text(String),
}

fn named(id: Id) -> (Id, u8) {
    (id, 0)
}

/// 10, 12. An absent result replays as absent, a present one as present; what JSON writes alike is refused.
pub async fn absent_and_empty_results_are_told_apart<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let run = async |name: &str, result: Option<Vec<Option<u8>>>| {
        let (idem, request) = (&setup.idem, request(name, "p"));
        let first = result.clone();
        let created = idem.execute(&request, move |_| Ok(first.clone())).await.unwrap();
        assert_eq!(created, Outcome::Created(result.clone()), "{name}");
        let never = |_: &mut _| panic!("a replay must not run");
        let replayed = idem.execute::<Option<Vec<Option<u8>>>, _>(&request, never).await.unwrap();
        assert_eq!(replayed, Outcome::Replayed(result), "{name}");
    };
    run("absent", None).await;
    run("empty", Some(vec![])).await;
    run("holds nothing", Some(vec![None])).await;
    run("holds zero", Some(vec![Some(0)])).await;
    let alike = request("alike", "p");
    let effect = |tx: &mut _| add(tx, "count").map(|_| Some(None::<u8>));
    let error = setup.idem.execute(&alike, effect).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ResultUnreadable), "{error:?}");
    assert_eq!(setup.count("north", "count").await, 0);
    assert_eq!(setup.idem.receipt(&key("alike")).await.unwrap(), None);
}

/// 13. Reading a receipt changes nothing; an unknown key and an expired receipt have none.
pub async fn reading_a_receipt_changes_nothing<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    assert_eq!(setup.idem.receipt(&key("unknown")).await.unwrap(), None);
    assert_eq!(setup.add(&request("a", "p"), "count").await, Outcome::Created(1));
    let first = setup.receipt(&key("a")).await;
    setup.clock.advance(std::time::Duration::from_millis(59_999));
    assert_eq!(setup.receipt(&key("a")).await, first);
    assert_eq!(setup.add(&request("a", "p"), "count").await, Outcome::Replayed(1));
    setup.clock.advance(std::time::Duration::from_millis(1));
    assert_eq!(setup.idem.receipt(&key("a")).await.unwrap(), None);
    assert_eq!(setup.receipts().await, 0, "an expired receipt must not be listed");
    assert_eq!(setup.add(&request("unknown", "p"), "count").await, Outcome::Created(2));
}

/// 14. A forgotten key runs again; forgetting what is not there, or has expired, says so.
pub async fn a_forgotten_key_runs_again<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    assert!(!setup.idem.forget(&key("a")).await.unwrap(), "there is nothing to forget");
    assert_eq!(setup.add(&request("a", "p"), "count").await, Outcome::Created(1));
    assert!(setup.idem.forget(&key("a")).await.unwrap());
    assert_eq!(setup.idem.receipt(&key("a")).await.unwrap(), None);
    assert!(!setup.idem.forget(&key("a")).await.unwrap(), "it was forgotten already");
    assert_eq!(setup.add(&request("a", "q"), "count").await, Outcome::Created(2));
    setup.clock.advance(std::time::Duration::from_secs(60));
    assert!(!setup.idem.forget(&key("a")).await.unwrap(), "an expired receipt counts as gone");
}

/// 15. Two keys whose effects count on the same value, in turn: both count.
pub async fn effects_of_two_keys_on_one_value_both_count<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    for turn in 1..=4 {
        let name = format!("key-{}-{turn}", if turn % 2 == 0 { "even" } else { "odd" });
        assert_eq!(setup.add(&request(&name, "p"), "count").await, Outcome::Created(turn));
    }
    assert_eq!(setup.count("north", "count").await, 4);
}

/// 16. An effect reads its own writes and what earlier effects committed, and never another tenant's.
pub async fn an_effect_reads_its_own_tenants_values_and_its_own_writes<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let write = request("a", "p");
    let wrote = setup.idem.execute(&write, |tx| {
        assert_eq!(tx.get(b"x")?, None);
        tx.put(b"x", b"1")?;
        assert_eq!(tx.get(b"x")?.as_deref(), Some(&b"1"[..]));
        tx.put(b"x", b"2")?;
        tx.put(b"y", b"")?;
        assert_eq!(tx.get(b"y")?.as_deref(), Some(&b""[..]), "empty is not absent");
        tx.put(b"z", b"3")?;
        tx.delete(b"z")?;
        assert_eq!(tx.get(b"z")?, None);
        tx.delete(b"never")?;
        tx.delete(b"last")?;
        tx.put(b"last", b"4")?;
        Ok(())
    });
    assert_eq!(wrote.await.unwrap(), Outcome::Created(()));
    let values = |tenant: &str| {
        let request = request_for(Key::new(tenant, "read", "a").unwrap(), "p");
        let idem = setup.idem.clone();
        async move {
            let read = idem.execute(&request, |tx| {
                let mut read = Vec::new();
                for name in ["x", "y", "z", "last"] {
                    read.push(tx.get(name.as_bytes())?.map(|value| value.to_vec()));
                }
                Ok(read)
            });
            read.await.unwrap().result().unwrap()
        }
    };
    let last = Some(b"4".to_vec());
    assert_eq!(values("north").await, [Some(b"2".to_vec()), Some(vec![]), None, last]);
    assert_eq!(values("south").await, [None, None, None, None]);
    assert_eq!(values("").await, [None, None, None, None]);
}

/// 16. Values and their names are bytes: none is cut, folded, trimmed, or joined to its owner's name.
pub async fn values_and_their_names_are_kept_to_the_byte<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    // Longer than the keys of some engines, and alike but for their ends.
    static LONG: [u8; 600] = [b'n'; 600];
    static OTHER: [u8; 601] = [b'n'; 601];
    let names: [&'static [u8]; 17] = [
        b"", b"\0", b" ", b"a", b"A", b"a ", b"a\0", b"a\0b", b"%", b"*", b"7", b"007", b"\xff",
        b"\xfe", b"\xfe\0", &LONG, &OTHER,
    ];
    // Each its own: all bytes there are, and longer than 64 KiB.
    let value = |number: usize| {
        let bytes = (0..=255).chain([number as u8]).cycle();
        Bytes::from(bytes.take(70_000 + number).collect::<Vec<u8>>())
    };
    let write = move |tx: &mut Tx<F>| {
        for (number, name) in names.into_iter().enumerate() {
            tx.put(name, &value(number))?;
        }
        Ok(())
    };
    let written = setup.idem.execute(&request("write", "p"), write).await.unwrap();
    assert_eq!(written, Outcome::Created(()));
    let gone: [&[u8]; 3] = [b"a\0", b"%", b"*"];
    let delete = move |tx: &mut Tx<F>| {
        for name in gone {
            tx.delete(name)?;
        }
        Ok(())
    };
    let deleted = setup.idem.execute(&request("delete", "p"), delete).await.unwrap();
    assert_eq!(deleted, Outcome::Created(()));
    for idem in [setup.idem.clone(), setup.handle().await] {
        for (number, name) in names.into_iter().enumerate() {
            let kept = idem.value(&key("write").space(), name).await.unwrap();
            let expected = (!gone.contains(&name)).then(|| value(number));
            assert!(kept == expected, "the value under {name:?} must be kept to the byte");
        }
    }
    for (tenant, name) in [("a", "bc"), ("ab", "c"), ("a:b", "c"), ("a", "b:c"), ("", "abc")] {
        let request = request_for(Key::new(tenant, "order", name).unwrap(), "p");
        let created = setup.add(&request, name).await;
        assert_eq!(created, Outcome::Created(1), "{name:?} of {tenant:?} is its own");
    }
}

/// 16. Of an effect of many writes all are committed, also where an engine takes fewer at once.
pub async fn an_effect_of_many_writes_is_committed_whole<F: Fixture>() {
    const WRITES: usize = 300;
    let setup = Setup::<F>::new().await;
    let write = |tx: &mut Tx<F>| {
        for number in 0..WRITES {
            tx.put(format!("value-{number}").as_bytes(), number.to_string().as_bytes())?;
        }
        Ok(())
    };
    let written = setup.idem.execute(&request("a", "p"), write).await.unwrap();
    assert_eq!(written, Outcome::Created(()));
    for number in 0..WRITES {
        let text = setup.text(&format!("value-{number}")).await;
        assert_eq!(text, Some(number.to_string()), "write {number} of {WRITES}");
    }
}

/// 106. After it is closed every call says so, through every handle that shares it; closing again is harmless.
pub async fn a_closed_store_says_so<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    assert_eq!(setup.add(&request("a", "p"), "count").await, Outcome::Created(1));
    let clone = setup.idem.clone();
    setup.idem.close().await.unwrap();
    setup.idem.close().await.unwrap();
    for idem in [&setup.idem, &clone] {
        let never = |_: &mut _| -> Result<u64, _> { panic!("a closed store runs nothing") };
        let (known, new) = (request("a", "p"), request("b", "p"));
        let errors = [
            idem.execute(&known, never).await.unwrap_err(),
            idem.execute(&new, never).await.unwrap_err(),
            idem.receipt(known.key()).await.unwrap_err(),
            idem.forget(known.key()).await.unwrap_err(),
            idem.purge(1).await.unwrap_err(),
            idem.list(None, 1).await.unwrap_err(),
            idem.value(&known.key().space(), b"count").await.unwrap_err(),
            idem.is_processed("billing", "event").await.unwrap_err(),
            idem.mark_processed("billing", "event").await.unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error.kind(), ErrorKind::Closed), "{error:?}");
            assert_eq!(error.certainty(), Certainty::NothingDone);
        }
    }
}
