//! The most frequent commit: a receipt under a free key, with values to put. `create.lua` does it in half the time
//! of others.

use bytes::Bytes;
use idem_core::{Draft, DraftToken, Moment, Span, Timestamp};
use redis::{Arg, Cmd};

use crate::{
    failure::Failure,
    link::{Connection, Link},
    script::{Answer, Applied, Becomes, CREATE, Commit, Question},
    together::{Caller, Errand},
};

/// How many values it puts at most: they are counted by one character.
const MOST_PUTS: usize = 64;

/// A create of more bytes goes alone.
const MOST_BYTES: usize = 16 << 10;

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
            && draft.token == DraftToken::None;
        if !is_plain {
            return None;
        }
        let puts = commit.writes.iter().map(|(name, value)| Some((&name[..], value.as_ref()?)));
        let puts = puts.collect::<Option<_>>()?;
        let stay = stay(draft, commit.grace);
        Some(Self { record: commit.record, puts, stored: stored(draft)?, stay })
    }

    /// Sends it, once. After the time `not_after` of the server's it must not come into force.
    pub(crate) async fn send(
        &self,
        link: &Link,
        nonce: u64,
        not_after: Timestamp,
    ) -> Result<Applied, Failure> {
        let mut connection = link.connected().await?;
        // In a cluster the keys of one command must lie in one slot.
        let may_join = !link.is_cluster() && self.size() <= MOST_BYTES;
        let caller = may_join.then(|| Caller::enters(&connection.creates));
        let count = char::from(b'0' + self.puts.len() as u8);
        if let Some(caller) = &caller {
            let sent = || Sent { nonce, not_after, count, size: self.size(), parts: self.parts() };
            if let Some(became) = caller.joins(link, &connection, nonce, sent).await {
                return became;
            }
        }
        let question = Question::until(not_after, nonce, count.encode_utf8(&mut [0; 1]));
        let fill = |command: &mut Cmd| {
            command.arg(self.keys());
            self.fill_keys(command);
            command.arg(question.as_bytes());
            self.fill_arguments(command);
        };
        let answer = link.eval_by(&mut connection, &CREATE, fill).await?;
        let applied = question.answer(answer).and_then(Answer::applied);
        applied.ok_or_else(|| link.misunderstood())
    }

    fn keys(&self) -> usize {
        1 + self.puts.len()
    }

    fn fill_keys(&self, command: &mut Cmd) {
        command.arg(self.record);
        for (name, _) in &self.puts {
            command.arg(name);
        }
    }

    fn fill_arguments(&self, command: &mut Cmd) {
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
    fn parts(&self) -> [Cmd; 2] {
        let mut parts = [
            Cmd::with_capacity(self.keys(), self.size()),
            Cmd::with_capacity(1 + self.keys(), self.size()),
        ];
        self.fill_keys(&mut parts[0]);
        self.fill_arguments(&mut parts[1]);
        parts
    }

    /// About how many bytes it sends.
    fn size(&self) -> usize {
        let puts = self.puts.iter().map(|(name, value)| name.len() + value.len());
        self.record.len() + self.stored.len() + puts.sum::<usize>()
    }
}

/// A create of a caller who is not alone.
pub(crate) struct Sent {
    nonce: u64,
    not_after: Timestamp,
    /// What its question says besides: how many values it puts.
    count: char,
    size: usize,
    /// Its keys, and its other arguments.
    parts: [Cmd; 2],
}

impl Errand for Sent {
    type Outcome = Applied;

    async fn all(
        link: &Link,
        connection: &mut Connection,
        errands: &[Self],
    ) -> Result<Vec<Result<Applied, Failure>>, Failure> {
        let Some(first) = errands.first() else { return Ok(Vec::new()) };
        let counts: String = errands.iter().map(|errand| errand.count).collect();
        let earliest = |until: Timestamp, errand: &Self| until.min(errand.not_after);
        let not_after = errands.iter().fold(first.not_after, earliest);
        let question = Question::until(not_after, first.nonce, &counts);
        let answer = link.send_whole(connection, &command(errands, &question)).await?;
        let each = question.answer(answer).and_then(|answer| answer.each(errands.len()));
        let each = each.ok_or_else(|| link.misunderstood())?;
        let refused = |cause| link.refused(connection, cause);
        Ok(each.into_iter().map(|applied| applied.map_err(refused)).collect())
    }
}

fn command(errands: &[Sent], question: &Question) -> Cmd {
    let keys = errands.iter().map(|errand| errand.parts[0].args_iter().len()).sum::<usize>();
    let bytes = errands.iter().map(|errand| errand.size).sum::<usize>();
    let mut command = Cmd::with_capacity(4 + 4 * keys, bytes + 256);
    command.arg("EVALSHA").arg(CREATE.digest()).arg(keys);
    append(&mut command, errands.iter().map(|errand| &errand.parts[0]));
    command.arg(question.as_bytes());
    append(&mut command, errands.iter().map(|errand| &errand.parts[1]));
    command
}

fn append<'p>(command: &mut Cmd, parts: impl Iterator<Item = &'p Cmd>) {
    for argument in parts.flat_map(Cmd::args_iter) {
        if let Arg::Simple(argument) = argument {
            command.arg(argument);
        }
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
