//! Purging by the expiry index.

use idem_core::{Error, Record, Timestamp};
use sled::transaction::{ConflictableTransactionError, TransactionalTree, abort};
use tokio::sync::oneshot;

use crate::{
    commit::{self, Applied, RECORDS, Verdict, Verdicts},
    database::Database,
    failure::{Trouble, guarded},
    names,
};

/// Asks to remove at most so many records that may be purged at `now`.
pub(crate) struct Purge {
    pub(crate) now: Timestamp,
    pub(crate) limit: usize,
    pub(crate) reply: oneshot::Sender<Result<Removed, Error>>,
}

/// How much a purge removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Removed {
    pub(crate) count: usize,
    /// Whether nothing was left to look at.
    pub(crate) all: bool,
}

/// An entry of the index: from then on this key's record may go.
pub(crate) type Expiry = (Timestamp, Vec<u8>);

/// The first entries of the index whose time has come.
pub(crate) fn due(database: &Database, now: Timestamp, limit: usize) -> Result<Vec<Expiry>, Error> {
    let names =
        guarded(|| -> sled::Result<Vec<_>> { database.expiry.iter().keys().take(limit).collect() });
    let names = names.map_err(Trouble::nothing_done)?;
    let entries = names.iter().map(|name| names::read_expiry(name));
    entries.take_while(|entry| entry.as_ref().map_or(true, |(at, _)| *at <= now)).collect()
}

/// Removes the records of these entries, as the batch of that number.
///
/// Each is looked at again: what took an expired record's place stays, and has an entry of its own. One verdict
/// for each entry, [`Verdict::Written`] if its record went.
pub(crate) fn apply(database: &Database, due: &[Expiry], number: u64) -> Applied {
    commit::transact(&commit::own(database), |views| {
        let verdicts: Verdicts = due.iter().map(|entry| remove(views, entry)).collect();
        if verdicts.iter().any(Result::is_ok) {
            commit::set_batch(views, number)?;
            return Ok(verdicts);
        }
        abort(verdicts) as Result<_, ConflictableTransactionError<_>>
    })
}

fn remove(views: &[TransactionalTree], (at, key): &Expiry) -> Result<Verdict, Error> {
    let found = guarded(|| commit::get(&views[RECORDS], key)).map_err(Trouble::nothing_done)?;
    let record = found.map(|bytes| Record::from_bytes(&bytes::Bytes::copy_from_slice(&bytes)));
    let record = record.transpose()?.filter(|record| record.purge_at() == Some(*at));
    let writes = match &record {
        Some(record) => commit::record_writes(key, Some(record), None),
        // Nobody's entry.
        None => vec![(commit::EXPIRY, names::of_expiry(*at, key).into(), None)],
    };
    commit::set(views, writes).map_err(Trouble::nothing_done)?;
    Ok(if record.is_some() { Verdict::Written(None) } else { Verdict::Unchanged })
}
