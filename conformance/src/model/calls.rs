//! What callers ask and are told, in words that are no store's: keys, leases and times are small numbers and names.

use serde::{Deserialize, Serialize};

/// Milliseconds since the start of a run, or a number of them.
pub(super) type Millis = i64;

/// The number of the call that claimed a lease.
pub(super) type LeaseNo = u64;

/// The keys of a run: two of one tenant, one of another, and an event of a consumer with the first tenant's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum K {
    NorthA,
    NorthB,
    South,
    Event,
}

pub(super) const KEYS: [K; 4] = [K::NorthA, K::NorthB, K::South, K::Event];

/// The spaces that effects write into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Owner {
    North,
    South,
    Consumer,
}

pub(super) const OWNERS: [Owner; 3] = [Owner::North, Owner::South, Owner::Consumer];

impl K {
    pub(super) fn owner(self) -> Owner {
        match self {
            Self::NorthA | Self::NorthB => Owner::North,
            Self::South => Owner::South,
            Self::Event => Owner::Consumer,
        }
    }
}

/// The names of values in a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Name {
    X,
    Y,
}

pub(super) const NAMES: [Name; 2] = [Name::X, Name::Y];

/// One of the fingerprints of a run, if the request has one.
pub(super) type Print = Option<u8>;

/// How long a receipt is to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Retain {
    For(Millis),
    Forever,
    /// Refused at once.
    Zero,
    /// Refused where a run would have to be stamped: it ends after the end of time.
    Overflowing,
}

impl Retain {
    /// When what begins at `now` ends; none for never.
    pub(super) fn end(self, now: Millis) -> Result<Option<Millis>, Answer> {
        match self {
            Self::For(span) => Ok(Some(now + span)),
            Self::Forever => Ok(None),
            Self::Zero | Self::Overflowing => Err(Answer::Invalid),
        }
    }
}

/// What a run writes into its space, and returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Effect {
    /// Adds one to a count.
    Add(Name),
    /// Writes the other count and one more into this one.
    Follow(Name),
    Put(Name, u64),
    Delete(Name),
    /// Returns a refusal, and writes nothing.
    Refuse(Name),
    /// Writes, and then fails.
    Fail(Name),
    /// Writes, and then panics.
    Panic(Name),
}

/// What a key is completed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum Reply {
    Count(u64),
    Refused(u64),
    /// The result of a mark, which is nothing, and no JSON.
    #[serde(skip)]
    Mark,
}

/// A lease as its holder knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Held {
    pub(super) lease: LeaseNo,
    pub(super) key: K,
    pub(super) print: Print,
    pub(super) retain: Retain,
}

/// What a caller asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Call {
    Execute {
        key: K,
        print: Print,
        retain: Retain,
        effect: Effect,
    },
    Claim {
        key: K,
        print: Print,
        retain: Retain,
        lease: Millis,
        /// Whether it refuses to take over.
        refuses: bool,
    },
    /// Of a claim that was not answered: nobody asks for this.
    TakeBack(Held),
    Complete(Held, u64),
    CompleteWith(Held, Effect),
    Renew(Held, Millis),
    Release(Held),
    /// Also what dropping a lease does in the background.
    End(Held),
    Mark,
    IsProcessed,
    Receipt(K),
    Forget(K),
    /// With that count, or as if nothing had happened.
    Settle(K, Option<u64>),
    EndHeld(K),
    Value(Owner, Name),
    /// What the listing shows of one key.
    List(K),
    /// What a purge makes of one key.
    Purge(K),
}

impl Call {
    /// The key that it is about, if it is about one.
    pub(super) fn key(self) -> Option<K> {
        match self {
            Self::Execute { key, .. } | Self::Claim { key, .. } => Some(key),
            Self::Complete(held, _)
            | Self::CompleteWith(held, _)
            | Self::Renew(held, _)
            | Self::Release(held)
            | Self::End(held)
            | Self::TakeBack(held) => Some(held.key),
            Self::Mark | Self::IsProcessed => Some(K::Event),
            Self::Receipt(key)
            | Self::Forget(key)
            | Self::Settle(key, _)
            | Self::EndHeld(key)
            | Self::List(key)
            | Self::Purge(key) => Some(key),
            Self::Value(..) => None,
        }
    }
}

/// What a caller is told. Leases are named by their calls' numbers, or by their tokens before these are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Created(Reply),
    Replayed(Reply),
    Conflict,
    InProgress {
        until: Millis,
        retry_after: Millis,
    },
    Failed,
    Panicked,
    /// A span of time is refused.
    Invalid,
    /// The stored result is none of the type that was asked for.
    Undecodable,
    Acquired {
        lease: LeaseNo,
        until: Millis,
        took_over: Option<LeaseNo>,
    },
    Unfinished {
        lease: LeaseNo,
        ended_at: Millis,
    },
    Completed(Reply),
    Renewed {
        until: Millis,
    },
    Released,
    Ended,
    Lost,
    MarkedFirst,
    MarkedAgain,
    Processed(bool),
    Receipt(Option<Record>),
    Forgotten(bool),
    Settled(bool),
    /// The lease that was ended.
    EndedHeld(Option<LeaseNo>),
    Value(Option<u64>),
    Listed(Option<Record>),
    /// Whether the key's record was removed.
    Purged(bool),
    /// How many records a purge removed in all, and whether there may be more.
    PurgedInAll {
        removed: usize,
        more: bool,
    },
    /// Nothing was done: a failure that is not the rules' matter.
    NotDone,
    /// It may have been done, or not.
    Unknown,
    /// What no rule has a place for.
    Unexpected(String),
}

/// What is kept for a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Record {
    pub(super) print: Print,
    pub(super) created_at: Millis,
    pub(super) state: State,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum State {
    Claimed {
        lease: LeaseNo,
        took_over: Option<LeaseNo>,
        until: Millis,
        is_ended: bool,
        /// How long it is kept after its end; none for ever.
        keep: Option<Millis>,
    },
    Completed {
        result: Reply,
        expires_at: Option<Millis>,
    },
}

impl Name {
    pub(super) fn other(self) -> Self {
        match self {
            Self::X => Self::Y,
            Self::Y => Self::X,
        }
    }
}
