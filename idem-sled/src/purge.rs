//! Purging by the expiry index.

use std::collections::BTreeSet;

use idem_core::{Error, Record, State, Timestamp};
use sled::{
    IVec,
    transaction::{ConflictableTransactionError, abort},
};
use tokio::sync::oneshot;

use crate::{
    commit::{self, Applied, Faults, Verdict, Verdicts},
    database::Database,
    expiry::{Expiry, Group},
    failure::{Trouble, guarded},
    pending::Entry,
    pieces::{self, Kind, Pieces},
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
    /// Whether no more is due.
    pub(crate) all: bool,
}

/// What is due first of all.
pub(crate) struct Due {
    now: Timestamp,
    expiries: Vec<Expiry>,
    /// Entries of the index that go, in how many pieces they are, and what comes in their place.
    entries: Vec<(IVec, usize, Option<Group>)>,
    /// Whether no more is due.
    pub(crate) all: bool,
}

impl Due {
    /// The first expiries whose time has come, at most so many.
    pub(crate) fn find(database: &Database, now: Timestamp, limit: usize) -> Result<Self, Error> {
        let mut due = Self { now, expiries: Vec::new(), entries: Vec::new(), all: false };
        let mut entries = database.expiry.iter();
        while due.expiries.len() < limit {
            let entry = guarded(|| {
                let Some((name, first)) = entries.next().transpose()? else { return Ok(None) };
                let pieces = database.follow(Kind::Expiry, &name, first)?;
                Ok::<_, sled::Error>(Some((name, pieces)))
            });
            let Some((name, pieces)) = entry.map_err(Trouble::nothing_done)? else {
                due.all = true;
                break;
            };
            let count = pieces.len();
            // What cannot be read stays, for who can mend it.
            let Ok(group) = Group::from_bytes(&name, &pieces::join(pieces)) else { continue };
            if group.first() > now {
                due.all = true;
                break;
            }
            let (expiries, rest) = group.split(now, limit - due.expiries.len());
            due.expiries.extend(expiries);
            due.entries.push((name, count, rest));
        }
        Ok(due)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.expiries.is_empty()
    }

    /// What others can see of it.
    pub(crate) fn records(&self) -> impl Iterator<Item = Entry<'_>> {
        self.expiries.iter().map(|(_, key)| Entry::Record(key))
    }

    /// Removes them, as the batch of that number.
    ///
    /// Each record is looked at again: what took an expired one's place stays, and has an expiry of its own; a lease that
    /// was prolonged is put off. One verdict for each, [`Verdict::Written`] if its record went. One that is damaged
    /// stays; if the engine fails to read one, all stay.
    pub(crate) fn apply(&self, database: &Database, number: u64) -> Applied {
        commit::transact(database, &commit::own(database), number, |views, faults| {
            let (pieces, mut later) = (Pieces(views), BTreeSet::new());
            let removed =
                self.expiries.iter().map(|(_, key)| self.remove(pieces, key, &mut later, faults));
            let verdicts: Verdicts = removed.collect();
            if verdicts.iter().any(Result::is_err) {
                return abort(verdicts);
            }
            self.replace_entries(pieces)?;
            commit::set_expiries(views, number, later.into_iter().collect())?;
            commit::set_batch(views, number)?;
            Ok(verdicts)
        })
    }

    fn replace_entries(
        &self,
        Pieces(views): Pieces<'_>,
    ) -> Result<(), ConflictableTransactionError<Verdicts>> {
        for (name, count, rest) in &self.entries {
            commit::set_group(views, name, *count, None)?;
            if let Some(rest) = rest {
                commit::set_group(views, &rest.name(), 0, Some(&rest.to_bytes()))?;
            }
        }
        Ok(())
    }

    /// Removes the record of an expiry if it is gone, or notes when it will be.
    fn remove(
        &self,
        pieces: Pieces<'_>,
        key: &[u8],
        later: &mut BTreeSet<Expiry>,
        faults: &Faults,
    ) -> Result<Verdict, Error> {
        let found = guarded(|| pieces.get(Kind::Record, key));
        let found = found.map_err(|trouble| faults.note(trouble))?;
        match found.map(|bytes| Record::from_slice(&bytes)) {
            Some(Ok(record)) if record.is_purgeable(self.now) => {
                guarded(|| pieces.replace(Kind::Record, key, None))
                    .and_then(|writes| commit::set(pieces.0, writes))
                    .map_err(|trouble| faults.note(trouble))?;
                return Ok(Verdict::Written(None));
            }
            Some(Ok(record)) if matches!(record.state, State::Claimed { .. }) => {
                later.extend(record.gone_at().map(|at| (at, key.to_vec())));
            }
            // A receipt has an expiry of its own. What cannot be read stays, for who can mend it.
            _ => {}
        }
        Ok(Verdict::Unchanged)
    }
}
