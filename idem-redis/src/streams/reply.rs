//! What the server answers; none where it is no answer to what was asked.

use bytes::Bytes;
use redis::Value;

use super::Message;

/// An entry, and how often it has been delivered.
pub(super) type Delivered = (Message, u64);

/// What `claim.lua` answers: where to go on, and what was taken over.
pub(super) fn claimed(answer: Value) -> Option<(String, Vec<Delivered>)> {
    let [cursor, taken] = array(answer)?;
    let delivered = |taken| {
        let [id, fields, deliveries] = array(taken)?;
        Some((message(id, fields)?, number(deliveries)?))
    };
    Some((text(cursor)?, list(taken)?.into_iter().map(delivered).collect::<Option<_>>()?))
}

/// What XREADGROUP answers for one stream: its new entries.
pub(super) fn read(answer: Value) -> Option<Vec<Delivered>> {
    let entries = match answer {
        Value::Nil => return Some(Vec::new()),
        // By the protocol's third version.
        Value::Map(streams) => {
            let [(_, entries)] = <[_; 1]>::try_from(streams).ok()?;
            entries
        }
        streams => {
            let [stream] = array(streams)?;
            let [_, entries] = array(stream)?;
            entries
        }
    };
    let delivered = |entry| {
        let [id, fields] = array(entry)?;
        Some((message(id, fields)?, 1))
    };
    list(entries)?.into_iter().map(delivered).collect()
}

/// What `settle.lua` answers, without the nonce.
pub(super) fn settled(answer: Value, nonce: u64) -> Option<String> {
    let [echo, found] = array(answer)?;
    (text(echo)? == nonce.to_string()).then(|| text(found))?
}

pub(super) fn text(value: Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        _ => None,
    }
}

fn message(id: Value, fields: Value) -> Option<Message> {
    let mut parts = list(fields)?.into_iter().map(bytes);
    let mut fields = Vec::with_capacity(parts.len() / 2);
    while let Some(name) = parts.next() {
        fields.push((name?, parts.next()??));
    }
    Some(Message { id: text(id)?, fields })
}

fn bytes(value: Value) -> Option<Bytes> {
    match value {
        Value::BulkString(bytes) => Some(bytes.into()),
        _ => None,
    }
}

fn number(value: Value) -> Option<u64> {
    match value {
        Value::Int(number) => number.try_into().ok(),
        _ => None,
    }
}

fn list(value: Value) -> Option<Vec<Value>> {
    match value {
        Value::Array(values) => Some(values),
        _ => None,
    }
}

fn array<const N: usize>(value: Value) -> Option<[Value; N]> {
    list(value)?.try_into().ok()
}
