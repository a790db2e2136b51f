//! What an effect may meet: it is run again, its reads were not one state, it asks its own store.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc,
    },
    task::{Context, Poll, Wake},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use idem_core::{
    Certainty, Change, Clock, EffectError, Error, ErrorKind, Outcome, Space, Timestamp,
    Transaction,
    consumer::{Marked, Recorder},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    Fixture,
    callers::{Rival, aside, until, within},
    cases::rollback::Declined,
    setup::{PATIENCE, Runs, Setup, Tx, add, key, request},
    steps::run,
};

/// How long an effect waits for another's write at most.
const A_WRITE: Duration = Duration::from_millis(5);

/// 26. An effect that the store runs again leaves one set of writes, and the committed run's result.
pub async fn an_effect_run_again_leaves_one_set_of_writes<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let runs = Runs::default();
    let (rival, rival_ended) = Rival::new(&setup.idem, "rival", |tx| add(tx, "count").map(drop));
    let counted = runs.clone();
    let effect = move |tx: &mut Tx<F>| {
        let count = add(tx, "count")?;
        // A run that got no further than its reads is none to count.
        let run = counted.bump();
        let overtaken = run == 1 && rival.commits_meanwhile();
        tx.put(format!("run-{run}").as_bytes(), b"1")?;
        tx.put(b"run", run.to_string().as_bytes())?;
        Ok((run, count, overtaken))
    };
    let outcome = setup.idem.execute(&request("a", "p"), effect).await.unwrap();
    let Outcome::Created((run, count, overtaken)) = outcome else {
        panic!("the key is fresh: {outcome:?}")
    };
    assert!(!overtaken, "a run whose reads another caller changed must not be committed");
    assert_eq!(run, runs.get(), "the run that was committed must be the last");
    assert_eq!(setup.text("run").await, Some(run.to_string()), "value and result of one run");
    for other in 1..=run {
        let expected = (other == run).then(|| "1".to_string());
        assert_eq!(setup.text(&format!("run-{other}")).await, expected, "one set of writes");
    }
    assert_eq!(setup.receipt(&key("a")).await.result, format!("[{run},{count},false]"));
    assert_eq!(within("the rival's commit", rival_ended).await, 1);
    assert_eq!(setup.count("north", "count").await, 2, "neither caller's update may be lost");
}

/// 26, 47. The times of a receipt are those of the run that was committed, not of one that was overtaken before it.
pub async fn the_run_that_is_committed_says_when_it_started<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let runs = Runs::default();
    let (rival, rival_ended) = Rival::new(&setup.idem, "rival", |tx| add(tx, "count").map(drop));
    let (clock, counted) = (setup.clock.clone(), runs.clone());
    let (started, starts) = mpsc::channel();
    let effect = move |tx: &mut Tx<F>| {
        // The last to be sent is that of the run that is committed.
        started.send(clock.now())?;
        let count = add(tx, "count")?;
        if counted.bump() == 1 && rival.commits_meanwhile() {
            clock.advance(Duration::from_secs(10));
        }
        Ok(count)
    };
    let outcome = setup.idem.execute(&request("a", "p"), effect).await.unwrap();
    assert!(matches!(outcome, Outcome::Created(1 | 2)), "the key is fresh: {outcome:?}");
    let started = starts.try_iter().last().expect("the effect ran");
    let receipt = setup.receipt(&key("a")).await;
    assert_eq!(receipt.created_at, started, "after {} runs", runs.get());
    let expires_at = started.as_millis() + 60_000;
    assert_eq!(receipt.expires_at, Some(Timestamp::from_millis(expires_at)));
    assert_eq!(within("the rival's commit", rival_ended).await, 1);
}

/// 15. Of two effects that each write what the other read one comes first, and the other sees what it wrote.
pub async fn effects_that_read_what_the_other_writes_take_turns<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    // Each stands in only if the other does not.
    let rivals = |tx: &mut Tx<F>| {
        if tx.get(b"mine")?.is_none() {
            tx.put(b"rivals", b"1")?;
        }
        Ok(())
    };
    let (rival, rival_ended) = Rival::new(&setup.idem, "rival", rivals);
    let runs = Runs::default();
    let counted = runs.clone();
    let effect = move |tx: &mut Tx<F>| {
        let is_free = tx.get(b"rivals")?.is_none();
        if counted.bump() == 1 {
            rival.commits_meanwhile();
        }
        if is_free {
            tx.put(b"mine", b"1")?;
        }
        Ok(is_free)
    };
    let outcome = setup.idem.execute(&request("a", "p"), effect).await.unwrap();
    let Outcome::Created(is_mine) = outcome else { panic!("the key is fresh: {outcome:?}") };
    assert_eq!(within("the rival's commit", rival_ended).await, 1);
    let counts = (setup.count("north", "mine").await, setup.count("north", "rivals").await);
    let expected = if is_mine { (1, 0) } else { (0, 1) };
    assert_eq!(counts, expected, "one of both must see what the other wrote");
}

/// 15. An effect that read what another deletes meanwhile does not go by it.
pub async fn an_effect_does_not_go_by_what_was_deleted_meanwhile<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    assert_eq!(setup.add(&request("before", "p"), "balance").await, Outcome::Created(1));
    let delete = |tx: &mut Tx<F>| Ok(tx.delete(b"balance")?);
    let (rival, rival_ended) = Rival::new(&setup.idem, "rival", delete);
    let runs = Runs::default();
    let effect = move |tx: &mut Tx<F>| {
        let is_there = tx.get(b"balance")?.is_some();
        let overtaken = runs.bump() == 1 && rival.commits_meanwhile();
        tx.put(b"seen", b"1")?;
        Ok((is_there, overtaken))
    };
    let outcome = setup.idem.execute(&request("a", "p"), effect).await.unwrap();
    let Outcome::Created((is_there, overtaken)) = outcome else {
        panic!("the key is fresh: {outcome:?}")
    };
    assert!(!(is_there && overtaken), "what was read is not there any more");
    assert_eq!(within("the rival's commit", rival_ended).await, 1);
    assert_eq!(setup.text("balance").await, None, "the rival deleted it");
}

/// 24. An effect and its receipt are one commit: whoever sees one of them sees the other.
pub async fn an_effect_and_its_receipt_are_seen_together<F: Fixture>() {
    const KEYS: usize = 60;
    let setup = Setup::<F>::new().await;
    let idem = setup.handle().await;
    let [current, looks] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    // The observer goes on as long as the case, also if that fails.
    let (watched, looked) = (Arc::downgrade(&current), Arc::clone(&looks));
    let observer = aside(async move {
        let space = key("key").space();
        while let Some(number) = watched.upgrade().map(|current| current.load(Ordering::Relaxed)) {
            let name = format!("key-{number}");
            let is_receipt_first = looked.fetch_add(1, Ordering::Relaxed) % 2 == 0;
            let key = key(&name);
            let first = match is_receipt_first {
                true => idem.receipt(&key).await.unwrap().is_some(),
                false => idem.value(&space, name.as_bytes()).await.unwrap().is_some(),
            };
            let second = match is_receipt_first {
                true => idem.value(&space, name.as_bytes()).await.unwrap().is_some(),
                false => idem.receipt(&key).await.unwrap().is_some(),
            };
            let what = if is_receipt_first { "receipt" } else { "effect" };
            assert!(second || !first, "the {what} of {name} was seen without the other");
        }
    });
    for number in 0..KEYS {
        let before = looks.load(Ordering::Relaxed);
        current.store(number, Ordering::Relaxed);
        // Or it has seen what it must not, and is gone.
        let looks_on =
            || looks.load(Ordering::Relaxed) > before + 1 || Arc::strong_count(&looks) == 1;
        until("the observer's looks", looks_on).await;
        let name = format!("key-{number}");
        let request = request(&name, "p");
        let effect = move |tx: &mut Tx<F>| Ok(tx.put(name.as_bytes(), b"1")?);
        assert_eq!(setup.idem.execute(&request, effect).await.unwrap(), Outcome::Created(()));
    }
    drop(current);
    within("the observer", observer).await;
}

/// 29. An effect's error is never told if what it read was not one state: it runs again.
pub async fn an_error_of_an_effect_that_misread_is_never_told<F: Fixture>() {
    misread::<F>(|| Err(Declined(1).into())).await;
}

/// 29. An effect's panic is never told if what it read was not one state: it runs again.
pub async fn a_panic_of_an_effect_that_misread_is_never_told<F: Fixture>() {
    misread::<F>(|| panic!("the left and the right do not belong together")).await;
}

/// Writes two values that belong together.
fn write_both<Tx: Transaction + ?Sized>(tx: &mut Tx) -> Result<(), EffectError> {
    let both = add(tx, "left")?;
    tx.put(b"right", both.to_string().as_bytes())?;
    Ok(())
}

async fn misread<F: Fixture>(fail: fn() -> Result<u64, EffectError>) {
    let setup = Setup::<F>::new().await;
    let prepared = setup.idem.execute(&request("before", "p"), write_both).await.unwrap();
    assert_eq!(prepared, Outcome::Created(()));
    let (rival, rival_ended) = Rival::new(&setup.idem, "rival", write_both);
    let (runs, misreads) = (Runs::default(), Runs::default());
    let counted = (runs.clone(), misreads.clone());
    let effect = move |tx: &mut Tx<F>| {
        let left = tx.get(b"left")?;
        if counted.0.bump() == 1 {
            rival.commits_meanwhile();
        }
        if tx.get(b"right")? != left {
            counted.1.bump();
            return fail();
        }
        add(tx, "count")?;
        Ok(left.map_or(0, |left| u64::from(left[0] - b'0')))
    };
    let outcome = setup.idem.execute(&request("a", "p"), effect).await;
    let outcome = outcome.expect("what an effect that misread ends with must not be told");
    // Before the rival's commit or after it: both are one state.
    let expected: &[u64] = if misreads.get() > 0 { &[2] } else { &[1, 2] };
    assert!(
        matches!(outcome, Outcome::Created(both) if expected.contains(&both)),
        "an effect must see one state: {outcome:?} after {} misreads",
        misreads.get()
    );
    assert!(runs.get() > misreads.get(), "an effect that misread runs again");
    assert_eq!(setup.count("north", "count").await, 1);
    assert_eq!(within("the rival's commit", rival_ended).await, 1);
    assert_eq!(setup.count("north", "right").await, 2);
}

/// 29. While others write all the time, no error of an effect is told whose reads were not one state.
pub async fn no_error_of_a_misread_is_told_while_others_write<F: Fixture>() {
    const CALLERS: usize = 150;
    // Not for longer on a store that is slow, but some at any rate.
    const A_WHILE: Duration = Duration::from_millis(1_500);
    const FEWEST: usize = 15;
    let setup = Setup::<F>::new().await;
    let written = Arc::new(AtomicU64::new(0));
    // The writer goes on as long as the case, also if that fails.
    let (idem, writes) = (setup.idem.clone(), Arc::downgrade(&written));
    let writer = aside(async move {
        while let Some(writes) = writes.upgrade() {
            let number = writes.load(Ordering::Relaxed) + 1;
            // Either of two states, so that each value is soon again what it was.
            let both = (number % 2).to_string();
            let write = move |tx: &mut Tx<F>| {
                tx.put(b"left", both.as_bytes())?;
                tx.put(b"right", both.as_bytes())?;
                Ok(Change::Keep)
            };
            // Without a record, of which some stores hold so many and no more.
            run(&idem, &key("write"), write).await.expect("a writer commits");
            writes.store(number, Ordering::Relaxed);
        }
    });
    let start = Instant::now();
    for number in (0..CALLERS).take_while(|number| *number < FEWEST || start.elapsed() < A_WHILE) {
        let writes = Arc::clone(&written);
        let effect = move |tx: &mut Tx<F>| {
            let left = tx.get(b"left")?;
            // In vain where a lock is held while an effect runs.
            let (before, start) = (writes.load(Ordering::Relaxed), Instant::now());
            while writes.load(Ordering::Relaxed) == before && start.elapsed() < A_WRITE {
                thread::yield_now();
            }
            if tx.get(b"right")? == left { Ok(()) } else { Err(Declined(1).into()) }
        };
        let request = request(&format!("read-{number}"), "p");
        let call = setup.idem.execute(&request, effect);
        match within("an effect among writers", call).await {
            Ok(outcome) => assert_eq!(outcome, Outcome::Created(())),
            Err(error) => {
                let is_contended = matches!(error.kind(), ErrorKind::Contended { .. });
                assert!(is_contended, "a misread must not be told: {error:?}");
            }
        }
    }
    drop(written);
    within("the writer's last write", writer).await;
}

/// 29. An effect that misreads each time it runs ends in a typed error, with nothing done.
pub async fn an_effect_that_always_misreads_ends_in_a_typed_error<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let (rival, rival_ended) = Rival::new(&setup.idem, "rival", write_both);
    let effect = move |tx: &mut Tx<F>| {
        let left = tx.get(b"left")?;
        rival.commits_meanwhile();
        if tx.get(b"right")? != left {
            return Err(Declined(1).into());
        }
        add(tx, "count")
    };
    let idem = setup.idem.clone();
    let call = aside(async move { idem.execute(&request("a", "p"), effect).await });
    match within("the end of an effect that misreads each time", call).await {
        // Where an effect cannot misread.
        Ok(outcome) => assert_eq!(outcome, Outcome::Created(1)),
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::Contended { .. }), "{error:?}");
            assert_eq!(error.certainty(), Certainty::NothingDone);
            assert_eq!(setup.idem.receipt(&key("a")).await.unwrap(), None);
            assert_eq!(setup.count("north", "count").await, 0);
        }
    }
    assert!(within("the rival's commits", rival_ended).await >= 1);
    let again = setup.add(&request("a", "p"), "count").await;
    assert_eq!(again.result(), Some(1), "the key must run afterwards");
    assert_eq!(setup.count("north", "count").await, 1);
}

/// Drives `future` on this thread, as an effect must that asks its own store.
///
/// None if the store answered with a typed error that says that it cannot; that must come soon.
fn ask<T>(
    what: &str,
    future: impl Future<Output = Result<T, Error>>,
) -> Result<Option<T>, EffectError> {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let mut future = pin!(future);
    let waker = Arc::new(Unpark(thread::current())).into();
    let start = Instant::now();
    loop {
        if let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            let Err(error) = answer else { return Ok(answer.ok()) };
            let is_typed = matches!(error.kind(), ErrorKind::Reentrant | ErrorKind::Busy { .. });
            if is_typed && error.certainty() == Certainty::NothingDone {
                let waited = start.elapsed();
                let late = format!("{what}: the error must come within a second, not {waited:?}");
                return if waited < Duration::from_secs(1) { Ok(None) } else { Err(late.into()) };
            }
            return Err(format!("{what}: must work or say why it cannot, not {error:?}").into());
        }
        // Half, so that this speaks before the case gives up.
        let left = (PATIENCE / 2).saturating_sub(start.elapsed());
        if left.is_zero() {
            return Err(format!("{what}: it hangs").into());
        }
        thread::park_timeout(left);
    }
}

/// Runs `effect` under the key `outer` where a hang hurts nobody, and returns its outcome.
async fn ask_inside<F: Fixture, T>(
    setup: &Setup<F>,
    effect: impl FnMut(&mut Tx<F>) -> Result<T, EffectError> + Send + 'static,
) -> Outcome<T>
where
    T: Serialize + DeserializeOwned + Send + 'static,
{
    let idem = setup.idem.clone();
    let call = aside(async move { idem.execute(&request("outer", "p"), effect).await });
    within("an effect that asks its own store", call).await.unwrap()
}

/// 29. An effect that runs another key on its own store, or marks an event, works or gets a typed error.
pub async fn an_effect_that_runs_another_key_never_hangs<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let inner = setup.idem.clone();
    let effect = move |tx: &mut Tx<F>| {
        let count = add(tx, "outer")?;
        let request = request("inner", "p");
        let ran = ask("execute", inner.execute(&request, |tx| add(tx, "inner")))?;
        let marked = ask("mark", inner.store().mark_processed("consumer", "event"))?;
        let (ran, marked) = (ran.map(Outcome::result), marked.is_some());
        Ok((count, ran, marked))
    };
    let outcome = ask_inside(&setup, effect).await;
    let Outcome::Created((1, ran, marked)) = outcome else {
        panic!("an effect that asks its own store must commit: {outcome:?}")
    };
    let again = setup.add(&request("inner", "p"), "inner").await;
    let expected = match ran {
        Some(result) => {
            assert_eq!(result, Some(1), "the inner call's result");
            Outcome::Replayed(1)
        }
        None => Outcome::Created(1),
    };
    assert_eq!(again, expected, "what the inner call was told must be true");
    let again = setup.idem.store().mark_processed("consumer", "event").await.unwrap();
    let expected = if marked { Marked::Again } else { Marked::First };
    assert_eq!(again, expected, "what the inner mark was told must be true");
    assert_eq!(setup.count("north", "inner").await, 1);
    assert_eq!(setup.count("north", "outer").await, 1);
    assert_eq!(setup.add(&request("other", "p"), "outer").await, Outcome::Created(2));
}

/// 29. An effect that runs its own key on its own store works or gets a typed error; one effect stays.
pub async fn an_effect_that_runs_its_own_key_never_hangs<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let inner = setup.idem.clone();
    let effect = move |tx: &mut Tx<F>| {
        let request = request("outer", "p");
        ask("execute", inner.execute(&request, |tx| add(tx, "count")))?;
        add(tx, "count")
    };
    let outcome = ask_inside(&setup, effect).await;
    assert_eq!(outcome.result(), Some(1), "of one key's two effects one must stay");
    assert_eq!(setup.count("north", "count").await, 1);
    assert_eq!(setup.add(&request("outer", "p"), "count").await, Outcome::Replayed(1));
    assert_eq!(setup.add(&request("other", "p"), "count").await, Outcome::Created(2));
}

/// 29. An effect that reads its own store gets what is committed or a typed error.
pub async fn an_effect_that_reads_its_own_store_never_hangs<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    assert_eq!(setup.add(&request("before", "p"), "count").await, Outcome::Created(1));
    let marked = setup.idem.store().mark_processed("consumer", "event").await.unwrap();
    assert_eq!(marked, Marked::First);
    let before = setup.receipt(&key("before")).await;
    let inner = setup.idem.clone();
    let effect = move |tx: &mut Tx<F>| {
        add(tx, "count")?;
        let receipt = ask("receipt", inner.receipt(&key("before")))?;
        assert!(receipt.is_none_or(|receipt| receipt.as_ref() == Some(&before)));
        let receipt = ask("receipt", inner.receipt(&key("outer")))?;
        assert!(receipt.is_none_or(|receipt| receipt.is_none()), "it is not committed");
        let value = ask("value", inner.value(&Space::tenant("north")?, b"count"))?;
        assert!(value.is_none_or(|value| value.as_deref() == Some(b"1")), "it is not committed");
        let store = inner.store();
        for (event, expected) in [("event", true), ("other", false)] {
            let processed = ask("is_processed", store.is_processed("consumer", event))?;
            assert!(processed.is_none_or(|processed| processed == expected), "{event}");
        }
        let again = ask("replay", inner.execute(&request("before", "p"), |tx| add(tx, "count")))?;
        assert!(again.is_none_or(|again| again == Outcome::Replayed(1)), "{again:?}");
        Ok(())
    };
    assert_eq!(ask_inside(&setup, effect).await, Outcome::Created(()));
    assert_eq!(setup.count("north", "count").await, 2);
    assert_eq!(setup.add(&request("other", "p"), "count").await, Outcome::Created(3));
}

/// Runs an effect that closes its own store; what it is told, and whether the closing was.
async fn closed_from_within<F: Fixture>(setup: &Setup<F>) -> (Result<Outcome<u64>, Error>, bool) {
    let (inner, (told, tells)) = (setup.idem.clone(), mpsc::channel());
    let effect = move |tx: &mut Tx<F>| {
        let count = add(tx, "count")?;
        told.send(ask("close", inner.close())?.is_some())?;
        Ok(count)
    };
    let idem = setup.idem.clone();
    let call = aside(async move { idem.execute(&request("a", "p"), effect).await });
    let answer = within("an effect that closes its own store", call).await;
    (answer, tells.try_iter().any(|closed| closed))
}

/// Whether a call found its store closed; it must have failed with nothing else, and nothing done.
fn found_closed<T>(answer: &Result<T, Error>) -> bool {
    let Err(error) = answer else { return false };
    assert!(matches!(error.kind(), ErrorKind::Closed), "{error:?}");
    assert_eq!(error.certainty(), Certainty::NothingDone, "{error:?}");
    true
}

/// 29, 106. An effect that closes its own store never waits for itself: it is refused, or the store is closed, and the
/// effect committed before or not at all.
pub async fn an_effect_that_closes_its_own_store_never_hangs<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let (answer, was_closed) = closed_from_within(&setup).await;
    let next = setup.idem.execute(&request("b", "p"), |tx| add(tx, "count")).await;
    // One that is refused may be closed all the same: to whom a closing is too long, say.
    let is_closed = found_closed(&next);
    assert!(is_closed || !was_closed, "a closed store says so: {next:?}");
    if found_closed(&answer) {
        assert!(is_closed, "a store that is open commits");
    } else {
        assert_eq!(answer.unwrap(), Outcome::Created(1));
    }
    if !is_closed {
        assert_eq!(next.unwrap(), Outcome::Created(2));
    }
}

/// 29, 100. What an effect was told that closed its own store is true when that is opened again. Needs `reopen`.
pub async fn what_an_effect_did_that_closed_its_store_is_found_again<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let (answer, _) = closed_from_within(&setup).await;
    let setup = setup.reopened().await;
    let (count, again) = match found_closed(&answer) {
        true => (0, Outcome::Created(1)),
        false => (1, Outcome::Replayed(1)),
    };
    assert!(matches!(answer, Ok(Outcome::Created(1)) | Err(_)), "{answer:?}");
    assert_eq!(setup.count("north", "count").await, count);
    assert_eq!(setup.add(&request("a", "p"), "count").await, again);
}
