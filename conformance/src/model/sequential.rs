//! One caller after the other: each answer, the effects' values and the listing must be those of the rules.

use std::{
    cell::Cell,
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Arc, atomic::Ordering},
};

use idem_core::{DynStore, Idem, ManualClock};
use proptest::{
    prelude::*,
    sample::select,
    test_runner::{Config, TestCaseError, TestError, TestRunner},
};
use proptest_state_machine::ReferenceStateMachine;
use tokio::runtime::Builder;

use super::{
    caller::{Caller, Handle},
    calls::{Answer, Call, Held, KEYS, LeaseNo, Millis, NAMES, OWNERS, Record},
    choices::{Act, act, call, rng},
    names::Names,
    rules::Rules,
};
use crate::{
    placed::{Make, Place},
    setup::start_plus,
    watched::{Steps, Watched},
};

/// How many steps a program has at most.
const STEPS: usize = 30;

/// How many handles are open at the same time.
const HANDLES: usize = 2;

/// What happens next. Times are milliseconds after the start.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// Somebody calls through the handle of that number.
    Call(usize, Call),
    /// The holder of one of the leases that are held acts.
    Act(usize, Act),
    /// Purges until nothing is left to be purged, so many at a time.
    Purge(usize, usize),
    /// The clock jumps, forwards or backwards.
    ClockTo(Millis),
    /// The place is closed and opened again, if what is kept survives that. Whoever held a lease is gone.
    Reopen,
}

/// What the rules say so far.
#[derive(Clone, Debug, Default)]
struct Reference {
    rules: Rules,
    now: Millis,
    calls: u64,
    held: Vec<Held>,
    /// What the last step is answered, and with which lease, if it was one's holder's.
    expected: Option<(Call, Answer)>,
    purged: usize,
}

impl Reference {
    fn call(&mut self, call: Call) {
        let answer = self.rules.apply(call, self.calls, self.now);
        if let (Call::Claim { key, print, retain, .. }, Answer::Acquired { lease, .. }) =
            (call, &answer)
        {
            self.held.push(Held { lease: *lease, key, print, retain });
        }
        self.expected = Some((call, answer));
    }

    fn act(&mut self, pick: usize, act: Act) {
        let pick = pick % self.held.len();
        let held = self.held[pick];
        if let Some(call) = act.by(held) {
            self.call(call);
        }
        let is_spent = match (act, &self.expected) {
            (Act::Drop | Act::Abandon, _) => true,
            (_, Some((_, answer))) => {
                matches!(answer, Answer::Completed(_) | Answer::Released | Answer::Ended)
            }
            _ => false,
        };
        if is_spent {
            self.held.remove(pick);
        }
    }

    fn purge(&mut self) {
        for key in KEYS {
            if self.rules.apply(Call::Purge(key), self.calls, self.now) == Answer::Purged(true) {
                self.purged += 1;
            }
        }
    }

    /// The instants around which answers change, and some others.
    fn instants(&self) -> Vec<Millis> {
        let ends = self.rules.records().flat_map(Record::ends);
        let edges = ends.flat_map(|end| [end - 1, end, end, end + 1]);
        edges.chain([self.now - 7, self.now + 5, self.now + 100]).collect()
    }
}

/// Drives the generation of steps.
struct Machine;

impl ReferenceStateMachine for Machine {
    type State = Reference;
    type Transition = Next;

    fn init_state() -> BoxedStrategy<Reference> {
        Just(Reference::default()).boxed()
    }

    fn transitions(state: &Reference) -> BoxedStrategy<Next> {
        let handle = 0..HANDLES;
        let acts = if state.held.is_empty() { 0 } else { 10 };
        prop_oneof![
            14 => (handle.clone(), call()).prop_map(|(handle, call)| Next::Call(handle, call)),
            acts => (any::<usize>(), act()).prop_map(|(pick, act)| Next::Act(pick % 8, act)),
            2 => (handle, 1..=3_usize).prop_map(|(handle, limit)| Next::Purge(handle, limit)),
            6 => select(state.instants()).prop_map(Next::ClockTo),
            1 => Just(Next::Reopen),
        ]
        .boxed()
    }

    fn preconditions(state: &Reference, next: &Next) -> bool {
        !matches!(next, Next::Act(..)) || !state.held.is_empty()
    }

    fn apply(mut state: Reference, next: &Next) -> Reference {
        state.calls += 1;
        state.expected = None;
        state.purged = 0;
        match *next {
            Next::Call(_, call) => state.call(call),
            Next::Act(pick, act) => state.act(pick, act),
            Next::Purge(..) => state.purge(),
            Next::ClockTo(now) => state.now = now,
            Next::Reopen => state.held.clear(),
        }
        state
    }
}

/// A place under test.
struct Subject {
    place: Box<dyn Place<Arc<DynStore>>>,
    reopens: bool,
    clock: ManualClock,
    handles: Vec<(Handle, Steps)>,
    caller: Caller,
    /// Through which handle each lease was claimed.
    claimed_by: BTreeMap<LeaseNo, usize>,
    /// Which lease a token is of; those of two tenants may be alike.
    tokens: BTreeMap<(usize, u64), LeaseNo>,
    /// The largest token of each key so far.
    last_tokens: [Option<u64>; 4],
}

impl Subject {
    async fn new(create: Make<Arc<DynStore>>, reopens: bool) -> Self {
        let place = create().await;
        let clock = ManualClock::at(start_plus(0));
        let caller = Caller::new(Names::of_run(0), 0);
        let mut subject = Self {
            place,
            reopens,
            clock,
            handles: Vec::new(),
            caller,
            claimed_by: BTreeMap::new(),
            tokens: BTreeMap::new(),
            last_tokens: [None; 4],
        };
        subject.open().await;
        subject
    }

    async fn open(&mut self) {
        for _ in 0..HANDLES {
            let (store, steps) = Watched::new(self.place.open(self.clock.clone()).await);
            self.handles.push((Idem::new(Arc::new(store)), steps));
        }
    }

    async fn reopen(&mut self) -> Result<(), String> {
        self.caller.abandon_all();
        if self.reopens {
            self.close().await?;
        }
        self.handles.clear();
        self.open().await;
        Ok(())
    }

    async fn close(&self) -> Result<(), String> {
        for (idem, _) in &self.handles {
            let closed = idem.close().await;
            closed.map_err(|error| format!("closing failed: {}", error.with_causes()))?;
        }
        Ok(())
    }

    /// Takes a step, and compares what comes of it with what the rules say.
    async fn step(
        &mut self,
        before: &Reference,
        next: Next,
        after: &Reference,
    ) -> Result<(), String> {
        match next {
            Next::Call(handle, call) => self.call(handle, call, after).await,
            Next::Act(pick, act) => {
                let held = before.held[pick % before.held.len()];
                let by = self.claimed_by.get(&held.lease).copied().unwrap_or(0);
                match act {
                    Act::Drop => {
                        // It is ended in the background, by one step.
                        let steps = self.handles[by].1.clone();
                        let answered = steps.answered();
                        self.caller.drop_lease(held);
                        steps.reach(answered + 1).await;
                        Ok(())
                    }
                    Act::Abandon => {
                        self.caller.abandon(held.lease);
                        Ok(())
                    }
                    _ => match act.by(held) {
                        Some(call) => self.call(by, call, after).await,
                        None => Ok(()),
                    },
                }
            }
            Next::Purge(handle, limit) => self.purge(handle, limit, after.purged).await,
            Next::ClockTo(now) => {
                self.clock.set(start_plus(now));
                Ok(())
            }
            Next::Reopen => self.reopen().await,
        }
    }

    async fn call(&mut self, handle: usize, call: Call, after: &Reference) -> Result<(), String> {
        let Some((_, expected)) = &after.expected else { return Ok(()) };
        let came = self.caller.call(&self.handles[handle].0, call, after.calls).await;
        if let (Call::Claim { key, .. }, Answer::Acquired { lease: token, .. }) = (call, &came) {
            let (token, last) = (*token, &mut self.last_tokens[key as usize]);
            if last.is_some_and(|last| token <= last) {
                return Err(format!("expected a token larger than {last:?}\n     came {token}"));
            }
            *last = Some(token);
            self.tokens.insert((key as usize, token), after.calls);
            self.claimed_by.insert(after.calls, handle);
        }
        same(expected, &self.renamed(call, came))
    }

    async fn purge(&mut self, handle: usize, limit: usize, expected: usize) -> Result<(), String> {
        let mut left = expected;
        loop {
            let came = self.caller.purge(&self.handles[handle].0, limit).await;
            let removed = left.min(limit);
            let Answer::PurgedInAll { removed: count, more } = came else {
                return Err(format!("a purge must not be answered {came:?}"));
            };
            left -= removed;
            // One that ends at its limit may not know that there is no more.
            if count != removed || (left > 0 && !more) || (removed < limit && more) {
                return Err(format!(
                    "expected {removed} of {expected} to be removed by a purge of {limit}, and {left} to be left; \
                     came {came:?}"
                ));
            }
            if !more {
                return Ok(());
            }
        }
    }

    /// All that is kept must be what the rules keep.
    async fn check(&self, state: &Reference) -> Result<(), String> {
        let (rules, calls, now) = (&state.rules, state.calls, state.now);
        let number = usize::try_from(calls).unwrap_or(0);
        let idem = &self.handles[number % HANDLES].0;
        let expected = |call| rules.clone().apply(call, calls, now);
        let mut listed = self
            .caller
            .list(idem, 1 + number % 5)
            .await
            .map_err(|answer| format!("listing must not be answered {answer:?}"))?;
        for key in KEYS {
            let name = self.caller.names.key(key);
            let shown: Vec<_> = listed.extract_if(.., |(listed, _)| *listed == name).collect();
            if shown.len() > 1 {
                return Err(format!("the listing shows {key:?} {} times", shown.len()));
            }
            let shown = shown.into_iter().next().map(|(_, record)| record);
            let came = self.renamed(Call::List(key), Answer::Listed(shown));
            same(&expected(Call::List(key)), &came)
                .map_err(|problem| format!("{key:?}: {problem}"))?;
        }
        if !listed.is_empty() {
            return Err(format!("the listing shows what is not there: {listed:?}"));
        }
        for owner in OWNERS {
            for name in NAMES {
                let mut reader = Caller::new(self.caller.names.clone(), 0);
                let call = Call::Value(owner, name);
                same(&expected(call), &reader.call(idem, call, calls).await)
                    .map_err(|problem| format!("{owner:?}'s {name:?}: {problem}"))?;
            }
        }
        Ok(())
    }

    /// The answer with its leases named by their calls.
    fn renamed(&self, call: Call, answer: Answer) -> Answer {
        let key = call.key().map_or(usize::MAX, |key| key as usize);
        let name = |token| self.tokens.get(&(key, token)).copied().unwrap_or(LeaseNo::MAX);
        answer.renamed(name)
    }
}

fn same(expected: &Answer, came: &Answer) -> Result<(), String> {
    if expected == came {
        Ok(())
    } else {
        Err(format!("expected {expected:?}\n     came {came:?}"))
    }
}

/// Takes the steps of a program one after the other; says `taken` before each.
async fn follow(
    create: Make<Arc<DynStore>>,
    reopens: bool,
    steps: Vec<Next>,
    taken: impl Fn(),
) -> Result<(), String> {
    let mut subject = Subject::new(create, reopens).await;
    let mut state = Reference::default();
    for (number, next) in steps.into_iter().enumerate() {
        taken();
        let after = Machine::apply(state.clone(), &next);
        let went = subject.step(&state, next, &after).await;
        went.map_err(|problem| format!("at step {}:\n{problem}", number + 1))?;
        let checked = subject.check(&after).await;
        checked.map_err(|problem| format!("after step {}:\n{problem}", number + 1))?;
        state = after;
    }
    subject.caller.abandon_all();
    subject.close().await
}

/// Runs so many random programs, and returns how many steps there were; or the shortest program found that goes wrong.
pub(super) fn run(
    create: Make<Arc<DynStore>>,
    reopens: bool,
    cases: usize,
    seed: u64,
) -> Result<usize, String> {
    let runtime =
        Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let config = Config {
        cases: u32::try_from(cases).unwrap_or(u32::MAX),
        failure_persistence: None,
        max_shrink_iters: 4_000,
        max_shrink_time: 30_000,
        ..Config::default()
    };
    let steps = Cell::new(0);
    let mut runner = TestRunner::new_with_rng(config, rng(seed));
    let programs = Machine::sequential_strategy(1..STEPS);
    let ran = runner.run(&programs, |(_, program, seen)| {
        let taken = || {
            steps.set(steps.get() + 1);
            if let Some(seen) = &seen {
                seen.fetch_add(1, Ordering::SeqCst);
            }
        };
        runtime.block_on(follow(create, reopens, program, taken)).map_err(TestCaseError::fail)
    });
    match ran {
        Ok(()) => Ok(steps.get()),
        Err(TestError::Fail(problem, (_, program, _))) => {
            let mut text = format!("{problem}\nof this program (IDEM_SEED={seed}):\n");
            for (number, next) in program.iter().enumerate() {
                let _ = writeln!(text, "{:3}. {next:?}", number + 1);
            }
            Err(text)
        }
        Err(error) => Err(error.to_string()),
    }
}
