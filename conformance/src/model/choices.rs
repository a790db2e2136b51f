//! What callers may ask for, at random: few keys and short spans, so that calls meet.

use proptest::{
    collection::vec,
    prelude::*,
    sample::select,
    strategy::Union,
    test_runner::{RngAlgorithm, TestRng},
};

use super::calls::{Call, Effect, Held, K, KEYS, Millis, NAMES, Name, OWNERS, Print, Retain};

/// What the holder of a lease does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Complete(u64),
    CompleteWith(Effect),
    Renew(Millis),
    Release,
    End,
    Drop,
    Abandon,
}

impl Act {
    pub(super) fn is_drop(self) -> bool {
        self == Self::Drop
    }

    /// The call that this holder makes; none if it leaves its lease to the end.
    pub(super) fn by(self, held: Held) -> Option<Call> {
        match self {
            Self::Complete(count) => Some(Call::Complete(held, count)),
            Self::CompleteWith(effect) => Some(Call::CompleteWith(held, effect)),
            Self::Renew(lease) => Some(Call::Renew(held, lease)),
            Self::Release => Some(Call::Release(held)),
            Self::End | Self::Drop => Some(Call::End(held)),
            Self::Abandon => None,
        }
    }
}

/// What befalls a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    None,
    /// It does not reach the store.
    Fail,
    /// Its answer is lost.
    Lose,
    /// Whoever waits for it goes away when it has been polled so often.
    Cancel(usize),
}

/// What a client does.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    Call(Call),
    /// It acts on the lease that it has claimed last, if it holds one.
    Act(Act),
    /// Lists all, so many at a time.
    List(usize),
    /// Purges so many at most.
    Purge(usize),
    /// Moves the clock on.
    Advance(Millis),
}

/// What a client does next, after it has let others go on so often.
#[derive(Clone, Copy, Debug)]
pub(super) struct Action {
    pub(super) pauses: usize,
    pub(super) what: What,
    pub(super) trouble: Trouble,
}

/// The programs of three to five clients; the first has the clock.
pub(super) fn programs() -> impl Strategy<Value = Vec<Vec<Action>>> {
    let clock = vec(prop_oneof![3 => advance(), 2 => action()], 2..=4);
    let others = vec(vec(action(), 2..=3), 2..=4);
    (clock, others).prop_map(|(clock, mut all)| {
        all.insert(0, clock);
        all
    })
}

fn advance() -> impl Strategy<Value = Action> {
    let by = select(&[1, 9, 10, 11, 20, 30][..]);
    (by, 0..6_usize).prop_map(|(by, pauses)| Action {
        pauses,
        what: What::Advance(by),
        trouble: Trouble::None,
    })
}

fn action() -> impl Strategy<Value = Action> {
    let what = prop_oneof![
        10 => call().prop_map(What::Call),
        8 => act().prop_map(What::Act),
        1 => (1..=3_usize).prop_map(What::List),
        1 => (1..=4_usize).prop_map(What::Purge),
    ];
    let trouble = prop_oneof![
        16 => Just(Trouble::None),
        1 => Just(Trouble::Fail),
        1 => Just(Trouble::Lose),
        2 => (1..=4_usize).prop_map(Trouble::Cancel),
    ];
    (0..4_usize, what, trouble).prop_map(|(pauses, what, trouble)| {
        let what = if matches!(trouble, Trouble::Cancel(_)) { kept(what) } else { what };
        Action { pauses, what, trouble }
    })
}

/// The same, but what it leaves is never purged: if it comes into force after its run, it disturbs no other.
fn kept(what: What) -> What {
    match what {
        What::Call(Call::Execute { key, print, effect, .. }) => {
            What::Call(Call::Execute { key, print, retain: Retain::Forever, effect })
        }
        What::Call(Call::Claim { key, print, lease, refuses, .. }) => {
            What::Call(Call::Claim { key, print, retain: Retain::Forever, lease, refuses })
        }
        other => other,
    }
}

/// Any call of one who holds nothing, but for listing and purging.
pub(super) fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        8 => execute(),
        6 => claim(),
        1 => Just(Call::Mark),
        1 => Just(Call::IsProcessed),
        2 => key().prop_map(Call::Receipt),
        2 => key().prop_map(Call::Forget),
        1 => (key(), proptest::option::of(200..210_u64))
            .prop_map(|(key, count)| Call::Settle(key, count)),
        1 => key().prop_map(Call::EndHeld),
        1 => (select(&OWNERS[..]), name()).prop_map(|(owner, name)| Call::Value(owner, name)),
    ]
}

pub(super) fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => (100..110_u64).prop_map(Act::Complete),
        3 => effect().prop_map(Act::CompleteWith),
        2 => select(&SPANS[..]).prop_map(Act::Renew),
        2 => Just(Act::Release),
        1 => Just(Act::End),
        1 => Just(Act::Drop),
        1 => Just(Act::Abandon),
    ]
}

/// Round, so that ends fall together.
pub(super) const SPANS: [Millis; 3] = [10, 20, 40];

fn execute() -> impl Strategy<Value = Call> {
    let call = |(key, print, retain, effect)| Call::Execute { key, print, retain, effect };
    (key(), print(), retain(), effect()).prop_map(call)
}

fn claim() -> impl Strategy<Value = Call> {
    let lease = prop_oneof![20 => select(&SPANS[..]), 1 => Just(0)];
    let refuses = prop_oneof![5 => Just(false), 1 => Just(true)];
    let call =
        |(key, print, retain, lease, refuses)| Call::Claim { key, print, retain, lease, refuses };
    (key(), print(), retain(), lease, refuses).prop_map(call)
}

fn key() -> impl Strategy<Value = K> {
    Union::new_weighted(KEYS.map(|key| (if key == K::NorthA { 3 } else { 1 }, Just(key))).to_vec())
}

fn name() -> impl Strategy<Value = Name> {
    select(&NAMES[..])
}

fn print() -> impl Strategy<Value = Print> {
    prop_oneof![6 => Just(Some(0)), 1 => Just(Some(1)), 1 => Just(None)]
}

fn retain() -> impl Strategy<Value = Retain> {
    prop_oneof![
        12 => select(&SPANS[..]).prop_map(Retain::For),
        3 => Just(Retain::Forever),
        1 => prop_oneof![Just(Retain::Zero), Just(Retain::Overflowing)],
    ]
}

fn effect() -> impl Strategy<Value = Effect> {
    let name = name;
    prop_oneof![
        6 => name().prop_map(Effect::Add),
        3 => name().prop_map(Effect::Follow),
        1 => (name(), 50..60_u64).prop_map(|(name, value)| Effect::Put(name, value)),
        1 => name().prop_map(Effect::Delete),
        1 => name().prop_map(Effect::Refuse),
        1 => name().prop_map(Effect::Fail),
        1 => name().prop_map(Effect::Panic),
    ]
}

/// Choices of a seed.
pub(super) fn rng(seed: u64) -> TestRng {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    TestRng::from_seed(RngAlgorithm::ChaCha, &bytes)
}
