//! What callers at the same time are told.

use std::{collections::BTreeSet, pin::pin, sync::mpsc, time::Duration};

use idem_core::{Certainty, Delays, Error, ErrorKind, Fingerprint, Outcome, Transaction};

use crate::{
    Fixture,
    callers::{Meeting, aside, together, within},
    cases::rollback::Declined,
    setup::{PATIENCE, Runs, Setup, Tx, add, key, request},
};

/// Asserts that one of the callers created `result` and all others replayed it.
fn assert_one_created(answers: Vec<Result<Outcome<u64>, Error>>, result: u64) {
    let callers = answers.len();
    let mut created = 0;
    for answer in answers {
        match answer.expect("no caller may see an error") {
            Outcome::Created(count) if count == result => created += 1,
            Outcome::Replayed(count) if count == result => {}
            other => panic!("every caller must get the one result {result}: {other:?}"),
        }
    }
    assert_eq!(created, 1, "exactly one of {callers} callers must be told that it created");
}

/// 30. Of 8 and of 64 callers of one key at a barrier one creates, and the others replay its result.
pub async fn callers_of_one_key_create_once_and_replay_alike<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let mut keys = 0;
    for callers in [8, 8, 8, 8, 64, 64] {
        keys += 1;
        let name = format!("key-{keys}");
        let mark = |number: u64| format!("{name}-{number}");
        let meeting = Meeting::new(&setup.idem);
        let caller = |number| {
            let (idem, request) = (setup.idem.clone(), request(&name, "p"));
            let (mark, meeting) = (mark(number), meeting.clone());
            // Reads nothing, so that nothing but the key stands between these effects.
            let effect = move |tx: &mut Tx<F>| {
                tx.put(mark.as_bytes(), b"1")?;
                meeting.wait();
                Ok(number)
            };
            async move { idem.execute(&request, effect).await }
        };
        let answers = together((0..callers).map(caller)).await;
        let receipt = setup.receipt(&key(&name)).await;
        let winner = std::str::from_utf8(&receipt.result).unwrap().parse().unwrap();
        assert_one_created(answers, winner);
        for number in 0..callers {
            let expected = u64::from(number == winner);
            let count = setup.count("north", &mark(number)).await;
            assert_eq!(count, expected, "one key has one effect, its winner's");
        }
    }
    assert_eq!(setup.receipts().await, keys, "one key has one receipt");
}

/// 31. Of two fingerprints at a barrier only the winner's side is created or replayed; the other conflicts.
pub async fn of_two_fingerprints_only_the_winners_side_is_served<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    for round in 0..8 {
        let name = format!("key-{round}");
        let meeting = Meeting::new(&setup.idem);
        let caller = |number: usize| {
            let (idem, side) = (setup.idem.clone(), ["p", "q"][number % 2]);
            let (request, mark) = (request(&name, side), format!("{name}-{side}"));
            let meeting = meeting.clone();
            let effect = move |tx: &mut Tx<F>| {
                tx.put(mark.as_bytes(), b"1")?;
                meeting.wait();
                Ok(side.to_string())
            };
            async move { (side, idem.execute(&request, effect).await.unwrap()) }
        };
        let answers = together((0..32).map(caller)).await;
        let is_created =
            |answer: &&(&str, Outcome<String>)| matches!(answer.1, Outcome::Created(_));
        let created: Vec<_> = answers.iter().filter(is_created).collect();
        assert_eq!(created.len(), 1, "one of both sides creates, once: {answers:?}");
        let winner = created[0].0;
        for (side, outcome) in &answers {
            match outcome {
                Outcome::Created(by) | Outcome::Replayed(by) => {
                    assert_eq!((*side, by.as_str()), (winner, winner), "only the winner's side");
                }
                other => {
                    assert_eq!(*other, Outcome::Conflict, "the other side conflicts");
                    assert_ne!(*side, winner, "the winner's side must not conflict");
                }
            }
        }
        let receipt = setup.receipt(&key(&name)).await;
        assert_eq!(receipt.fingerprint, Some(Fingerprint::of(winner).unwrap()));
        for side in ["p", "q"] {
            let count = setup.count("north", &format!("{name}-{side}")).await;
            assert_eq!(count, u64::from(side == winner), "only the winner's effect stays");
        }
    }
}

/// 32. 64 callers of 64 keys are all created, and none disturbs another.
pub async fn callers_of_many_keys_do_not_disturb_each_other<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let name = |number| format!("key-{number}");
    let caller = |number| setup.adding(request(&name(number), "p"), name(number));
    for answer in together((0..64).map(caller)).await {
        assert_eq!(answer.unwrap(), Outcome::Created(1), "each key runs on its own");
    }
    for number in 0..64 {
        assert_eq!(setup.count("north", &name(number)).await, 1, "{}", name(number));
        assert_eq!(setup.receipt(&key(&name(number))).await.result, "1");
    }
    assert_eq!(setup.receipts().await, 64);
}

/// 33. A counter that 8 callers share through 500 keys loses no update, and no two effects saw one count.
pub async fn a_counter_shared_by_many_keys_is_exact<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let caller = |first: usize| {
        let adding = |number| setup.adding(request(&format!("key-{number}"), "p"), "count");
        let calls: Vec<_> = (first..500).step_by(8).map(adding).collect();
        async move {
            let mut counts = Vec::new();
            for call in calls {
                match call.await.unwrap() {
                    Outcome::Created(count) => counts.push(count),
                    other => panic!("every key is fresh: {other:?}"),
                }
            }
            counts
        }
    };
    let counts: BTreeSet<_> = together((0..8).map(caller)).await.into_iter().flatten().collect();
    assert!(counts.iter().copied().eq(1..=500), "each effect must see a count of its own");
    assert_eq!(setup.count("north", "count").await, 500, "no update may be lost");
    assert_eq!(setup.receipts().await, 500);
}

/// 34. The loser of a race never sees an error, of the driver or of any kind, through whichever handle.
pub async fn the_loser_of_a_race_never_sees_an_error<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let mut handles = vec![setup.idem.clone()];
    for _ in 0..3 {
        handles.push(setup.handle().await);
    }
    let rounds = 25;
    for round in 1..=rounds {
        // All of them race for one key, and all rounds for one value.
        let caller = |number: usize| {
            let (idem, request) =
                (handles[number % 4].clone(), request(&format!("key-{round}"), "p"));
            async move { idem.execute(&request, |tx| add(tx, "count")).await }
        };
        assert_one_created(together((0..8).map(caller)).await, round);
    }
    // Each of them wants a key of its own, and all want one value.
    let caller = |number: usize| {
        let (idem, request) = (handles[number % 4].clone(), request(&format!("own-{number}"), "p"));
        async move { idem.execute(&request, |tx| add(tx, "count")).await }
    };
    for answer in together((0..32).map(caller)).await {
        let outcome = answer.expect("the loser of a race for a value must run again");
        assert!(matches!(outcome, Outcome::Created(_)), "{outcome:?}");
    }
    assert_eq!(setup.count("north", "count").await, rounds + 32);
}

/// 35. An expired key, contended by callers with new parameters, runs exactly once more.
pub async fn an_expired_key_under_contention_runs_once_more<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    for run in 1..=8 {
        let parameters = format!("parameters-{run}");
        let meeting = Meeting::new(&setup.idem);
        let caller = |_| setup.meeting(&meeting, request("a", &parameters), "count");
        assert_one_created(together((0..16).map(caller)).await, run);
        assert_eq!(setup.count("north", "count").await, run, "an expired key runs once more");
        assert_eq!(setup.receipts().await, 1, "the new receipt replaces the expired one");
        setup.clock.advance(Duration::from_secs(60));
    }
}

/// 36. The winner rolls back while others want the key: one of them runs, and the others replay.
pub async fn after_a_winner_rolls_back_one_of_the_others_runs<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    for round in 0..16 {
        let name = format!("key-{round}");
        let (runs, meeting) = (Runs::default(), Meeting::new(&setup.idem));
        let caller = |_| {
            let (idem, request) = (setup.idem.clone(), request(&name, "p"));
            let (name, runs, meeting) = (name.clone(), runs.clone(), meeting.clone());
            let effect = move |tx: &mut _| {
                let count = add(tx, &name)?;
                meeting.wait();
                if runs.bump() == 1 { Err(Declined(round).into()) } else { Ok(count) }
            };
            async move { idem.execute(&request, effect).await }
        };
        let answers = together((0..8).map(caller)).await;
        let (served, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
        // None, if another caller had committed before the first run's error could be believed.
        assert!(refused.len() <= 1, "only the first run fails: {refused:?}");
        for error in refused.into_iter().map(Result::unwrap_err) {
            assert_eq!(error.effect_error(), Some(&Declined(round)), "{error:?}");
        }
        assert_one_created(served, 1);
        assert_eq!(setup.count("north", &name).await, 1, "what was rolled back must not count");
    }
}

/// 37. On a current-thread runtime two callers of one key both finish, in one task and in two.
pub async fn two_callers_of_one_key_on_one_thread_both_finish<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    // Aside, since a store that blocks the one thread would block this case's timer with it.
    let finished = aside(async move {
        let caller = || setup.adding(request("a", "p"), "count");
        let (first, second) = tokio::join!(caller(), caller());
        assert_one_created(vec![first, second], 1);
        let caller = |_| setup.adding(request("b", "p"), "count");
        assert_one_created(together((0..2).map(caller)).await, 2);
        setup.count("north", "count").await
    });
    let count = within("two callers of one key on one thread", finished).await;
    assert_eq!(count, 2, "each key has one effect");
}

/// Starts a call whose effect goes on until it is released, and waits for its start.
async fn slow_effect<F: Fixture>(
    setup: &Setup<F>,
) -> (mpsc::Sender<()>, impl Future<Output = Result<Outcome<bool>, Error>> + use<F>) {
    let (started, mut start) = tokio::sync::mpsc::unbounded_channel();
    let (release, released) = mpsc::channel();
    let mut is_released = false;
    let idem = setup.idem.clone();
    let effect = move |tx: &mut Tx<F>| {
        tx.put(b"slow", b"1")?;
        // A case that has failed listens no more.
        let _ = started.send(());
        // One release is for all runs; its bound is the longer, so that the case speaks first.
        is_released = is_released || released.recv_timeout(PATIENCE * 2).is_ok();
        Ok(is_released)
    };
    let slow = aside(async move { idem.execute(&request("slow", "p"), effect).await });
    within("the slow effect's start", start.recv()).await.expect("the slow effect starts");
    (release, slow)
}

/// 39. While one effect is slow, what the store declares goes on; the rest goes on afterwards.
pub async fn a_slow_effect_delays_no_more_than_declared<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let delays = setup.idem.guarantees().delays;
    assert_eq!(setup.add(&request("earlier", "p"), "earlier").await, Outcome::Created(1));
    let before = setup.receipt(&key("earlier")).await;
    let (release, slow) = slow_effect(&setup).await;
    let mut other = pin!(aside(setup.adding(request("other", "p"), "other")));
    if delays <= Delays::Writes {
        let replay = aside(setup.adding(request("earlier", "p"), "earlier"));
        let replay = within("a replay beside a slow effect", replay).await.unwrap();
        assert_eq!(replay, Outcome::Replayed(1));
        let idem = setup.idem.clone();
        let receipt = aside(async move { idem.receipt(&key("earlier")).await });
        let receipt = within("a receipt beside a slow effect", receipt).await.unwrap();
        assert_eq!(receipt, Some(before));
    }
    if delays == Delays::Nothing {
        let other = within("another key beside a slow effect", &mut other).await.unwrap();
        assert_eq!(other, Outcome::Created(1));
    }
    release.send(()).expect("the slow effect must still run while the others go on");
    let slow = within("the slow effect's commit", slow).await.unwrap();
    assert_eq!(slow, Outcome::Created(true), "the slow effect must have waited for its release");
    if delays != Delays::Nothing {
        let other = within("another key after a slow effect", other).await.unwrap();
        assert_eq!(other, Outcome::Created(1));
    }
    assert_eq!(setup.count("north", "slow").await, 1);
    assert_eq!(setup.count("north", "other").await, 1);
}

/// 106. What runs while its store is closed is committed before the closing has ended, or not at all.
pub async fn what_runs_at_the_closing_is_committed_before_its_end_or_never<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let (release, slow) = slow_effect(&setup).await;
    let idem = setup.idem.clone();
    let mut closing = pin!(aside(async move { idem.close().await }));
    // In vain where the closing waits for the effect; where nothing waits for effects, only a loaded machine can delay it.
    let patience = match setup.idem.guarantees().delays {
        Delays::Nothing => Duration::from_secs(3),
        _ => Duration::from_millis(300),
    };
    let closed = tokio::time::timeout(patience, &mut closing).await;
    let was_closed = matches!(closed, Ok(Ok(())));
    release.send(()).expect("the slow effect must still run while its store is closed");
    let closed = match closed {
        Ok(closed) => closed,
        Err(_) => within("the closing", closing).await,
    };
    if let Err(error) = closed {
        // It may take longer than the store's patience, and the store is closed all the same.
        let is_late = matches!(error.kind(), ErrorKind::Busy { waited } if !waited.is_zero());
        assert!(is_late, "{error:?}");
    }
    match within("the slow effect's end", slow).await {
        Ok(outcome) => {
            assert_eq!(outcome, Outcome::Created(true));
            assert!(!was_closed, "a closed store must commit nothing");
        }
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::Closed), "{error:?}");
            assert_eq!(error.certainty(), Certainty::NothingDone);
        }
    }
    let later = setup.idem.execute(&request("later", "p"), |tx| add(tx, "later")).await;
    assert!(matches!(later.unwrap_err().kind(), ErrorKind::Closed), "a closed store says so");
}
