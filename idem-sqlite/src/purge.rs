//! Removing what may be purged, a part at a time, so that writers need not wait long.

use std::time::{Duration, Instant};

use idem_core::{Error, ErrorKind, Key, Purged, Timestamp};
use rusqlite::types::Value;

use crate::{
    engine::Engine,
    failure::{failed, is_refused},
    record::key_of_row,
    tables::Tables,
    writer::Writer,
};

/// So many rows are looked at in one transaction.
const PART: usize = 500;

/// No part begins another row after so long: a row that others refer to may take a while.
const LONGEST: Duration = Duration::from_millis(20);

/// Removes at most `limit` records that may be purged.
pub(crate) async fn purge(engine: &Engine, limit: usize) -> Result<Purged, Error> {
    let (mut removed, mut after, mut alone) = (0, Place::start(), 0_usize);
    while removed < limit {
        let looks = if alone > 0 { 1 } else { PART };
        let part = match remove(engine, limit - removed, looks, after.clone()).await {
            // That a row of the user's refers to one may show when the transaction ends, or end it: then each goes
            // alone, and that one stays.
            Err(error) if matches!(error.kind(), ErrorKind::Effect) => {
                if looks > 1 {
                    alone = PART;
                    continue;
                }
                pass(engine, after.clone()).await.map(|next| Part { removed: 0, next })
            }
            part => part,
        };
        let part = match part {
            // It fails the next purge as well, which can say that nothing was done.
            Err(_) if removed > 0 => return Ok(Purged::new(removed, true)),
            part => part?,
        };
        removed += part.removed;
        alone = alone.saturating_sub(1);
        match part.next {
            Some(next) => after = next,
            None => return Ok(Purged::new(removed, false)),
        }
    }
    Ok(Purged::new(removed, true))
}

async fn remove(engine: &Engine, limit: usize, looks: usize, after: Place) -> Result<Part, Error> {
    let work = move |writer: &mut Writer| {
        writer.transact(|tables, now| tables.purge(now, limit, looks, &after))
    };
    engine.call(work).await
}

/// Where it goes on after the next record that may be purged.
async fn pass(engine: &Engine, after: Place) -> Result<Option<Place>, Error> {
    let work =
        move |writer: &mut Writer| writer.transact(|tables, now| tables.next_due(now, &after));
    engine.call(work).await
}

/// A row that was looked at, by what the rows are ordered by; whatever there is, a damaged row too.
#[derive(Clone)]
struct Place([Value; 5]);

impl Place {
    /// Before the first.
    fn start() -> Self {
        let text = || Value::Text(String::new());
        Self([Value::Integer(i64::MIN), text(), text(), text(), text()])
    }
}

/// What a part of a purge did.
struct Part {
    removed: usize,
    /// Where the next one goes on; none at the end.
    next: Option<Place>,
}

/// A row that says that it may go.
struct Due {
    place: Place,
    /// An error if it is none.
    key: Result<Key, Error>,
}

impl Tables<'_> {
    /// Removes at most `limit` of the next `looks` records that may be purged.
    ///
    /// Each is looked at once more by its key. What is damaged stays, and so does what a damaged order leads to: neither
    /// is a reason for a new run. So does what a row of the user's refers to. What shows only when the transaction ends,
    /// or ends it, fails the part.
    fn purge(
        &self,
        now: Timestamp,
        limit: usize,
        looks: usize,
        after: &Place,
    ) -> Result<Part, Error> {
        let due = self.due(now, looks, after)?;
        let (count, start) = (due.len(), Instant::now());
        let mut part = Part { removed: 0, next: None };
        for (number, Due { place, key }) in due.into_iter().enumerate() {
            part.removed += usize::from(self.remove_if_due(key, now)?);
            let is_last = number + 1 == count;
            if part.removed == limit || is_last || start.elapsed() > LONGEST {
                part.next = (!is_last || count == looks).then_some(place);
                break;
            }
        }
        Ok(part)
    }

    /// The place of the next record that may be purged.
    fn next_due(&self, now: Timestamp, after: &Place) -> Result<Option<Place>, Error> {
        Ok(self.due(now, 1, after)?.pop().map(|due| due.place))
    }

    /// Removes a record if it may go; whether it did.
    fn remove_if_due(&self, key: Result<Key, Error>, now: Timestamp) -> Result<bool, Error> {
        let record = key.and_then(|key| Ok(self.record(&key)?.map(|record| (key, record))));
        match record {
            Ok(Some((key, record))) if record.is_purgeable(now) => {
                match self.set_record(&key, Some(&record), None) {
                    Ok(()) => Ok(true),
                    // A trigger of the user's may have ended the transaction.
                    Err(error) if is_refused(&error) && self.connection.is_autocommit() => {
                        Err(Error::nothing_done(ErrorKind::Effect).with_source(error))
                    }
                    Err(error) if is_refused(&error) => Ok(false),
                    Err(error) => Err(failed(error)),
                }
            }
            Err(error) if !matches!(error.kind(), ErrorKind::Damaged { .. }) => Err(error),
            _ => Ok(false),
        }
    }

    /// At most `looks` rows whose times say that they may be purged.
    fn due(&self, now: Timestamp, looks: usize, after: &Place) -> Result<Vec<Due>, Error> {
        let looks = i64::try_from(looks).unwrap_or(i64::MAX);
        let [at, kind, tenant, operation, key] = &after.0;
        let mut due = self.prepare(&self.sql.due).map_err(failed)?;
        let mut rows = due
            .query((now.as_millis(), looks, at, kind, tenant, operation, key))
            .map_err(failed)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(failed)? {
            let value = |column: usize| row.get::<_, Value>(column).map_err(failed);
            let place = Place([value(4)?, value(0)?, value(1)?, value(2)?, value(3)?]);
            found.push(Due { place, key: key_of_row(row, 0) });
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;
    use crate::{schema::create_tables, sql::Sql};

    /// As many receipts as that have expired, in pairs of the same time, each of which a row of the user's refers to.
    fn kept(count: usize) -> Connection {
        let mut connection = Connection::open_in_memory().unwrap();
        create_tables(&mut connection).unwrap();
        connection
            .execute_batch(
                "PRAGMA foreign_keys = ON;
                 CREATE TABLE links (kind TEXT, tenant TEXT, operation TEXT, key TEXT,
                 FOREIGN KEY (kind, tenant, operation, key) REFERENCES idem_records);
                 CREATE INDEX of_links ON links (kind, tenant, operation, key)",
            )
            .unwrap();
        for number in 0..count {
            let insert = "INSERT INTO idem_records (kind, tenant, operation, key, state, attempt, created_at, expires_at, result)
                          VALUES ('request', 't', 'o', ?1, 'completed', ?2, 1, ?3, 'null')";
            let attempt = [7_u8; 16];
            let row = (number.to_string(), attempt, 10 + number as i64 / 2);
            connection.execute(insert, row).unwrap();
        }
        connection
            .execute("INSERT INTO links SELECT kind, tenant, operation, key FROM idem_records", [])
            .unwrap();
        connection.execute_batch("BEGIN").unwrap();
        connection
    }

    #[test]
    fn a_part_ends_however_many_stay_and_the_next_goes_on_after_it() {
        let count = 2 * PART + 1;
        let connection = kept(count);
        connection.execute("DELETE FROM links WHERE key = ?1", [(count - 1).to_string()]).unwrap();
        let tables = Tables { connection: &connection, sql: &Sql::new() };
        let now = Timestamp::from_millis(1_000_000);
        let (mut after, mut removed, mut parts) = (Place::start(), 0, 0);
        loop {
            let part = tables.purge(now, 10, PART, &after).unwrap();
            removed += part.removed;
            parts += 1;
            match part.next {
                Some(next) => after = next,
                None => break,
            }
        }
        assert_eq!(removed, 1, "the one that nothing refers to");
        // A slow machine takes more of them.
        assert!(parts >= 3, "{parts}");
    }

    #[test]
    fn each_is_passed_once_also_of_those_with_one_time() {
        let connection = kept(5);
        let tables = Tables { connection: &connection, sql: &Sql::new() };
        let now = Timestamp::from_millis(1_000_000);
        let mut after = Place::start();
        let mut keys = Vec::new();
        while let Some(next) = tables.next_due(now, &after).unwrap() {
            keys.push(next.0[4].clone());
            after = next;
        }
        let all: Vec<_> = (0..5).map(|number| Value::Text(number.to_string())).collect();
        assert_eq!(keys, all);
    }
}
