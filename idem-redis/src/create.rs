//! The most frequent commit: a receipt under a free key, with values to put. `create.lua` does it in half the time
//! of others.

use bytes::Bytes;
use idem_core::{Draft, DraftToken, Moment, Span};
use redis::Cmd;

use crate::script::{Becomes, Commit};

/// How many values it puts at most: they are counted by one character.
const MOST_PUTS: usize = 64;

/// The server counts so many milliseconds from now on, and no double of a script is near.
const LONGEST: i64 = 1 << 52;

/// What `create.lua` is given for a commit of this kind.
pub(crate) struct Create<'c> {
    record: &'c [u8],
    puts: Vec<(&'c [u8], &'c Bytes)>,
    /// The record; without its beginning if the server stamps it.
    stored: Vec<u8>,
    /// How long it stays on the server, in milliseconds, if it goes.
    stay: Option<i64>,
}

impl<'c> Create<'c> {
    /// That commit, if it is of this kind.
    pub(crate) fn of(commit: &'c Commit<'_>) -> Option<Self> {
        let Becomes::Set(draft) = &commit.becomes else { return None };
        let is_plain = commit.expected.is_none()
            && commit.live_until.is_none()
            && commit.reads.is_empty()
            && commit.writes.len() <= MOST_PUTS
            && draft.token == DraftToken::None
            && draft.keep_until == Moment::Never;
        if !is_plain {
            return None;
        }
        let puts = commit.writes.iter().map(|(name, value)| Some((&name[..], value.as_ref()?)));
        let puts = puts.collect::<Option<_>>()?;
        let stay = stay(draft, commit.grace);
        Some(Self { record: commit.record, puts, stored: stored(draft)?, stay })
    }

    /// What its question says besides: how many values it puts.
    pub(crate) fn count(&self) -> char {
        char::from(b'0' + self.puts.len() as u8)
    }

    /// How many keys it has.
    pub(crate) fn keys(&self) -> usize {
        1 + self.puts.len()
    }

    /// Adds its keys.
    pub(crate) fn fill_keys(&self, command: &mut Cmd) {
        command.arg(self.record);
        for (name, _) in &self.puts {
            command.arg(name);
        }
    }

    /// Adds its other arguments.
    pub(crate) fn fill_arguments(&self, command: &mut Cmd) {
        command.arg(&self.stored);
        match self.stay {
            Some(stay) => command.arg(stay),
            None => command.arg(""),
        };
        for (_, value) in &self.puts {
            command.arg(&value[..]);
        }
    }

    /// Its keys and its other arguments, to be sent with those of others.
    pub(crate) fn parts(&self) -> [Cmd; 2] {
        let mut parts = [
            Cmd::with_capacity(self.keys(), self.size()),
            Cmd::with_capacity(1 + self.keys(), self.size()),
        ];
        self.fill_keys(&mut parts[0]);
        self.fill_arguments(&mut parts[1]);
        parts
    }

    /// About how many bytes it sends.
    pub(crate) fn size(&self) -> usize {
        let puts = self.puts.iter().map(|(name, value)| name.len() + value.len());
        self.record.len() + self.stored.len() + puts.sum::<usize>()
    }
}

/// None if it takes another script to store it.
fn stored(draft: &Draft) -> Option<Vec<u8>> {
    match (draft.created_at, draft.ends_at) {
        (Moment::Now, Moment::Never) => Some([b" - - - - ", &draft.rest[..]].concat()),
        (Moment::Now, Moment::In(life)) => {
            let life = life.as_millis().to_string();
            let life = life.as_bytes();
            Some([b" ", life, b" ", life, b" - - ", &draft.rest[..]].concat())
        }
        _ => draft.to_bytes(),
    }
}

/// What the server cannot count to stays until it is purged, and so does what ends by another clock.
fn stay(draft: &Draft, grace: Option<Span>) -> Option<i64> {
    let life = match (draft.created_at, draft.ends_at) {
        (_, Moment::In(life)) => life.as_millis(),
        (Moment::At(start), Moment::At(end)) => end.as_millis().checked_sub(start.as_millis())?,
        _ => return None,
    };
    let stay = life.checked_add(grace?.as_millis())?;
    (1..LONGEST).contains(&stay).then_some(stay)
}
