//! The scripts, what they are given and what they answer.

use std::sync::LazyLock;

use bytes::Bytes;
use idem_core::{Draft, DraftToken, Moment, Record, Span, Timestamp, Token};
use redis::{Cmd, Value};

use crate::names;

/// Reads. Refused by a replica, whose answers may be of yesterday; not for want of memory.
pub(crate) static LOOK: LazyLock<Script> =
    LazyLock::new(|| Script::new("#!lua flags=allow-oom", include_str!("look.lua")));

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
        let source = format!("{first_line}\n{body}");
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
    pub(crate) expected: Option<Vec<u8>>,
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
    /// Removes `record`, if it is still there.
    pub(crate) fn removal(name: &'c [u8], record: &Record) -> Self {
        Self {
            record: name,
            expected: Some(record.to_head()),
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

    /// Adds everything after the script. The nonce comes back in the answer; after the time `not_after` of the
    /// server's it does nothing.
    pub(crate) fn fill(&self, nonce: u64, not_after: Timestamp, command: &mut Cmd) {
        command
            .arg(2 + self.reads.len() + self.writes.len())
            .arg(self.record)
            .arg(names::token_beside(self.record));
        for (name, _) in self.reads.iter().chain(&self.writes) {
            command.arg(name);
        }
        command.arg(nonce).arg(not_after.as_millis());
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
            for unused in ["-", "-", "-", "-", "1", "0", ""] {
                command.arg(unused);
            }
            return;
        };
        for moment in [draft.created_at, draft.ends_at, draft.keep_until] {
            match moment {
                Moment::Never => command.arg("-"),
                Moment::At(time) => command.arg(time.as_millis()),
                Moment::Now => command.arg("+0"),
                Moment::In(span) => command.arg(format!("+{}", span.as_millis())),
            };
        }
        match draft.token {
            DraftToken::None => command.arg("-"),
            DraftToken::Kept(token) => command.arg(token.as_u64()),
            DraftToken::Next => command.arg("next"),
        };
        command.arg(draft.version).arg(draft.checksum).arg(&draft.rest[..]);
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
    /// Something had changed; this is the record now.
    Stale { now: Timestamp, record: Option<Bytes> },
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

/// The answer of `apply.lua`; none if it is the answer to another command.
pub(crate) fn applied(answer: Value, nonce: u64) -> Option<Applied> {
    if let Value::BulkString(created) = &answer {
        return self::created(created, nonce);
    }
    let mut fields = fields(answer, nonce)?;
    let status = text(fields.next()??)?;
    let now = time(fields.next()??)?;
    Some(match &*status {
        "done" => {
            let token = fields.next().flatten().and_then(text);
            Applied::Done { now, token: token.and_then(|t| Token::from_u64(t.parse().ok()?)) }
        }
        "stale" => Applied::Stale { now, record: fields.next().flatten() },
        "late" => Applied::Late { now },
        "damaged" => Applied::Damaged,
        _ => return None,
    })
}

/// The answer that a [`Create`](crate::create::Create) is done: it says no more than what is needed.
fn created(answer: &[u8], nonce: u64) -> Option<Applied> {
    let (echo, now) = std::str::from_utf8(answer).ok()?.split_once(' ')?;
    let now = Timestamp::from_millis(now.parse().ok()?);
    (echo.parse() == Ok(nonce)).then_some(Applied::Done { now, token: None })
}

/// The answer of `look.lua`; none if it is the answer to another command.
pub(crate) fn seen(answer: Value, nonce: u64, names: usize) -> Option<Seen> {
    let mut fields = fields(answer, nonce)?;
    let now = time(fields.next()??)?;
    let record = fields.next()?;
    let values: Vec<_> = fields.collect();
    (values.len() == names).then_some(Seen { now, record, values })
}

fn fields(answer: Value, nonce: u64) -> Option<impl Iterator<Item = Option<Bytes>>> {
    let Value::Array(fields) = answer else { return None };
    let bulk = |field| match field {
        Value::BulkString(bytes) => Some(Some(Bytes::from(bytes))),
        Value::Nil => Some(None),
        _ => None,
    };
    let fields: Vec<Option<Bytes>> = fields.into_iter().map(bulk).collect::<Option<_>>()?;
    let mut fields = fields.into_iter();
    (text(fields.next()??)? == nonce.to_string()).then_some(fields)
}

fn text(bytes: Bytes) -> Option<String> {
    String::from_utf8(bytes.to_vec()).ok()
}

fn time(bytes: Bytes) -> Option<Timestamp> {
    text(bytes)?.parse().ok().map(Timestamp::from_millis)
}
