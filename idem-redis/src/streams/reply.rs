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

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn array<const N: usize>(values: [Value; N]) -> Value {
        Value::Array(values.into())
    }

    fn sent(id: &str, value: &str) -> Message {
        Message {
            id: id.to_string(),
            fields: vec![(Bytes::from("n"), Bytes::from(value.to_string()))],
        }
    }

    #[test]
    fn entries_are_read_by_either_protocol() {
        let entry = |id, value| array([bulk(id), array([bulk("n"), bulk(value)])]);
        let entries = || array([entry("1-0", "a"), entry("2-0", "b")]);
        let expected = Some(vec![(sent("1-0", "a"), 1), (sent("2-0", "b"), 1)]);
        assert_eq!(read(array([array([bulk("s"), entries()])])), expected);
        assert_eq!(read(Value::Map(vec![(bulk("s"), entries())])), expected);
        assert_eq!(read(Value::Nil), Some(Vec::new()));
    }

    #[test]
    fn what_was_taken_over_has_its_count() {
        let fields = || array([bulk("n"), bulk("a")]);
        let taken = |count| array([array([bulk("1-0"), fields(), count])]);
        let answer = |count| claimed(array([bulk("3-0"), taken(count)]));
        assert_eq!(answer(Value::Int(4)), Some(("3-0".to_string(), vec![(sent("1-0", "a"), 4)])));
        assert_eq!(answer(Value::Int(-1)), None);
        assert_eq!(answer(bulk("4")), None);
    }

    #[test]
    fn a_settlement_is_of_the_question_that_was_asked() {
        let answer = || array([bulk("7"), bulk("done")]);
        assert_eq!(settled(answer(), 7).as_deref(), Some("done"));
        assert_eq!(settled(answer(), 8), None);
    }

    #[test]
    fn an_answer_of_another_kind_is_none() {
        let odd = || {
            [
                Value::Okay,
                Value::Int(1),
                bulk("1-0"),
                array([bulk("1-0")]),
                array([bulk("0-0"), bulk("x")]),
                array([array([bulk("s"), array([Value::Nil])])]),
                array([array([bulk("s"), array([array([bulk("1-0"), Value::Nil])])])]),
                array([array([bulk("s"), array([array([bulk("1-0"), array([bulk("n")])])])])]),
                array([
                    bulk("0-0"),
                    array([array([bulk("1-0"), array([bulk("n")]), Value::Int(1)])]),
                ]),
            ]
        };
        for answer in odd() {
            assert_eq!(read(answer.clone()), None, "{answer:?}");
            assert_eq!(claimed(answer.clone()), None, "{answer:?}");
            assert_eq!(settled(answer.clone(), 7), None, "{answer:?}");
        }
        for answer in [Value::Nil, Value::Map(Vec::new())] {
            assert_eq!(claimed(answer.clone()), None);
            assert_eq!(settled(answer, 7), None);
        }
    }
}
