//! Several clients at once: each follows a program of its own, and all that they are told is recorded.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use idem_core::ManualClock;
use tokio::{sync::Barrier, task::yield_now};

use super::{
    caller::{Caller, Handle},
    calls::{Answer, Call, Held, KEYS, Millis, NAMES, OWNERS},
    choices::{Action, Trouble, What},
    history::{History, Purge},
    names::Names,
};
use crate::{
    callers::{Dropped, cut_short},
    setup::{PATIENCE, start_plus},
    watched::Steps,
};

/// The history that all clients of a run write, and their clock.
#[derive(Clone)]
pub(super) struct Log {
    history: Arc<Mutex<History>>,
    clock: ManualClock,
}

impl Log {
    /// Begins a history at `now`.
    pub(super) fn new(clock: &ManualClock, now: Millis) -> Self {
        clock.set(start_plus(now));
        Self { history: Arc::new(Mutex::new(History::at(now))), clock: clock.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves the clock. Whoever asks or is told something does so before, or after.
    fn advance(&self, by: Millis) {
        let mut history = self.lock();
        let now = history.now() + by;
        self.clock.set(start_plus(now));
        history.clock_is(now);
    }

    pub(super) fn history(&self) -> History {
        self.lock().clone()
    }
}

/// One of the clients of a run.
pub(super) struct Client {
    number: usize,
    log: Log,
    idem: Handle,
    steps: Steps,
    caller: Caller,
    held: Vec<Held>,
}

impl Client {
    pub(super) fn new(number: usize, log: &Log, handle: &(Handle, Steps), names: &Names) -> Self {
        let (log, (idem, steps)) = (log.clone(), handle.clone());
        let caller = Caller::new(names.clone(), 1 + number);
        Self { number, log, idem, steps, caller, held: Vec::new() }
    }

    /// Follows a program, from when all have met at the barrier.
    pub(super) async fn follow(mut self, barrier: Arc<Barrier>, program: Vec<Action>) {
        barrier.wait().await;
        for Action { pauses, what, trouble } in program {
            for _ in 0..pauses {
                yield_now().await;
            }
            match what {
                What::Call(call) => self.call(call, trouble).await,
                What::Act(act) => {
                    let Some(held) = self.held.last().copied() else { continue };
                    match act.by(held) {
                        Some(end @ Call::End(_)) if act.is_drop() => {
                            // What goes on in the background nobody waits for.
                            self.log.lock().asks(self.number, &[end], None);
                            self.caller.drop_lease(held);
                        }
                        Some(call) => self.call(call, trouble).await,
                        None => self.caller.abandon(held.lease),
                    }
                    let is_held = |held: &Held| self.caller.leases.contains_key(&held.lease);
                    self.held.retain(is_held);
                }
                What::List(limit) => self.list(limit).await,
                What::Purge(limit) => self.purge(limit).await,
                What::Advance(by) => self.log.advance(by),
            }
        }
        self.caller.abandon_all();
    }

    /// Looks at all that is kept, when the others are done.
    pub(super) async fn look_at_all(&mut self) {
        self.list(2).await;
        for owner in OWNERS {
            for name in NAMES {
                self.call(Call::Value(owner, name), Trouble::None).await;
            }
        }
    }

    async fn call(&mut self, call: Call, trouble: Trouble) {
        match trouble {
            Trouble::Fail => self.steps.fail(1),
            Trouble::Lose => self.steps.lose(1),
            Trouble::None | Trouble::Cancel(_) => {}
        }
        let number = self.log.lock().asks(self.number, &[call], None);
        let calling = self.caller.call(&self.idem, call, number);
        let answer = match trouble {
            Trouble::Cancel(polls) => cut_short(calling, polls, Dropped::Waiting).await,
            _ => Some(in_time(calling).await),
        };
        // A call without a step has left them.
        self.steps.fail(0);
        self.steps.lose(0);
        let mut history = self.log.lock();
        let gave_up = matches!(answer, Some(Answer::NotDone | Answer::Unknown));
        history.gave_up += usize::from(gave_up && trouble == Trouble::None);
        match answer {
            Some(Answer::NotDone) => history.is_void(number),
            None | Some(Answer::Unknown) => {
                drop(history);
                self.may_end_after(call, number);
            }
            Some(answer) => {
                if let (Call::Claim { key, print, retain, .. }, Answer::Acquired { .. }) =
                    (call, &answer)
                {
                    self.held.push(Held { lease: number, key, print, retain });
                }
                history.is_told(number, vec![Some(answer)]);
            }
        }
    }

    /// After a call that was not answered a lease may end whose guard went with the call, and a claim that was not told
    /// of be taken back.
    fn may_end_after(&self, call: Call, number: u64) {
        let end = match call {
            Call::Claim { key, print, retain, .. } => {
                Call::TakeBack(Held { lease: number, key, print, retain })
            }
            Call::Complete(held, _)
            | Call::CompleteWith(held, _)
            | Call::Release(held)
            | Call::End(held)
                if !self.caller.leases.contains_key(&held.lease) =>
            {
                Call::End(held)
            }
            _ => return,
        };
        // As early as the call itself may have.
        self.log.lock().asks_with(number, end);
    }

    async fn list(&self, limit: usize) {
        let first = self.log.lock().asks(self.number, &KEYS.map(Call::List), None);
        let listed = tokio::time::timeout(PATIENCE, self.caller.list(&self.idem, limit)).await;
        let answers = match listed.unwrap_or_else(|_| Err(late())) {
            Ok(mut listed) => KEYS.map(|key| {
                let name = self.caller.names.key(key);
                let mut shown = listed.extract_if(.., |(listed, _)| *listed == name);
                let first = shown.next().map(|(_, record)| record);
                let others = shown.count();
                Some(if others == 0 {
                    Answer::Listed(first)
                } else {
                    Answer::Unexpected(format!("a listing that shows it {} times", others + 1))
                })
            }),
            Err(answer) => KEYS.map(|_| Some(answer.clone())),
        };
        self.log.lock().is_told(first, answers.to_vec());
    }

    async fn purge(&self, limit: usize) {
        let (first, purge) = {
            let mut history = self.log.lock();
            let purge = history.purges.len();
            history.purges.push(Purge { limit, removed: 0 });
            (history.asks(self.number, &KEYS.map(Call::Purge), Some(purge)), purge)
        };
        let answer = in_time(self.caller.purge(&self.idem, limit)).await;
        let mut history = self.log.lock();
        let answer = match answer {
            Answer::PurgedInAll { removed, more }
                if removed <= limit && !(more && removed < limit) =>
            {
                let limit = if more { limit } else { usize::MAX };
                history.purges[purge] = Purge { limit, removed };
                None
            }
            wrong => Some(Answer::Unexpected(format!("{wrong:?}"))),
        };
        history.is_told(first, KEYS.map(|_| answer.clone()).to_vec());
    }
}

async fn in_time(answer: impl Future<Output = Answer>) -> Answer {
    tokio::time::timeout(PATIENCE, answer).await.unwrap_or_else(|_| late())
}

fn late() -> Answer {
    Answer::Unexpected(format!("nothing within {PATIENCE:?}"))
}
