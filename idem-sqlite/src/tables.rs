//! Reading and writing idem's own tables, inside whatever transaction the connection is in.

use bytes::Bytes;
use idem_core::{Error, Key, Record, Space, Timestamp, Token};
use rusqlite::{CachedStatement, Connection, params, types::ValueRef};

use crate::{
    failure::{damaged, failed},
    record::{Columns, bears_from, column_of, damaged_at, is_of, of_row, token_of},
    sql::Sql,
};

/// Idem's tables on a connection.
#[derive(Clone, Copy)]
pub(crate) struct Tables<'c> {
    pub(crate) connection: &'c Connection,
    pub(crate) sql: &'c Sql,
}

impl<'c> Tables<'c> {
    /// One of the store's own statements.
    pub(crate) fn prepare(&self, text: &str) -> rusqlite::Result<CachedStatement<'c>> {
        #[cfg(test)]
        self.sql.fail(self.connection)?;
        self.connection.prepare_cached(text)
    }

    /// Whether the tables are those that the statements are for.
    pub(crate) fn check(&self) -> rusqlite::Result<()> {
        for text in self.sql.on_tables() {
            self.connection.prepare(text)?;
        }
        Ok(())
    }

    pub(crate) fn record(&self, key: &Key) -> Result<Option<Record>, Error> {
        let mut select = self.prepare(&self.sql.select).map_err(failed)?;
        let of_key = (key.kind().as_str(), key.tenant(), key.operation(), key.request());
        let mut rows = select.query(of_key).map_err(failed)?;
        let Some(row) = rows.next().map_err(failed)? else { return Ok(None) };
        let record = is_of(row, key).and_then(|()| of_row(row));
        record.map(Some).map_err(|error| damaged_at(error, key))
    }

    /// Writes the record in the place of the one that the transaction has read, if there was one.
    pub(crate) fn set_record(
        &self,
        key: &Key,
        before: Option<&Record>,
        record: Option<&Record>,
    ) -> rusqlite::Result<()> {
        let (kind, tenant) = (key.kind().as_str(), key.tenant());
        let (operation, request) = (key.operation(), key.request());
        let Some(record) = record else {
            let mut remove = self.prepare(&self.sql.remove)?;
            remove.execute((kind, tenant, operation, request))?;
            return Ok(());
        };
        let row = Columns::of(record);
        let write = if before.is_some() { &self.sql.update } else { &self.sql.insert };
        self.prepare(write)?.execute(params![
            kind,
            tenant,
            operation,
            request,
            row.state,
            row.created_at,
            row.expires_at,
            row.lease_end,
            row.token,
            row.took_over,
            row.attempt,
            row.fingerprint,
            row.result,
        ])?;
        Ok(())
    }

    /// Takes the next token, as part of the transaction.
    pub(crate) fn next_token(&self, now: Timestamp) -> Result<Token, Error> {
        let mut last = self.prepare(&self.sql.last_token).map_err(failed)?;
        let mut rows = last.query([]).map_err(failed)?;
        let last = rows.next().map_err(failed)?.map(|row| column_of(row, 0)).transpose()?;
        let last = token_of(last.flatten())?;
        drop(rows);
        let next = Token::next(Some(last), now)?;
        let mut set = self.prepare(&self.sql.set_token).map_err(failed)?;
        set.execute([next.as_u64().cast_signed()]).map_err(failed)?;
        Ok(next)
    }

    pub(crate) fn value(&self, space: &Space, name: &[u8]) -> Result<Option<Bytes>, Error> {
        let mut get = self.prepare(&self.sql.get).map_err(failed)?;
        let (kind, owner) = (space.kind().as_str(), space.owner());
        let mut rows = get.query((kind, owner, name)).map_err(failed)?;
        let Some(row) = rows.next().map_err(failed)? else { return Ok(None) };
        let bears = [
            ValueRef::Text(kind.as_bytes()),
            ValueRef::Text(owner.as_bytes()),
            ValueRef::Blob(name),
        ];
        if !bears_from(row, 1, bears)? {
            return Err(damaged("another value lies in the place of the one asked for"));
        }
        Ok(Some(column_of::<Vec<u8>>(row, 0)?.into()))
    }

    pub(crate) fn put(&self, space: &Space, name: &[u8], value: &[u8]) -> rusqlite::Result<()> {
        let mut put = self.prepare(&self.sql.put)?;
        put.execute((space.kind().as_str(), space.owner(), name, value))?;
        Ok(())
    }

    pub(crate) fn delete(&self, space: &Space, name: &[u8]) -> rusqlite::Result<()> {
        let mut delete = self.prepare(&self.sql.delete)?;
        delete.execute((space.kind().as_str(), space.owner(), name))?;
        Ok(())
    }
}
