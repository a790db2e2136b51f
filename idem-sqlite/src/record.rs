//! A key's record as a row.

use bytes::Bytes;
use idem_core::{Error, Fingerprint, Key, Kind, Record, Retention, Span, State, Timestamp, Token};
use rusqlite::{
    Row, ToSql,
    types::{ToSqlOutput, ValueRef},
};
use uuid::Uuid;

use crate::failure::{damaged, failed};

/// The columns of a record, in the order in which [`of_row`] reads them.
pub(crate) const COLUMNS: &str =
    "state, created_at, expires_at, lease_end, token, took_over, attempt, fingerprint, result";

/// The record in a row whose first columns are [`COLUMNS`].
pub(crate) fn of_row(row: &Row<'_>) -> Result<Record, Error> {
    let time = |column| -> Result<Option<Timestamp>, Error> {
        let millis: Option<i64> = column_of(row, column)?;
        Ok(millis.map(Timestamp::from_millis))
    };
    let needed = |column: &'static str| move || damaged(format!("a record has no {column}"));
    let created_at = time(1)?.ok_or_else(needed("created_at"))?;
    let expires_at = time(2)?;
    let state: String = column_of(row, 0)?;
    let state = match state.as_str() {
        "completed" if expires_at.is_some_and(|expires_at| expires_at <= created_at) => {
            return Err(damaged("a record expires before it begins"));
        }
        "completed" => State::Completed { result: result_of(row)?, expires_at },
        "claimed" | "ended" => {
            let until = time(3)?.ok_or_else(needed("lease_end"))?;
            State::Claimed {
                token: token_of(column_of(row, 4)?)?,
                took_over: column_of::<Option<i64>>(row, 5)?
                    .map(|token| token_of(Some(token)))
                    .transpose()?,
                until,
                is_ended: state == "ended",
                keep: kept_after(until.max(created_at), expires_at)?,
            }
        }
        _ => return Err(damaged("a record has an unknown state")),
    };
    let attempt: Vec<u8> = column_of(row, 6)?;
    Ok(Record {
        fingerprint: fingerprint_of(column_of(row, 7)?)?,
        attempt: Uuid::from_slice(&attempt).map_err(|_| damaged("an attempt is no UUID"))?,
        created_at,
        state,
    })
}

/// How long a lease is kept that is kept until `expires_at`, counted from `until`.
fn kept_after(until: Timestamp, expires_at: Option<Timestamp>) -> Result<Retention, Error> {
    let Some(expires_at) = expires_at else { return Ok(Retention::Forever) };
    let keep = expires_at.as_millis().checked_sub(until.as_millis()).and_then(Span::from_millis);
    keep.map(Retention::For).ok_or_else(|| damaged("a record expires before its lease ends"))
}

/// How many [`COLUMNS`] there are.
pub(crate) const WIDTH: usize = 9;

/// That the columns after [`COLUMNS`] are those of this key.
pub(crate) fn is_of(row: &Row<'_>, key: &Key) -> Result<(), Error> {
    let parts = [key.kind().as_str(), key.tenant(), key.operation(), key.request()];
    if bears_from(row, WIDTH, parts.map(|part| ValueRef::Text(part.as_bytes())))? {
        Ok(())
    } else {
        Err(damaged("another key's record lies in the place of this one"))
    }
}

/// Whether the columns from that one on are these: the order of a damaged table may lead to another row.
pub(crate) fn bears_from<const N: usize>(
    row: &Row<'_>,
    first: usize,
    parts: [ValueRef<'_>; N],
) -> Result<bool, Error> {
    for (offset, part) in parts.into_iter().enumerate() {
        if row.get_ref(first + offset).map_err(failed)? != part {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The key in a row, from this column on: kind, tenant, operation, key.
pub(crate) fn key_of_row(row: &Row<'_>, first: usize) -> Result<Key, Error> {
    let text = |offset: usize| column_of::<String>(row, first + offset);
    let kind = Kind::from_name(&text(0)?).ok_or_else(|| damaged("a key has an unknown kind"))?;
    Key::from_parts(kind, &text(1)?, &text(2)?, &text(3)?)
        .map_err(|error| damaged("a stored key is not acceptable").with_source(error))
}

/// The same error, and whose record it is that is damaged.
pub(crate) fn damaged_at(error: Error, key: &Key) -> Error {
    error.stored_in(
        &format!("the record of {key:?}"),
        "restore it, or delete its row from idem_records to have the key run anew",
    )
}

pub(crate) fn token_of(token: Option<i64>) -> Result<Token, Error> {
    let token = token.and_then(|token| u64::try_from(token).ok()).and_then(Token::from_u64);
    token.ok_or_else(|| damaged("a token is missing or negative"))
}

fn fingerprint_of(stored: Option<Vec<u8>>) -> Result<Option<Fingerprint>, Error> {
    let Some(stored) = stored else { return Ok(None) };
    let fingerprint = Fingerprint::from_bytes(&stored);
    fingerprint.map(Some).ok_or_else(|| damaged("a fingerprint is no fingerprint"))
}

fn result_of(row: &Row<'_>) -> Result<Bytes, Error> {
    match row.get_ref(8).map_err(failed)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Ok(Bytes::copy_from_slice(bytes)),
        _ => Err(damaged("a completed record has no result")),
    }
}

pub(crate) fn column_of<T: rusqlite::types::FromSql>(
    row: &Row<'_>,
    column: usize,
) -> Result<T, Error> {
    row.get(column).map_err(|error| match error {
        rusqlite::Error::SqliteFailure(..) => failed(error),
        error => damaged("a column has the wrong type").with_source(error),
    })
}

/// A record as the values of [`COLUMNS`].
pub(crate) struct Columns<'r> {
    pub(crate) state: &'static str,
    pub(crate) created_at: i64,
    pub(crate) expires_at: Option<i64>,
    pub(crate) lease_end: Option<i64>,
    pub(crate) token: Option<i64>,
    pub(crate) took_over: Option<i64>,
    pub(crate) attempt: [u8; 16],
    pub(crate) fingerprint: Option<[u8; 33]>,
    pub(crate) result: Option<Stored<'r>>,
}

impl<'r> Columns<'r> {
    pub(crate) fn of(record: &'r Record) -> Self {
        // Tokens are below 2^63, so none of them turns negative here.
        let number = |token: Token| token.as_u64().cast_signed();
        let (state, lease_end, token, took_over) = match record.state {
            State::Completed { .. } => ("completed", None, None, None),
            State::Claimed { token, took_over, until, is_ended, .. } => {
                let state = if is_ended { "ended" } else { "claimed" };
                (state, Some(until.as_millis()), Some(number(token)), took_over.map(number))
            }
        };
        let result = match &record.state {
            State::Completed { result, .. } => Some(Stored(result)),
            State::Claimed { .. } => None,
        };
        Self {
            state,
            created_at: record.created_at.as_millis(),
            expires_at: record.gone_at().map(Timestamp::as_millis),
            lease_end,
            token,
            took_over,
            attempt: record.attempt.into_bytes(),
            fingerprint: record.fingerprint.map(|fingerprint| fingerprint.to_bytes()),
            result,
        }
    }
}

/// A result: as text where it is text, so that it reads well in the shell; else, or if it holds a NUL, at
/// which the engine's text functions would cut it, as a blob.
pub(crate) struct Stored<'r>(&'r [u8]);

impl ToSql for Stored<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let is_text = !self.0.contains(&0) && std::str::from_utf8(self.0).is_ok();
        let value = if is_text { ValueRef::Text(self.0) } else { ValueRef::Blob(self.0) };
        Ok(ToSqlOutput::Borrowed(value))
    }
}
