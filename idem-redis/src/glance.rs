//! A look at a record alone. It takes no script: the server answers plain commands in a third of the time.
//!
//! `GETEX` without an option reads as `GET` does, and the server takes it for a write: so a replica refuses it, and
//! so does a primary that takes no writes. It needs no memory. The time is read after the record. What was asked is
//! known by its number, as with scripts. In a cluster several servers would answer.

use bytes::Bytes;
use idem_core::Timestamp;
use redis::{Pipeline, Value};

use crate::script::Seen;

/// How many commands a glance is.
pub(crate) const COMMANDS: usize = 3;

/// The commands that look at a record.
pub(crate) fn commands(record: &[u8], nonce: u64) -> Pipeline {
    let mut commands = Pipeline::with_capacity(COMMANDS);
    commands.cmd("GETEX").arg(record).cmd("TIME").cmd("ECHO").arg(nonce);
    commands
}

/// What their answers say; none if they are the answers to others.
pub(crate) fn seen(answers: Vec<Value>, nonce: u64) -> Option<Seen> {
    let [record, time, echo] = <[Value; COMMANDS]>::try_from(answers).ok()?;
    let record = match record {
        Value::BulkString(record) => Some(Bytes::from(record)),
        Value::Nil => None,
        _ => return None,
    };
    let Value::Array(time) = time else { return None };
    let [seconds, micros] = &time[..] else { return None };
    let millis = number(seconds)?.checked_mul(1000)?.checked_add(number(micros)? / 1000)?;
    let now = Timestamp::from_millis(millis);
    (number(&echo)? == i64::try_from(nonce).ok()?).then_some(Seen {
        now,
        record,
        values: Vec::new(),
    })
}

fn number(answer: &Value) -> Option<i64> {
    let Value::BulkString(digits) = answer else { return None };
    std::str::from_utf8(digits).ok()?.parse().ok()
}
