//! What a store and every other path owe to a claimed key.

use std::{
    collections::HashSet,
    sync::{Arc, mpsc::channel},
    time::Duration,
};

use bytes::Bytes;
use idem_core::{
    Certainty, Change, ErrorKind, Key, Outcome, Purged, Request, Retention, State, Timestamp,
    Token,
    consumer::{Marked, Recorder},
};
use tokio::{
    sync::{Barrier, mpsc::unbounded_channel},
    task::JoinSet,
};
use uuid::Uuid;

use crate::{
    Fixture,
    callers::{Rival, within},
    leasing::in_progress,
    setup::{Runs, START, Setup, Tx, add, kept, kept_for, key, request, start_plus},
    steps::{
        LEASE, as_holder, change, claim, claim_of_free, claimed, claimed_record, lease, token_of,
    },
};

/// 60, 74. A live claim: in progress until its end, for another fingerprint a conflict, and nothing runs.
pub async fn a_live_claim_is_in_progress_and_another_fingerprint_conflicts<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let token = claimed(&setup.idem, &request("a", "p")).await;
    let until = start_plus(LEASE);
    let runs = Runs::default();
    for (request, expected) in [
        (request("a", "p"), in_progress(until, START)),
        (request("a", "q"), Outcome::Conflict),
        (Request::new(key("a")), Outcome::Conflict),
    ] {
        let ran = runs.clone();
        let effect = move |tx: &mut _| {
            ran.bump();
            add(tx, "count")
        };
        assert_eq!(setup.idem.execute(&request, effect).await.unwrap(), expected, "{request:?}");
        let again = claim(&setup.idem, &request).await;
        assert!(!again.ran, "a live claim must not be claimed by {request:?}");
        assert_eq!(token_of(again.before.as_ref()), token);
    }
    assert!(runs.get() == 0 || setup.idem.guarantees().speculative, "it must not even run");
    assert_eq!(setup.count("north", "count").await, 0);
    assert_eq!(setup.add(&request("b", "p"), "count").await, Outcome::Created(1));
}

/// 63. A claim holds its key to its last millisecond; at its end the key runs, and the receipt replaces it.
pub async fn a_claim_holds_until_its_last_millisecond<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    claimed(&setup.idem, &request("a", "p")).await;
    let until = start_plus(LEASE);
    for now in [0, 1, LEASE - 1] {
        setup.clock.set(start_plus(now));
        let held = setup.add(&request("a", "p"), "count").await;
        assert_eq!(held, in_progress(until, start_plus(now)), "at {now} of {LEASE} ms");
    }
    setup.clock.set(until);
    assert_eq!(setup.add(&request("a", "q"), "count").await, Outcome::Conflict);
    assert_eq!(setup.add(&request("a", "p"), "count").await, Outcome::Created(1));
    assert_eq!(setup.add(&request("a", "q"), "count").await, Outcome::Conflict);
    assert_eq!(setup.receipt(&key("a")).await.created_at, until);
    assert_eq!(kept(setup.idem.store(), 10).await.len(), 1, "the receipt replaces the claim");
}

/// 63. A claim that takes over an ended one shows the claim before it, and has a larger token.
pub async fn a_taken_over_claim_is_shown_and_its_token_is_smaller<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let before = claim_of_free(&setup.idem, &request("a", "p")).await;
    let first = token_of(Some(&before));
    setup.clock.set(start_plus(LEASE));
    assert!(!claim(&setup.idem, &request("a", "q")).await.ran, "it keeps its parameters");
    let second = claim(&setup.idem, &request("a", "p")).await;
    assert!(second.ran, "an ended claim must be taken over");
    assert_eq!((second.before, second.now), (Some(before), start_plus(LEASE)));
    let token = token_of(second.after.as_ref());
    assert!(token > first, "a takeover needs a larger token: {token} after {first}");
    let after = second.after.expect("a claim leaves a record");
    let mut expected = claimed_record(&request("a", "p"), &after, start_plus(LEASE));
    let State::Claimed { took_over, .. } = &mut expected.state else {
        unreachable!("it is a claim")
    };
    *took_over = Some(first);
    assert_eq!(after, expected);
    assert_eq!(kept_for(setup.idem.store(), &key("a")).await, Some(after));
}

/// 74. A completed key cannot be claimed until its receipt has expired.
pub async fn a_completed_key_is_claimed_only_after_its_receipt<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    assert_eq!(setup.add(&request("a", "p"), "count").await, Outcome::Created(1));
    setup.clock.set(start_plus(59_999));
    for parameters in ["p", "q"] {
        let refused = claim(&setup.idem, &request("a", parameters)).await;
        assert!(!refused.ran, "a live receipt must not be claimed");
        assert_eq!(refused.before, refused.after);
        let shown = refused.before.map(|record| record.state);
        assert!(matches!(shown, Some(State::Completed { .. })), "{shown:?}");
    }
    assert_eq!(setup.add(&request("a", "p"), "count").await, Outcome::Replayed(1));
    setup.clock.set(start_plus(60_000));
    claimed(&setup.idem, &request("a", "q")).await;
    assert_eq!(setup.idem.receipt(&key("a")).await.unwrap(), None);
}

/// 62. Forgetting a live claim is refused as in progress; an ended one is forgotten.
pub async fn a_live_claim_is_not_forgotten_and_an_ended_one_is<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    claimed(&setup.idem, &request("a", "p")).await;
    let before = kept_for(setup.idem.store(), &key("a")).await;
    setup.clock.set(start_plus(LEASE - 1));
    let error = setup.idem.forget(&key("a")).await.unwrap_err();
    let ErrorKind::InProgress { until, .. } = *error.kind() else {
        panic!("a live claim must not be forgotten: {error:?}")
    };
    assert_eq!((until, error.certainty()), (start_plus(LEASE), Certainty::NothingDone));
    assert_eq!(kept_for(setup.idem.store(), &key("a")).await, before);
    setup.clock.set(start_plus(LEASE));
    assert!(setup.idem.forget(&key("a")).await.unwrap(), "an ended claim is there to forget");
    assert!(!setup.idem.forget(&key("a")).await.unwrap(), "it was forgotten already");
    assert_eq!(kept_for(setup.idem.store(), &key("a")).await, None);
}

/// 60. A claim is no receipt, neither live nor ended.
pub async fn a_claim_is_no_receipt<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    claimed(&setup.idem, &request("a", "p")).await;
    for (now, shown) in [(0, 1), (LEASE - 1, 1), (LEASE, 1), (LEASE + 60_000, 0)] {
        setup.clock.set(start_plus(now));
        assert_eq!(setup.idem.receipt(&key("a")).await.unwrap(), None, "at {now} ms");
        assert_eq!(setup.receipts().await, 0, "at {now} ms");
        let listed = setup.idem.list(None, 10).await.unwrap().records;
        assert_eq!(listed.len(), shown, "a claim is listed, live or ended: {listed:?}");
    }
}

/// 75. A purge removes neither a live claim nor an ended one whose retention has not passed.
pub async fn a_purge_leaves_claims_until_their_retention_has_passed<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let millis = Duration::from_millis;
    // Each is kept from its lease's end.
    let claims = [
        (request("long", "p").retain(millis(60_000)), LEASE + 60_000),
        (request("short", "p").retain(millis(10_000)), LEASE + 10_000),
        (request("ended", "p").retain(millis(15_000)), 20_000 + 15_000),
        (request("renewed", "p").retain(millis(5_000)), 20_000 + LEASE + 5_000),
    ];
    for (request, _) in &claims {
        claimed(&setup.idem, request).await;
    }
    setup.clock.set(start_plus(20_000));
    let renewal = Change::Extend { lease: lease(LEASE) };
    for (name, asked) in [("ended", Change::End), ("renewed", renewal)] {
        assert!(change(&setup.idem, &key(name), asked).await.unwrap().ran);
    }
    claimed(&setup.idem, &request("forever", "p").retain_forever()).await;
    let none = Purged::new(0, false);
    let mut moments = claims.map(|(request, end)| (end, request));
    moments.sort_by_key(|(end, _)| *end);
    for (end, request) in moments {
        setup.clock.set(start_plus(end - 1));
        assert_eq!(setup.idem.purge(10).await.unwrap(), none, "before {end} ms");
        assert!(kept_for(setup.idem.store(), request.key()).await.is_some());
        setup.clock.set(start_plus(end));
        assert_eq!(setup.idem.purge(10).await.unwrap().removed, 1, "at {end} ms");
        assert_eq!(kept_for(setup.idem.store(), request.key()).await, None);
    }
    setup.clock.set(Timestamp::from_millis(i64::MAX));
    assert_eq!(setup.idem.purge(10).await.unwrap(), none, "a claim kept forever stays");
    assert!(kept_for(setup.idem.store(), &key("forever")).await.is_some());
}

/// 60. A claimed event is not processed and cannot be marked, until the claim ends.
pub async fn a_claimed_event_is_neither_processed_nor_marked<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let event = Request::new(Key::event("billing", "e").unwrap());
    claimed(&setup.idem, &event).await;
    setup.clock.set(start_plus(LEASE - 1));
    let store = setup.idem.store();
    assert!(!store.is_processed("billing", "e").await.unwrap(), "a claim is no mark");
    let error = store.mark_processed("billing", "e").await.unwrap_err();
    let ErrorKind::InProgress { until, .. } = *error.kind() else {
        panic!("a claimed event must not be marked: {error:?}")
    };
    assert_eq!((until, error.certainty()), (start_plus(LEASE), Certainty::NothingDone));
    assert!(!store.is_processed("billing", "e").await.unwrap(), "the refused mark left one");
    setup.clock.set(start_plus(LEASE));
    assert!(!store.is_processed("billing", "e").await.unwrap());
    assert_eq!(store.mark_processed("billing", "e").await.unwrap(), Marked::First);
    assert!(store.is_processed("billing", "e").await.unwrap());
}

/// 66. Tokens grow strictly over keys, takeover, removal, completion, purge, and a clock that steps back.
pub async fn tokens_grow_strictly<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let idem = &setup.idem;
    let (a, b) = (request("a", "p"), request("b", "p"));
    let mut tokens = vec![claimed(idem, &a).await];
    tokens.push(claimed(idem, &b).await);
    assert!(change(idem, &key("a"), Change::Remove).await.unwrap().ran);
    tokens.push(claimed(idem, &a).await);
    setup.clock.set(start_plus(LEASE));
    tokens.push(claimed(idem, &a).await);
    setup.clock.set(start_plus(2 * LEASE));
    assert!(idem.forget(&key("a")).await.unwrap());
    tokens.push(claimed(idem, &a).await);
    setup.clock.set(start_plus(3 * LEASE));
    assert_eq!(setup.add(&a, "count").await, Outcome::Created(1));
    setup.clock.set(start_plus(3 * LEASE + 60_000));
    tokens.push(claimed(idem, &a).await);
    setup.clock.set(start_plus(4 * LEASE + 60_000));
    assert_eq!(idem.purge(10).await.unwrap().removed, 1, "only b's retention has passed");
    // The clock has stepped back, so that only a count that outlives a purge keeps the tokens growing.
    setup.clock.set(START);
    tokens.push(claimed(idem, &b).await);
    for back in [START, Timestamp::from_millis(0), Timestamp::from_millis(-1)] {
        setup.clock.set(back);
        let name = format!("back to {back}");
        tokens.push(claimed(idem, &request(&name, "p")).await);
    }
    tokens.push(claimed(&setup.handle().await, &request("through another handle", "p")).await);
    // In the year 2400 a token is more than a double can tell from the next.
    setup.clock.set(Timestamp::from_millis(13_569_465_600_123));
    for name in ["far", "farther", "farthest"] {
        tokens.push(claimed(idem, &request(name, "p")).await);
    }
    assert!(tokens.is_sorted_by(|one, next| one < next), "tokens must grow: {tokens:?}");
    assert!(tokens[0].as_u64() >= START.as_millis().unsigned_abs() * 1000, "{tokens:?}");
}

/// 66. Tokens grow strictly, and claims stay, over closing and opening again. Needs `reopen`.
pub async fn tokens_and_claims_survive_reopening<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let expected = claim_of_free(&setup.idem, &request("a", "p")).await;
    let first = token_of(Some(&expected));
    let gone = claimed(&setup.idem, &request("gone", "p")).await;
    change(&setup.idem, &key("gone"), Change::Remove).await.unwrap();
    let setup = setup.reopened().await;
    assert_eq!(kept(setup.idem.store(), 10).await, [(key("a"), expected)]);
    let until = start_plus(LEASE);
    assert_eq!(setup.add(&request("a", "p"), "count").await, in_progress(until, START));
    // The clock has stepped back, so that only what is stored can keep the tokens growing.
    setup.clock.set(start_plus(-3_600_000));
    let next = claimed(&setup.idem, &request("b", "p")).await;
    assert!(first < gone && gone < next, "tokens must grow: {first}, {gone}, {next}");
}

/// 65, 70. A holder extends, completes and releases until the lease's last millisecond, and not at its end.
pub async fn a_holder_acts_until_its_leases_last_millisecond<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    for (name, change) in holders_changes() {
        let request = request(name, "p");
        setup.clock.set(START);
        let claim = claim_of_free(&setup.idem, &request).await;
        setup.clock.set(start_plus(LEASE));
        let late = as_holder(&setup.idem, request.key(), &claim, change.clone()).await;
        assert!(!late.ran, "{name}: at its end a lease is not held any more");
        assert_eq!(late.now, start_plus(LEASE), "{name}");
        assert_eq!((late.before.as_ref(), late.after.as_ref()), (Some(&claim), Some(&claim)));
        setup.clock.set(start_plus(LEASE - 1));
        let held = as_holder(&setup.idem, request.key(), &claim, change.clone()).await;
        assert!(held.ran, "{name}: a millisecond before its end a lease is held");
        assert_eq!((held.before, held.now), (Some(claim.clone()), start_plus(LEASE - 1)), "{name}");
        let kept = kept_for(setup.idem.store(), request.key()).await;
        assert_eq!(kept, held.after, "{name}: what is committed is reported");
        if name == "extend" {
            // The claim is another than the holder expects, and is still its own.
            let again = as_holder(&setup.idem, request.key(), &claim, change).await;
            assert!(again.ran, "an extended lease is held");
            continue;
        }
        for (again, change) in holders_changes() {
            let held = as_holder(&setup.idem, request.key(), &claim, change).await;
            assert!(!held.ran, "{again} after {name}: the key is not held any more");
        }
        assert_eq!(kept_for(setup.idem.store(), request.key()).await, kept, "{name}");
    }
}

/// 64. A holder whose lease was taken over is told what there is, and changes nothing.
pub async fn a_stale_holder_changes_nothing<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    for (name, change) in holders_changes() {
        let request = request(name, "p");
        setup.clock.set(START);
        let stale = claim_of_free(&setup.idem, &request).await;
        setup.clock.set(start_plus(LEASE));
        let successor = claim_of_free(&setup.idem, &request).await;
        for clock in [0, LEASE] {
            // Also by a clock by which the first lease would still be held.
            setup.clock.set(start_plus(clock));
            let refused = as_holder(&setup.idem, request.key(), &stale, change.clone()).await;
            assert!(!refused.ran, "{name}: the lease is another's");
            assert_eq!(refused.before.as_ref(), Some(&successor), "{name}: what there is");
            let kept = kept_for(setup.idem.store(), request.key()).await;
            assert_eq!(kept.as_ref(), Some(&successor), "{name}: the successor is undisturbed");
        }
        let done = as_holder(&setup.idem, request.key(), &successor, completion()).await;
        assert!(done.ran, "{name}");
        let refused = as_holder(&setup.idem, request.key(), &stale, change).await;
        assert_eq!((refused.ran, &refused.before), (false, &done.after), "{name}");
        assert_eq!(kept_for(setup.idem.store(), request.key()).await, done.after, "{name}");
    }
}

fn completion() -> Change {
    Change::Complete {
        fingerprint: None,
        attempt: Uuid::new_v4(),
        result: Bytes::from_static(b"done"),
        retention: Retention::Forever,
    }
}

fn holders_changes() -> [(&'static str, Change); 4] {
    let extend = Change::Extend { lease: lease(2 * LEASE) };
    [
        ("extend", extend),
        ("end", Change::End),
        ("complete", completion()),
        ("release", Change::Remove),
    ]
}

/// 60, 65. A lease that its holder renews while another finds it ended and takes it over is either the holder's or the
/// other's.
pub async fn a_lease_renewed_meanwhile_is_not_taken_over<F: Fixture>() {
    let setup = Setup::<F>::new().await;
    let request = request("a", "p");
    let claim = claim_of_free(&setup.idem, &request).await;
    let (renewed, renewals) = channel();
    let idem = setup.handle().await;
    let (holder, holder_ended) = Rival::acting(&setup.idem, move |_| {
        let (idem, claim, renewed) = (idem.clone(), claim.clone(), renewed.clone());
        Box::pin(async move {
            let change = Change::Extend { lease: lease(LEASE) };
            let held = as_holder(&idem, &key("a"), &claim, change).await.ran;
            // A case that has failed listens no more.
            let _ = renewed.send(held);
        })
    });
    setup.clock.set(start_plus(LEASE));
    let (clock, runs) = (setup.clock.clone(), Runs::default());
    let effect = move |tx: &mut Tx<F>| {
        if runs.bump() == 1 {
            // It steps back: by this time the lease is held.
            clock.set(start_plus(LEASE - 1));
            holder.commits_meanwhile();
        }
        add(tx, "count")
    };
    let outcome = setup.idem.execute(&request, effect).await.unwrap();
    within("the holder's renewal", holder_ended).await;
    let (expected, count) = match renewals.recv().expect("the holder was answered") {
        true => (in_progress(start_plus(2 * LEASE - 1), start_plus(LEASE - 1)), 0),
        false => (Outcome::Created(1), 1),
    };
    assert_eq!(outcome, expected, "the key has one owner");
    assert_eq!(setup.count("north", "count").await, count);
}

/// 66. A key's tokens grow from holder to holder, however many want it.
pub async fn tokens_grow_from_holder_to_holder<F: Fixture>() {
    const CALLERS: usize = 4;
    const TURNS: usize = 100;
    let setup = Setup::<F>::new().await;
    let barrier = Arc::new(Barrier::new(CALLERS));
    // In the order of holding: a holder tells while it holds.
    let (holds, mut holders) = unbounded_channel();
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let (idem, barrier) = (setup.idem.clone(), Arc::clone(&barrier));
        let holds = holds.clone();
        callers.spawn(async move {
            barrier.wait().await;
            let mut turns = 0;
            while turns < TURNS {
                let claimed = claim(&idem, &request("a", "p")).await;
                if claimed.ran {
                    // A case that has failed listens no more.
                    let _ = holds.send(token_of(claimed.after.as_ref()));
                    change(&idem, &key("a"), Change::Remove).await.unwrap();
                    turns += 1;
                }
                tokio::task::yield_now().await;
            }
        });
    }
    drop(holds);
    let mut held = Vec::new();
    // Each has its own time: they are hundreds of commits, one after the other, on whatever disk there is.
    while let Some(token) = within("the next holder of one key", holders.recv()).await {
        held.push(token);
    }
    within("the end of the holders", callers.join_all()).await;
    assert_eq!(held.len(), CALLERS * TURNS);
    let backwards = held.windows(2).find(|pair| pair[0] >= pair[1]);
    assert_eq!(backwards, None, "a later holder's token must be larger");
}

/// 69. Of many who claim one ended claim at the same time, one wins; every token is given out once.
pub async fn of_many_claims_one_wins<F: Fixture>() {
    const CALLERS: usize = 32;
    let setup = Setup::<F>::new().await;
    let first = claimed(&setup.idem, &request("a", "p")).await;
    setup.clock.set(start_plus(LEASE));
    let barrier = Arc::new(Barrier::new(CALLERS));
    let mut callers = JoinSet::new();
    for number in 0..CALLERS {
        let (idem, barrier) = (setup.idem.clone(), Arc::clone(&barrier));
        callers.spawn(async move {
            barrier.wait().await;
            let own = claimed(&idem, &request(&format!("own-{number}"), "p")).await;
            (claim(&idem, &request("a", "p")).await, own)
        });
    }
    let answers = within("claims of one key", callers.join_all()).await;
    let won: Vec<_> = answers.iter().filter(|(claim, _)| claim.ran).collect();
    assert_eq!(won.len(), 1, "one claim must win");
    let winner = won[0].0.after.as_ref();
    assert!(token_of(winner) > first);
    for (lost, _) in answers.iter().filter(|(claim, _)| !claim.ran) {
        assert_eq!(lost.before.as_ref(), winner, "a loser must be shown the winner's claim");
    }
    let mut tokens: HashSet<Token> = answers.iter().map(|(_, own)| *own).collect();
    tokens.extend([first, token_of(winner)]);
    assert_eq!(tokens.len(), CALLERS + 2, "no token may be given out twice");
}
