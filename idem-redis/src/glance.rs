//! A look at a record alone. It takes no script: the server answers plain commands in a third of the time.
//!
//! `GETEX` without an option reads as `GET` does, and the server takes it for a write: so a replica refuses it, and
//! so does a primary that takes no writes. It needs no memory. The time is read after the records. What was asked is
//! known by its number, as with scripts. In a cluster several servers would answer.

use bytes::Bytes;
use idem_core::Timestamp;
use redis::{Pipeline, RedisError, Value};

use crate::{
    failure::Failure,
    link::{Connection, Link},
    script::Seen,
    together::{Caller, Errand},
};

/// Looks at a record, once.
pub(crate) async fn glance(link: &Link, record: &[u8], nonce: u64) -> Result<Seen, Failure> {
    let mut connection = link.connected().await?;
    let caller = Caller::enters(&connection.glances);
    let glance = || Glance { record: record.to_vec(), nonce };
    if let Some(became) = caller.joins(link, &connection, nonce, glance).await {
        return became;
    }
    let each = look(link, &mut connection, &[record], nonce).await?;
    each.into_iter().next().unwrap_or_else(|| Err(link.misunderstood()))
}

/// A glance of a caller who is not alone.
pub(crate) struct Glance {
    record: Vec<u8>,
    nonce: u64,
}

impl Errand for Glance {
    type Outcome = Seen;

    async fn all(
        link: &Link,
        connection: &mut Connection,
        errands: &[Self],
    ) -> Result<Vec<Result<Seen, Failure>>, Failure> {
        let records: Vec<&[u8]> = errands.iter().map(|errand| &errand.record[..]).collect();
        let nonce = errands.first().map_or(0, |errand| errand.nonce);
        look(link, connection, &records, nonce).await
    }
}

async fn look(
    link: &Link,
    connection: &mut Connection,
    records: &[&[u8]],
    nonce: u64,
) -> Result<Vec<Result<Seen, Failure>>, Failure> {
    let mut commands = Pipeline::with_capacity(records.len() + 2);
    for record in records {
        commands.cmd("GETEX").arg(record);
    }
    commands.cmd("TIME").cmd("ECHO").arg(nonce);
    let answers = link.send_all(connection, &commands).await?;
    let each = seen(answers, records.len(), nonce).ok_or_else(|| link.misunderstood())?;
    Ok(each.into_iter().map(|seen| seen.map_err(|cause| link.refused(connection, cause))).collect())
}

/// What the answers say; none if they are the answers to others.
fn seen(answers: Vec<Value>, records: usize, nonce: u64) -> Option<Vec<Result<Seen, RedisError>>> {
    let mut answers = answers.into_iter();
    let found: Vec<Value> = answers.by_ref().take(records).collect();
    let (time, echo) = (answers.next()?, answers.next()?);
    if let (Value::ServerError(error), _) | (_, Value::ServerError(error)) = (&time, &echo) {
        // So were the others, most likely: each is told the reason of its own.
        let refused = |found| match found {
            Value::ServerError(own) => Err(own.into()),
            _ => Err(error.clone().into()),
        };
        return Some(found.into_iter().map(refused).collect());
    }
    if number(&echo)? != i64::try_from(nonce).ok()? {
        return None;
    }
    let now = instant(&time)?;
    let seen = |found| {
        let record = match found {
            Value::BulkString(record) => Some(Bytes::from(record)),
            Value::Nil => None,
            Value::ServerError(error) => return Some(Err(error.into())),
            _ => return None,
        };
        Some(Ok(Seen { now, record, values: Vec::new() }))
    };
    found.into_iter().map(seen).collect()
}

fn instant(time: &Value) -> Option<Timestamp> {
    let Value::Array(time) = time else { return None };
    let [seconds, micros] = &time[..] else { return None };
    let millis = number(seconds)?.checked_mul(1000)?.checked_add(number(micros)? / 1000)?;
    Some(Timestamp::from_millis(millis))
}

fn number(answer: &Value) -> Option<i64> {
    let Value::BulkString(digits) = answer else { return None };
    std::str::from_utf8(digits).ok()?.parse().ok()
}
