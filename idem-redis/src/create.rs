//! The most frequent commit: a receipt under a free key, with values to put. `apply.lua` does it in half the time
//! of others.

use bytes::Bytes;
use idem_core::{Draft, DraftToken, Moment, Span, Timestamp};
use redis::Cmd;

use crate::script::{Becomes, Commit};

/// A script makes text of numbers below 10^14 without loss: so many milliseconds leave room for its clock.
const LONGEST: i64 = 10_000_000_000_000;

/// The server counts an expiry no further.
const MOST_EXACT: i64 = 1 << 53;

/// What `apply.lua` is given for a commit of this kind.
pub(crate) struct Create<'c> {
    record: &'c [u8],
    puts: Vec<(&'c [u8], &'c Bytes)>,
    stored: Stored<'c>,
}

/// What becomes of the record.
enum Stored<'c> {
    /// It is ready, and goes at that time.
    Stamped { bytes: Vec<u8>, gone_at: Option<i64> },
    /// The server stamps it. How long it lives, and how long it stays, if not for ever.
    Drafted { draft: &'c Draft, spans: Option<(i64, i64)> },
}

impl<'c> Create<'c> {
    /// That commit, if it is of this kind.
    pub(crate) fn of(commit: &'c Commit<'_>) -> Option<Self> {
        let Becomes::Set(draft) = &commit.becomes else { return None };
        let is_plain = commit.expected.is_none()
            && commit.live_until.is_none()
            && commit.reads.is_empty()
            && draft.token == DraftToken::None
            && draft.keep_until == Moment::Never;
        if !is_plain {
            return None;
        }
        let puts = commit.writes.iter().map(|(name, value)| Some((&name[..], value.as_ref()?)));
        let puts = puts.collect::<Option<_>>()?;
        Some(Self { record: commit.record, puts, stored: stored(draft, commit.grace)? })
    }

    /// Adds everything after the script, as [`Commit::fill`] does.
    pub(crate) fn fill(&self, nonce: u64, not_after: Timestamp, command: &mut Cmd) {
        command.arg(1 + self.puts.len()).arg(self.record);
        for (name, _) in &self.puts {
            command.arg(name);
        }
        command.arg(nonce).arg(not_after.as_millis()).arg("create");
        match &self.stored {
            Stored::Stamped { bytes, gone_at } => {
                command.arg(&bytes[..]).arg(or_nothing(*gone_at)).arg("").arg("").arg("");
            }
            Stored::Drafted { draft, spans } => {
                let (life, stay) = spans.unzip();
                command.arg(&draft.rest[..]).arg(or_nothing(stay)).arg(draft.version);
                command.arg(draft.checksum).arg(or_nothing(life));
            }
        }
        for (_, value) in &self.puts {
            command.arg(&value[..]);
        }
    }
}

fn or_nothing(number: Option<i64>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}

/// None if it takes the rest of the script to store it.
fn stored(draft: &Draft, grace: Option<Span>) -> Option<Stored<'_>> {
    if let Some(bytes) = draft.to_bytes() {
        let gone_at = draft.purge_at(Timestamp::from_millis(0)).zip(grace);
        let gone_at = gone_at.map(|(at, grace)| at.as_millis().saturating_add(grace.as_millis()));
        // What the server cannot count to stays until it is purged.
        let gone_at = gone_at.filter(|at| (1..MOST_EXACT).contains(at));
        return Some(Stored::Stamped { bytes, gone_at });
    }
    match (draft.created_at, draft.ends_at) {
        (Moment::Now, Moment::Never) => Some(Stored::Drafted { draft, spans: None }),
        (Moment::Now, Moment::In(life)) => {
            let stay = life.as_millis().checked_add(grace?.as_millis())?;
            let spans = Some((life.as_millis(), stay));
            (stay < LONGEST).then_some(Stored::Drafted { draft, spans })
        }
        _ => None,
    }
}
