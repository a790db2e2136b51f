//! The scripts, what they are given and what they answer.

use std::{sync::LazyLock, vec};

use bytes::Bytes;
use idem_core::{Draft, DraftToken, Moment, Retention, Span, Timestamp, Token};
use redis::{Cmd, RedisError, Value};

use crate::names;

/// Reads. Refused by a replica, whose answers may be of yesterday; not for want of memory.
pub(crate) static LOOK: LazyLock<Script> =
    LazyLock::new(|| Script::new("#!lua flags=allow-oom", include_str!("look.lua")));

/// Applies what is a [`Create`](crate::create::Create).
pub(crate) static CREATE: LazyLock<Script> =
    LazyLock::new(|| Script::new("#!lua", include_str!("create.lua")));

/// Applies what may need memory: refused as a whole if there is none.
pub(crate) static APPLY: LazyLock<Script> =
    LazyLock::new(|| Script::new("#!lua", include_str!("apply.lua")));

/// Applies what needs none: comparing, removing.
pub(crate) static APPLY_FREELY: LazyLock<Script> =
    LazyLock::new(|| Script::new("#!lua flags=allow-oom", include_str!("apply.lua")));

/// A script and its digest.
pub(crate) struct Script {
    source: String,
    digest: String,
}

impl Script {
    /// Its first line says what the server must check before it runs (Redis 7, "Eval flags").
    pub(crate) fn new(first_line: &str, body: &str) -> Self {
        let source = format!("{first_line}\nlocal version = '{}'\n{body}", Draft::VERSION);
        let digest = redis::Script::new(&source).get_hash().to_string();
        Self { source, digest }
    }

    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    pub(crate) fn digest(&self) -> &str {
        &self.digest
    }
}

/// What becomes of the record.
#[derive(Debug)]
pub(crate) enum Becomes {
    Kept,
    Removed,
    Set(Draft),
}

/// What `apply.lua` is given, unless it is a [`Create`](crate::create::Create).
#[derive(Debug)]
pub(crate) struct Commit<'c> {
    pub(crate) record: &'c [u8],
    /// What the record must begin with; none if there must be none.
    pub(crate) expected: Option<Bytes>,
    /// From this time of the server's on, the record is not what the step proceeds on.
    pub(crate) live_until: Option<Timestamp>,
    pub(crate) becomes: Becomes,
    /// What a new token must not be below; by the server's clock if none.
    pub(crate) token_floor: Option<Token>,
    /// How long after the record may be purged the server removes it; never if none.
    pub(crate) grace: Option<Span>,
    /// What must be unchanged.
    pub(crate) reads: Vec<(Vec<u8>, Option<Bytes>)>,
    pub(crate) writes: Vec<(Vec<u8>, Option<Bytes>)>,
}

impl<'c> Commit<'c> {
    /// Removes the record with that head, if it is still there.
    pub(crate) fn removal(name: &'c [u8], head: Bytes) -> Self {
        Self {
            record: name,
            expected: Some(head),
            live_until: None,
            becomes: Becomes::Removed,
            token_floor: None,
            grace: None,
            reads: Vec::new(),
            writes: Vec::new(),
        }
    }

    /// The script that this commit is for.
    pub(crate) fn script(&self) -> &'static Script {
        let puts = self.writes.iter().any(|(_, value)| value.is_some());
        if puts || matches!(self.becomes, Becomes::Set(_)) { &APPLY } else { &APPLY_FREELY }
    }

    /// Whether it does anything but compare.
    pub(crate) fn does_something(&self) -> bool {
        !matches!(self.becomes, Becomes::Kept) || !self.writes.is_empty()
    }

    /// How many bytes it sends.
    pub(crate) fn size(&self) -> usize {
        let values = self.reads.iter().chain(&self.writes);
        let length = |(name, value): &(Vec<u8>, Option<Bytes>)| {
            name.len() + value.as_ref().map_or(0, Bytes::len)
        };
        let rest = match &self.becomes {
            Becomes::Set(draft) => draft.rest.len(),
            Becomes::Kept | Becomes::Removed => 0,
        };
        rest + values.map(length).sum::<usize>()
    }

    /// The length of its longest argument.
    pub(crate) fn longest(&self) -> usize {
        let values = self.reads.iter().chain(&self.writes);
        let values = values.map(|(_, value)| value.as_ref().map_or(0, Bytes::len));
        let rest = match &self.becomes {
            Becomes::Set(draft) => draft.rest.len(),
            Becomes::Kept | Becomes::Removed => 0,
        };
        values.fold(rest, usize::max)
    }

    /// Adds everything after the script.
    pub(crate) fn fill(&self, question: &Question, command: &mut Cmd) {
        command
            .arg(2 + self.reads.len() + self.writes.len())
            .arg(self.record)
            .arg(names::token_beside(self.record));
        for (name, _) in self.reads.iter().chain(&self.writes) {
            command.arg(name);
        }
        command.arg(question.as_bytes());
        command.arg(match self.becomes {
            Becomes::Kept => "keep",
            Becomes::Removed => "remove",
            Becomes::Set(_) => "set",
        });
        command.arg(self.expected.as_deref().unwrap_or_default());
        or_nothing(command, self.live_until.map(Timestamp::as_millis));
        command.arg(self.token_floor.map(|floor| floor.to_string()).unwrap_or_default());
        self.fill_becomes(command);
        or_nothing(command, self.grace.map(Span::as_millis));
        for values in [&self.reads, &self.writes] {
            let flag = |(_, value): &(_, Option<Bytes>)| if value.is_some() { b'1' } else { b'0' };
            command.arg(values.iter().map(flag).collect::<Vec<u8>>());
        }
        for (_, value) in self.reads.iter().chain(&self.writes) {
            if let Some(value) = value {
                command.arg(&value[..]);
            }
        }
    }

    /// The stamp of the record, and the rest of it.
    fn fill_becomes(&self, command: &mut Cmd) {
        let Becomes::Set(draft) = &self.becomes else {
            for unused in ["", "-", "-", "-", ""] {
                command.arg(unused);
            }
            return;
        };
        let start = draft.created_at;
        match start {
            Moment::At(time) => command.arg(time.as_millis()),
            _ => command.arg(""),
        };
        command.arg(later(start, draft.ends_at));
        match draft.keep {
            Retention::For(span) => command.arg(span.as_millis()),
            Retention::Forever => command.arg("-"),
        };
        match draft.token {
            DraftToken::None => command.arg("-"),
            DraftToken::Kept(token) => command.arg(token.as_u64()),
            DraftToken::Next => command.arg("next"),
        };
        command.arg(&draft.rest[..]);
    }
}

/// How many milliseconds after the start; with a plus, what is to be added to the time of the commit.
fn later(start: Moment, end: Moment) -> String {
    let millis = |time: Timestamp| i128::from(time.as_millis());
    match (start, end) {
        (_, Moment::Never) => "-".to_string(),
        (Moment::At(start), Moment::At(end)) => (millis(end) - millis(start)).to_string(),
        (Moment::At(start), Moment::Now) => format!("+{}", -millis(start)),
        (Moment::At(start), Moment::In(span)) => {
            format!("+{}", i128::from(span.as_millis()) - millis(start))
        }
        (_, Moment::In(span)) => span.as_millis().to_string(),
        // No change makes an end that is known of a start that is not.
        (_, Moment::Now | Moment::At(_)) => "0".to_string(),
    }
}

fn or_nothing(command: &mut Cmd, number: Option<i64>) {
    match number {
        Some(number) => command.arg(number),
        None => command.arg(""),
    };
}

/// What `apply.lua` answers.
#[derive(Debug)]
pub(crate) enum Applied {
    /// It is done, with this token if it was to be the next one.
    Done { now: Timestamp, token: Option<Token> },
    /// Something had changed: this is the record now, and the place of the value among what was read, if it was one.
    Stale { now: Timestamp, record: Option<Bytes>, read: Option<usize> },
    /// It came after its time, and did nothing.
    Late { now: Timestamp },
    /// The last token of the tenant is no number, and nothing was done.
    Damaged,
}

impl Applied {
    /// The server's time, if it said.
    pub(crate) fn now(&self) -> Option<Timestamp> {
        match self {
            Self::Done { now, .. } | Self::Stale { now, .. } | Self::Late { now } => Some(*now),
            Self::Damaged => None,
        }
    }
}

/// What `look.lua` answers.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) now: Timestamp,
    pub(crate) record: Option<Bytes>,
    pub(crate) values: Vec<Option<Bytes>>,
}

/// What identifies a command, and comes back in the answer.
#[derive(Debug)]
pub(crate) struct Question(String);

impl Question {
    /// Of what must do nothing after the time `not_after` of the server's, which its first digits say: thirteen, as
    /// many as the server's time has until the year 2286. Then follows what else there is to say, and the nonce.
    pub(crate) fn until(not_after: Timestamp, nonce: u64, more: &str) -> Self {
        let not_after = not_after.as_millis().clamp(0, 9_999_999_999_999).to_string();
        let mut question = "0".repeat(13 - not_after.len());
        question.reserve(64 + more.len());
        for part in [&not_after, more, " ", &nonce.to_string()] {
            question.push_str(part);
        }
        Self(question)
    }

    /// Of what does nothing.
    pub(crate) fn plain(nonce: u64) -> Self {
        Self(nonce.to_string())
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The answer to this question; none if it is the answer to another.
    pub(crate) fn answer(&self, answer: Value) -> Option<Answer> {
        let (head, rest) = match answer {
            Value::BulkString(head) => (head, Vec::new().into_iter()),
            Value::Array(fields) => {
                let mut fields = fields.into_iter();
                let Value::BulkString(head) = fields.next()? else { return None };
                (head, fields)
            }
            _ => return None,
        };
        let head = std::str::from_utf8(head.strip_prefix(self.as_bytes())?).ok()?;
        let (status, now) = head.strip_prefix(' ')?.split_once(' ')?;
        let status = match status {
            "done" => Status::Done,
            "stale" => Status::Stale,
            "late" => Status::Late,
            "damaged" => Status::Damaged,
            "seen" => Status::Seen,
            _ => return None,
        };
        let now = Timestamp::from_millis(now.parse().ok()?);
        Some(Answer { status, now, rest })
    }
}

/// An answer of a script.
pub(crate) struct Answer {
    status: Status,
    now: Timestamp,
    rest: vec::IntoIter<Value>,
}

enum Status {
    Done,
    Stale,
    Late,
    Damaged,
    Seen,
}

impl Answer {
    /// What became of a commit; none if that is no answer to one.
    pub(crate) fn applied(mut self) -> Option<Applied> {
        let now = self.now;
        Some(match self.status {
            Status::Done => {
                let token = self.rest.next().and_then(|token| number(&bulk(token)??));
                Applied::Done { now, token: token.and_then(Token::from_u64) }
            }
            // The place of the entry, what there is, and perhaps the place of a read.
            Status::Stale => {
                let record = bulk(self.rest.nth(1)?)?;
                let read = match self.rest.next() {
                    Some(field) => Some(place(&field)?),
                    None => None,
                };
                Applied::Stale { now, record, read }
            }
            Status::Late => Applied::Late { now },
            Status::Damaged => Applied::Damaged,
            Status::Seen => return None,
        })
    }

    /// What became of each of so many creates; none if that is no answer to them.
    pub(crate) fn each(mut self, count: usize) -> Option<Vec<Result<Applied, RedisError>>> {
        let now = self.now;
        let applied = |_| match self.status {
            Status::Late => Some(Ok(Applied::Late { now })),
            Status::Done | Status::Stale => Some(Ok(Applied::Done { now, token: None })),
            Status::Damaged | Status::Seen => None,
        };
        let mut each: Vec<_> = (0..count).map(applied).collect::<Option<_>>()?;
        while let Some(entry) = self.rest.next() {
            *each.get_mut(place(&entry)?)? = match self.rest.next()? {
                Value::ServerError(error) => Err(error.into()),
                found => Ok(Applied::Stale { now, record: bulk(found)?, read: None }),
            };
        }
        Some(each)
    }

    /// What there is; none if that is no answer to a look.
    pub(crate) fn seen(self, names: usize) -> Option<Seen> {
        let Status::Seen = self.status else { return None };
        let mut fields = self.rest.map(bulk);
        let record = fields.next()??;
        let values: Vec<_> = fields.collect::<Option<_>>()?;
        (values.len() == names).then_some(Seen { now: self.now, record, values })
    }
}

/// What a field holds, if anything; none if it is no text.
fn bulk(field: Value) -> Option<Option<Bytes>> {
    match field {
        Value::BulkString(bytes) => Some(Some(bytes.into())),
        Value::Nil => Some(None),
        _ => None,
    }
}

fn place(field: &Value) -> Option<usize> {
    let Value::Int(place) = field else { return None };
    usize::try_from(*place).ok()
}

fn number(bytes: &[u8]) -> Option<u64> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}
