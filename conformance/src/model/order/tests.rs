//! The search is held to another's, the tester of stateright: of random histories, right ones and such in which an
//! answer was changed, both must say the same.

use std::{mem::discriminant, sync::Arc};

use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, TestRunner},
};
use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};

use super::*;
use crate::{
    chance::{rounds, seed},
    model::{
        calls::{Held, K, Reply},
        choices::{Action, Trouble, What, programs, rng},
    },
};

#[test]
fn an_independent_tester_agrees() {
    let (histories, first) = (rounds(2_000) as u64, seed());
    let mut verdicts = [[0; 2]; 2];
    for number in 0..histories {
        let seed = first.wrapping_add(number);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng(seed));
        let mut history = Simulation::new(&mut runner).run();
        let is_changed = number % 2 == 1 && change(&mut history, &mut runner);
        let theirs = theirs(history.clone());
        let ours = find(history);
        assert_eq!(ours.is_ok(), theirs, "IDEM_SEED={seed}: stateright says {theirs}: {ours:?}");
        assert!(theirs || is_changed, "IDEM_SEED={seed}: it was made in an order");
        verdicts[usize::from(is_changed)][usize::from(theirs)] += 1;
    }
    let [[_, right], [refused, passed]] = verdicts;
    // Of few there may be none of a kind.
    let are_mixed = right > histories / 3 && refused > histories / 5 && passed > 0;
    assert!(are_mixed || histories < 500, "{verdicts:?}");
}

/// What stateright says of a history.
fn theirs(mut history: History) -> bool {
    let tokens = Arc::new(Tokens(history.name_leases()));
    let time = |op: &Op| {
        let times: Vec<_> = history.times(op).collect();
        assert!(op.is_void || times.len() == 1, "a call goes by one time here");
        times[0]
    };
    let times = Arc::new(history.ops.iter().map(time).collect());
    let mut tester = LinearizabilityTester::new(Spec { rules: Rules::default(), tokens, times });
    let end = history.ops.iter().filter_map(|op| op.over).max().unwrap_or(0);
    for at in 0..=end {
        // Each call is a thread of its own, so that one that was never answered may be followed by others.
        for (number, op) in history.ops.iter().enumerate().filter(|(_, op)| !op.is_void) {
            if op.asked == at {
                tester.on_invoke(number, (number, op.call)).unwrap();
            }
            if op.over == Some(at) {
                tester.on_return(number, op.answer.clone().unwrap()).unwrap();
            }
        }
    }
    tester.is_consistent()
}

/// The rules, as stateright asks for them.
#[derive(Clone)]
struct Spec {
    rules: Rules,
    tokens: Arc<Tokens>,
    /// What each call goes by.
    times: Arc<Vec<Millis>>,
}

impl SequentialSpec for Spec {
    type Op = (usize, Call);
    type Ret = Answer;

    fn invoke(&mut self, &(number, call): &Self::Op) -> Answer {
        let answer = self.rules.apply(call, number as u64, self.times[number]);
        self.tokens.as_answered(answer)
    }

    fn is_valid_step(&mut self, op: &Self::Op, answer: &Answer) -> bool {
        let is_claimed = matches!(answer, Answer::Acquired { .. });
        let grows = !is_claimed || self.tokens.grow(op.0, op.1, &self.rules);
        grows && self.invoke(op) == *answer
    }
}

/// Clients whose calls take effect one after the other, each between its question and its answer.
struct Simulation<'r> {
    runner: &'r mut TestRunner,
    clients: Vec<Client>,
    rules: Rules,
    history: History,
    /// The token of each lease.
    tokens: Vec<(LeaseNo, u64)>,
    /// Calls that nobody is told of, and that may yet take effect.
    lost: Vec<(u64, Call)>,
}

#[derive(Default)]
struct Client {
    program: Vec<Action>,
    held: Option<Held>,
    /// What is under way, and what will be answered.
    call: Option<(u64, Call, Option<Answer>)>,
}

impl<'r> Simulation<'r> {
    fn new(runner: &'r mut TestRunner) -> Self {
        let programs = programs().new_tree(runner).unwrap().current();
        let client = |program| Client { program, ..Client::default() };
        Self {
            runner,
            clients: programs.into_iter().map(client).collect(),
            rules: Rules::default(),
            history: History::at(0),
            tokens: Vec::new(),
            lost: Vec::new(),
        }
    }

    fn run(mut self) -> History {
        let is_busy = |client: &Client| client.call.is_some() || !client.program.is_empty();
        while self.clients.iter().any(is_busy) {
            if self.one_in(4) && !self.lost.is_empty() {
                let index = self.below(self.lost.len());
                let (number, call) = self.lost.swap_remove(index);
                self.apply(number, call);
            }
            let client = self.below(self.clients.len());
            match self.clients[client].call.take() {
                None => self.asks(client),
                Some((number, call, None)) => {
                    let answer = self.apply(number, call);
                    self.clients[client].call = Some((number, call, Some(answer)));
                }
                Some((number, call, Some(answer))) => {
                    if let (Call::Claim { key, print, retain, .. }, Answer::Acquired { .. }) =
                        (call, &answer)
                    {
                        let held = Held { lease: number, key, print, retain };
                        self.clients[client].held = Some(held);
                    }
                    self.history.is_told(number, vec![Some(answer)]);
                }
            }
        }
        self.history
    }

    fn asks(&mut self, client: usize) {
        let is_alone =
            self.lost.is_empty() && self.clients.iter().all(|other| other.call.is_none());
        let is_settled = self.history.ops.iter().all(|op| op.over.is_some() || op.is_void);
        let Some(Action { what, trouble, .. }) = self.clients[client].program.pop() else { return };
        let call = match what {
            What::Call(call) => Some(call),
            What::Act(act) => self.clients[client].held.and_then(|held| act.by(held)),
            What::List(_) => Some(Call::List(K::NorthA)),
            What::Purge(_) => Some(Call::Purge(K::NorthA)),
            // A call goes by one time.
            What::Advance(by) => {
                if is_alone && is_settled {
                    self.history.clock_is(self.history.now() + by);
                }
                None
            }
        };
        let Some(call) = call else { return };
        let number = self.history.asks(client, &[call], None);
        match trouble {
            Trouble::None => self.clients[client].call = Some((number, call, None)),
            Trouble::Fail => self.history.is_void(number),
            Trouble::Lose | Trouble::Cancel(_) => self.lost.push((number, call)),
        }
    }

    /// The call takes effect.
    fn apply(&mut self, number: u64, call: Call) -> Answer {
        let answer = self.rules.apply(call, number, self.history.now());
        if let Answer::Acquired { lease, .. } = answer {
            self.tokens.push((lease, 1_000 + self.tokens.len() as u64));
        }
        let token = |lease| self.tokens.iter().find(|(of, _)| *of == lease).map_or(0, |(_, t)| *t);
        answer.renamed(token)
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn below(&mut self, count: usize) -> usize {
        below(self.runner, count)
    }
}

fn below(runner: &mut TestRunner, count: usize) -> usize {
    (0..count).new_tree(runner).unwrap().current()
}

/// Changes an answer into one that another such call was told, or that is near it; whether it did.
fn change(history: &mut History, runner: &mut TestRunner) -> bool {
    let answered: Vec<_> =
        (0..history.ops.len()).filter(|number| history.ops[*number].answer.is_some()).collect();
    if answered.is_empty() {
        return false;
    }
    let number = answered[below(runner, answered.len())];
    let call = history.ops[number].call;
    let is_like = |other: &&usize| discriminant(&history.ops[**other].call) == discriminant(&call);
    let alike: Vec<_> = answered.iter().filter(is_like).collect();
    let other = *alike[below(runner, alike.len())];
    let answer = match other == number {
        true => near(history.ops[number].answer.clone().unwrap()),
        false => history.ops[other].answer.clone().unwrap(),
    };
    let is_changed = history.ops[number].answer.as_ref() != Some(&answer);
    history.ops[number].answer = Some(answer);
    is_changed
}

fn near(answer: Answer) -> Answer {
    match answer {
        Answer::Created(reply) => Answer::Replayed(reply),
        Answer::Replayed(Reply::Count(count)) => Answer::Replayed(Reply::Count(count + 1)),
        Answer::Replayed(reply) => Answer::Created(reply),
        Answer::Conflict => Answer::Invalid,
        Answer::Completed(_) | Answer::Renewed { .. } | Answer::Released => Answer::Lost,
        Answer::Lost => Answer::Released,
        Answer::MarkedFirst => Answer::MarkedAgain,
        Answer::MarkedAgain => Answer::MarkedFirst,
        Answer::Processed(processed) => Answer::Processed(!processed),
        Answer::Receipt(Some(_)) => Answer::Receipt(None),
        Answer::Forgotten(there) => Answer::Forgotten(!there),
        Answer::Value(value) => Answer::Value(Some(value.unwrap_or(0) + 1)),
        Answer::Listed(Some(_)) => Answer::Listed(None),
        Answer::Purged(removed) => Answer::Purged(!removed),
        other => other,
    }
}
