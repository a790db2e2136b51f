//! What a call that does not end well leaves behind: nothing, or everything.

use std::{error::Error as StdError, fmt, panic::panic_any, sync::Arc};

use idem_core::{Certainty, ErrorKind, Outcome, Transaction};
use serde::{Deserialize, Serialize};
use tokio::sync::Barrier;

use crate::{
    Fixture,
    callers::{Dropped, Rival, at, cut_short, within},
    setup::{Runs, Setup, Tx, add, key, request},
};

/// An effect's own error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Declined(pub(super) u32);

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "declined for reason {}", self.0)
    }
}

impl StdError for Declined {}

/// Asserts that a failed call left no receipt and no value under `name`.
async fn assert_nothing_of<F: Fixture>(setup: &Setup<F>, key_name: &str, name: &str) {
    let receipt = setup.idem.receipt(&key(key_name)).await.unwrap();
    assert_eq!(receipt, None, "{key_name} failed and must have no receipt");
    let value = setup.text(name).await;
    assert_eq!(value, None, "{key_name} failed and must have no effect");
}

/// 20. An effect's error reaches its caller with its own type, and leaves neither effect nor receipt.
pub async fn an_effects_error_reaches_its_caller_and_leaves_nothing<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let idem = setup.idem.clone();
    let failing = async move {
        let effect = |tx: &mut Tx<F>| {
            add(tx, "count")?;
            Err::<u64, _>(Declined(7).into())
        };
        idem.execute(&request("a", "p"), effect).await.unwrap_err()
    };
    let error = setup.among_neighbours("a failing effect", failing).await;
    assert!(matches!(error.kind(), ErrorKind::Effect), "{error:?}");
    assert_eq!(error.certainty(), Certainty::NothingDone);
    assert_eq!(error.effect_error::<Declined>(), Some(&Declined(7)));
    assert_nothing_of(&setup, "a", "count").await;
    assert_eq!(setup.receipts().await, 7, "only the neighbours have receipts");
}

/// 21. The retry after an error creates one effect, whatever its parameters.
pub async fn a_retry_after_an_error_creates_one_effect<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    for reason in 0..3 {
        let effect = move |tx: &mut Tx<F>| {
            add(tx, "count")?;
            Err::<u64, _>(Declined(reason).into())
        };
        let error = setup.idem.execute(&request("a", "p"), effect).await.unwrap_err();
        assert_eq!(error.into_effect_error::<Declined>().unwrap(), Declined(reason));
    }
    // A failed call leaves no fingerprint to conflict with either.
    assert_eq!(setup.add(&request("a", "q"), "count").await, Outcome::Created(1));
    assert_eq!(setup.add(&request("a", "q"), "count").await, Outcome::Replayed(1));
    assert_eq!(setup.count("north", "count").await, 1);
    assert_eq!(setup.receipts().await, 1);
}

/// 22. After an error that follows writes, overwrites and deletes, everything is as before.
pub async fn an_error_after_many_writes_leaves_everything_as_before<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let before = request("before", "p");
    let prepared = setup.idem.execute(&before, |tx| {
        for name in ["kept", "overwritten", "deleted", "replaced", "doubly"] {
            tx.put(name.as_bytes(), format!("old {name}").as_bytes())?;
        }
        Ok(())
    });
    assert_eq!(prepared.await.unwrap(), Outcome::Created(()));
    let effect = |tx: &mut Tx<F>| {
        tx.put(b"overwritten", b"new")?;
        tx.delete(b"deleted")?;
        tx.delete(b"replaced")?;
        tx.put(b"replaced", b"new")?;
        tx.put(b"doubly", b"new")?;
        tx.put(b"doubly", b"newer")?;
        tx.delete(b"doubly")?;
        tx.put(b"added", b"new")?;
        tx.put(b"passing", b"new")?;
        tx.delete(b"passing")?;
        assert_eq!(tx.get(b"replaced")?.as_deref(), Some(&b"new"[..]), "its own write");
        Err::<(), _>(Declined(1).into())
    };
    let error = setup.idem.execute(&request("a", "p"), effect).await.unwrap_err();
    assert_eq!(error.effect_error(), Some(&Declined(1)));
    for next in ["a", "b"] {
        for name in ["kept", "overwritten", "deleted", "replaced", "doubly"] {
            let text = setup.text(name).await;
            assert_eq!(text, Some(format!("old {name}")), "{name} must be back");
        }
        for name in ["added", "passing"] {
            assert_nothing_of(&setup, "a", name).await;
        }
        // Nor does the next commit take along what failed.
        let request = request(&format!("next-{next}"), "p");
        assert_eq!(setup.add(&request, next).await, Outcome::Created(1));
    }
}

/// 23. A panic is rolled back and told to its caller alone; this key and others go on working.
pub async fn a_panic_is_rolled_back_and_told_to_its_caller_alone<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    for (name, expected) in [("plain", "an effect gave up"), ("formatted", "gave up: formatted")] {
        let idem = setup.idem.clone();
        let panicking = async move {
            let effect = move |tx: &mut Tx<F>| {
                add(tx, name)?;
                match name {
                    "plain" => panic!("an effect gave up"),
                    _ => panic!("gave up: {name}"),
                }
            };
            idem.execute::<u64, _>(&request(name, "p"), effect).await.unwrap_err()
        };
        let error = setup.among_neighbours(name, panicking).await;
        let ErrorKind::Panicked(message) = error.kind() else {
            panic!("a panic must be told as such: {error:?}")
        };
        assert_eq!(message, expected);
        assert_eq!(error.certainty(), Certainty::NothingDone);
        assert_nothing_of(&setup, name, name).await;
        assert_eq!(setup.add(&request(name, "p"), name).await, Outcome::Created(1));
    }
}

/// 23. A panic whose payload is no text, or whose payload panics when dropped, is rolled back like any.
pub async fn a_panic_with_any_payload_is_rolled_back<F: Fixture>() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("a panic's payload was dropped");
        }
    }
    let setup = Setup::<F>::new().await;
    let payloads: [fn(); 2] = [|| panic_any(7_u32), || panic_any(Bomb)];
    for (number, panics) in payloads.into_iter().enumerate() {
        let name = format!("key-{number}");
        let effect = move |tx: &mut Tx<F>| {
            add(tx, "count")?;
            panics();
            Ok(())
        };
        let error = setup.idem.execute(&request(&name, "p"), effect).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Panicked(_)), "{error:?}");
        assert_eq!(error.certainty(), Certainty::NothingDone);
        assert_nothing_of(&setup, &name, "count").await;
    }
    assert_eq!(setup.add(&request("key-0", "p"), "count").await, Outcome::Created(1));
    assert_eq!(setup.add(&request("other", "p"), "count").await, Outcome::Created(2));
}

/// 24. A result that is refused after the effect takes back what the effect wrote.
pub async fn a_refused_result_takes_back_what_its_effect_wrote<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    assert_eq!(setup.add(&request("before", "p"), "count").await, Outcome::Created(1));
    let narrow = setup.idem.clone().with_result_limit(3);
    let effect = |tx: &mut Tx<F>| {
        add(tx, "count")?;
        tx.put(b"new", b"1")?;
        Ok("four")
    };
    let error = narrow.execute(&request("a", "p"), move |tx| effect(tx).map(String::from)).await;
    let error = error.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ResultTooLarge { length: 6, limit: 3 }), "{error:?}");
    assert_eq!(error.certainty(), Certainty::NothingDone);
    assert_nothing_of(&setup, "a", "new").await;
    assert_eq!(setup.count("north", "count").await, 1, "an overwritten value must be back");
    assert_eq!(setup.add(&request("a", "p"), "count").await, Outcome::Created(2));
}

/// 24. An error between the effect and its receipt leaves neither; the retry creates one of each.
pub async fn an_error_between_effect_and_receipt_leaves_neither<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    assert_eq!(setup.add(&request("before", "p"), "count").await, Outcome::Created(1));
    setup.fixture.refuse_receipts(true).await;
    let runs = Runs::default();
    for _ in 0..2 {
        let counted = runs.clone();
        let effect = move |tx: &mut Tx<F>| {
            counted.bump();
            add(tx, "count")
        };
        let error = setup.idem.execute(&request("a", "p"), effect).await.unwrap_err();
        assert_eq!(error.certainty(), Certainty::NothingDone, "{error:?}");
        let is_the_effects = matches!(error.kind(), ErrorKind::Effect | ErrorKind::Panicked(_));
        assert!(!is_the_effects, "a refused receipt is the store's error: {error:?}");
    }
    assert!(runs.get() >= 2, "the receipt must be refused after the effect, or nothing is tried");
    assert_eq!(setup.count("north", "count").await, 1, "an effect needs its receipt");
    assert_eq!(setup.add(&request("before", "p"), "count").await, Outcome::Replayed(1));
    setup.fixture.refuse_receipts(false).await;
    assert_eq!(setup.idem.receipt(&key("a")).await.unwrap(), None);
    assert_eq!(setup.count("north", "count").await, 1);
    assert_eq!(setup.add(&request("a", "p"), "count").await, Outcome::Created(2));
    assert_eq!(setup.add(&request("a", "p"), "count").await, Outcome::Replayed(2));
    assert_eq!(setup.count("north", "count").await, 2);
    assert_eq!(setup.receipts().await, 2);
}

/// 25. A caller dropped at every await point in turn leaves its key untouched or committed.
pub async fn a_caller_dropped_at_any_await_leaves_the_key_whole<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    for dropped in [Dropped::Waiting, Dropped::Woken] {
        let mut finished = false;
        for polls in 0.. {
            assert!(polls < 1000, "a caller that is polled must finish some time");
            let name = format!("{dropped:?}-{polls}");
            // Makes an optimistic store run the effect again, with an await between the runs.
            let (rival, rival_ended) =
                Rival::new(&setup.idem, format!("rival-{name}"), |tx| add(tx, "shared").map(drop));
            let (counter, mut first) = (name.clone(), true);
            let effect = move |tx: &mut Tx<F>| {
                tx.get(b"shared")?;
                if std::mem::take(&mut first) {
                    rival.commits_meanwhile();
                }
                add(tx, &counter)
            };
            let request = request(&name, "p");
            let call = cut_short(setup.idem.execute(&request, effect), polls, dropped);
            if let Some(outcome) = within("a caller that is to be dropped", call).await {
                assert_eq!(outcome.unwrap(), Outcome::Created(1));
                finished = true;
            }
            // Where the dropped call had committed, or still does, this replays it.
            let again = within("the same key again", setup.adding(request, &name)).await.unwrap();
            assert_eq!(again.result(), Some(1), "{name} must be untouched or committed");
            assert_eq!(setup.count("north", &name).await, 1, "{name} must have one effect");
            assert_eq!(setup.receipt(&key(&name)).await.result, "1");
            within("the rival of a dropped caller", rival_ended).await;
            if finished {
                break;
            }
        }
    }
}

/// 25. Of many callers on few keys, each cancelled at a random moment, no key is left between.
pub async fn many_cancelled_callers_leave_each_key_whole<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let mut random = 0x2545_f491_u32;
    for round in 0..8 {
        let name = |number: usize| format!("key-{round}-{}", number % 4);
        let barrier = Arc::new(Barrier::new(65));
        let caller = |number: usize| {
            let (idem, request, name) =
                (setup.idem.clone(), request(&name(number), "p"), name(number));
            let effect = move |tx: &mut Tx<F>| {
                add(tx, "all")?;
                add(tx, &name)
            };
            at(&barrier, async move { idem.execute(&request, effect).await })
        };
        let callers: Vec<_> = (0..64).map(caller).collect();
        within("the callers that are to be cancelled", barrier.wait()).await;
        for caller in &callers {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // From none to a thousand turns, the short waits as likely as the long.
            for _ in 0..(1 << ((random >> 24) % 11)) - 1 {
                tokio::task::yield_now().await;
            }
            caller.abort();
        }
        for caller in callers {
            match within("a cancelled caller's end", caller).await {
                Ok(outcome) => assert_eq!(outcome.unwrap().result(), Some(1)),
                Err(error) => assert!(error.is_cancelled(), "a caller panicked: {error}"),
            }
        }
        for number in 0..4 {
            let name = name(number);
            let adding = |tx: &mut Tx<F>, name: &str| {
                add(tx, "all")?;
                add(tx, name)
            };
            let counter = name.clone();
            let again =
                setup.idem.execute(&request(&name, "p"), move |tx| adding(tx, &counter)).await;
            assert_eq!(again.unwrap().result(), Some(1), "{name} must be untouched or committed");
            assert_eq!(setup.count("north", &name).await, 1, "{name} must have one effect");
            assert_eq!(setup.receipt(&key(&name)).await.result, "1");
        }
        assert_eq!(setup.count("north", "all").await, 4 * (round + 1), "one effect for each key");
    }
}

/// 27. A business refusal that is returned as a result is remembered, and replays.
pub async fn a_refusal_returned_as_a_result_is_remembered<F: Fixture>() {
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    enum Payment {
        Accepted { number: u64 },
        Refused { reason: String },
    }
    let setup = Setup::<F>::new().await;
    let refused = Payment::Refused { reason: "no funds".to_string() };
    let (result, request) = (refused.clone(), request("a", "p"));
    let effect = move |tx: &mut Tx<F>| add(tx, "refusals").map(|_| result.clone());
    let first = setup.idem.execute(&request, effect).await.unwrap();
    assert_eq!(first, Outcome::Created(refused.clone()));
    let accepting = |tx: &mut Tx<F>| Ok(Payment::Accepted { number: add(tx, "payments")? });
    let again = setup.idem.execute(&request, accepting).await.unwrap();
    assert_eq!(again, Outcome::Replayed(refused), "a refusal must not run again");
    assert_eq!(setup.count("north", "refusals").await, 1, "what a refusal wrote must stay");
    assert_eq!(setup.count("north", "payments").await, 0);
    let result = || Err::<u64, _>("no funds".to_string());
    let request = self::request("b", "p");
    let first = setup.idem.execute(&request, move |_| Ok(result())).await.unwrap();
    assert_eq!(first, Outcome::Created(result()));
    let again = setup.idem.execute(&request, |_| Ok(Ok::<_, String>(1))).await.unwrap();
    assert_eq!(again, Outcome::Replayed(result()));
}

/// 28. An effect that ends the store's transaction, or tries to, gets an error and harms only itself.
pub async fn an_effect_that_ends_the_transaction_harms_only_itself<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let effects = setup.fixture.hostile_effects();
    assert!(!effects.is_empty(), "a fixture that declares hostile_effects has some");
    for (number, (name, effect)) in effects.into_iter().enumerate() {
        let request = request(&format!("hostile-{number}"), "p");
        let (idem, asked) = (setup.idem.clone(), request.clone());
        let hostile = async move { idem.execute(&asked, effect).await };
        let error = match setup.among_neighbours(name, hostile).await {
            Err(error) => error,
            Ok(outcome) => panic!("{name} must fail: {outcome:?}"),
        };
        assert_eq!(error.certainty(), Certainty::NothingDone, "{name}: {error:?}");
        assert_nothing_of(&setup, &format!("hostile-{number}"), "hostile").await;
        let counter = format!("count-{number}");
        let again = within("the key of a hostile effect", setup.adding(request, counter)).await;
        assert_eq!(again.unwrap(), Outcome::Created(1), "the key of {name} must run");
    }
}
