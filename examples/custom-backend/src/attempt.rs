//! How a step is tried: look, run on an overlay, commit if nothing that was read has changed.

use bytes::Bytes;
use idem_core::{
    Applied, Change, Key, Look, Optimistic, Overlay, Record, Space, Timestamp, Token, Values,
};
use redb::{ReadTransaction, ReadableTable, TableDefinition, WriteTransaction};

use crate::{RedbStore, Result, failed};

type Blobs = TableDefinition<'static, &'static [u8], &'static [u8]>;
/// [`Record::to_bytes`] under [`Key::to_bytes`].
pub(crate) const RECORDS: Blobs = TableDefinition::new("idem.records");
/// What effects wrote, under [`Space::to_bytes`].
pub(crate) const VALUES: Blobs = TableDefinition::new("idem.values");
/// The last fencing token.
const TOKEN: TableDefinition<(), u64> = TableDefinition::new("idem.token");

/// What an effect writes through. Only the store makes one.
pub(crate) type Tx = Overlay<InSpace>;

/// The committed values of one space.
#[derive(Debug)]
pub struct InSpace(RedbStore, Space);

impl Values for InSpace {
    fn value(&self, name: &[u8]) -> Result<Option<Bytes>> {
        self.0.read(|reader| get(reader, VALUES, &self.1.to_bytes(name)))
    }
}

/// The store as [`optimistic`] sees it; private, so that no effect can begin a transaction of its own.
pub(crate) struct Attempts<'s>(pub(crate) &'s RedbStore);

impl Optimistic for Attempts<'_> {
    type Transaction = Tx;

    async fn look(&self, key: &Key) -> Result<Look> {
        let found = self.0.read(|reader| get(reader, RECORDS, &key.to_bytes()))?;
        let record = found.as_ref().map(Record::from_bytes).transpose()?;
        Ok(Look { record, now: self.0.clock.now() })
    }

    fn begin(&self, key: &Key) -> Tx {
        Overlay::new(InSpace(self.0.clone(), key.space()))
    }

    async fn commit(&self, key: &Key, seen: &Look, tx: &Tx, change: Change) -> Result<Applied> {
        let applied = self.0.write(|reader, writer| {
            if !is_unchanged(reader, key, seen, tx)? {
                return Ok(None);
            }
            let after =
                change.stamp(seen.record.as_ref(), seen.now, || next_token(writer, seen.now))?;
            set(writer, RECORDS, &key.to_bytes(), after.as_ref().map(Record::to_bytes).as_deref())?;
            for (name, value) in tx.writes() {
                let name = tx.committed().1.to_bytes(name);
                set(writer, VALUES, &name, value.map(|value| &**value))?;
            }
            Ok(Some(Applied::Committed { after, now: seen.now }))
        })?;
        Ok(applied.unwrap_or(Applied::Stale))
    }

    async fn is_unchanged(&self, key: &Key, seen: &Look, tx: &Tx) -> Result<bool> {
        self.0.read(|reader| is_unchanged(reader, key, seen, tx))
    }
}

fn is_unchanged(reader: &ReadTransaction, key: &Key, seen: &Look, tx: &Tx) -> Result<bool> {
    let record = seen.record.as_ref().map(Record::to_bytes);
    let mut same = get(reader, RECORDS, &key.to_bytes())?.as_deref() == record.as_deref();
    for (name, read) in tx.reads() {
        same &= get(reader, VALUES, &tx.committed().1.to_bytes(name))?.as_ref() == read;
    }
    Ok(same)
}

pub(crate) fn get(reader: &ReadTransaction, table: Blobs, name: &[u8]) -> Result<Option<Bytes>> {
    let table = reader.open_table(table).map_err(failed)?;
    let found = table.get(name).map_err(failed)?;
    Ok(found.map(|value| Bytes::copy_from_slice(value.value())))
}

fn set(writer: &WriteTransaction, table: Blobs, name: &[u8], value: Option<&[u8]>) -> Result<()> {
    let mut table = writer.open_table(table).map_err(failed)?;
    let replaced = match value {
        Some(value) => table.insert(name, value),
        None => table.remove(name),
    };
    replaced.map(drop).map_err(failed)
}

fn next_token(writer: &WriteTransaction, now: Timestamp) -> Result<Token> {
    let mut table = writer.open_table(TOKEN).map_err(failed)?;
    let last = table.get(()).map_err(failed)?.map(|last| last.value());
    let next = Token::next(last.map(|last| Token::from_u64(last).unwrap_or(Token::MAX)), now)?;
    table.insert((), next.as_u64()).map_err(failed)?;
    Ok(next)
}
