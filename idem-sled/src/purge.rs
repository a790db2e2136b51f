//! Purging by the expiry index.

use std::collections::BTreeSet;

use idem_core::{Error, Record, State, Timestamp};
use sled::{
    IVec,
    transaction::{ConflictableTransactionError, TransactionalTree, abort},
};
use tokio::sync::oneshot;

use crate::{
    commit::{self, Applied, EXPIRY, Faults, RECORDS, Verdict, Verdicts},
    database::Database,
    expiry::{Expiry, Group},
    failure::{Trouble, guarded},
    pending::Entry,
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
    /// Entries of the index that go, and what comes in their place.
    entries: Vec<(IVec, Option<Group>)>,
    /// Whether no more is due.
    pub(crate) all: bool,
}

impl Due {
    /// The first expiries whose time has come, at most so many.
    pub(crate) fn find(database: &Database, now: Timestamp, limit: usize) -> Result<Self, Error> {
        let mut due = Self { now, expiries: Vec::new(), entries: Vec::new(), all: false };
        let mut entries = database.expiry.iter();
        while due.expiries.len() < limit {
            let entry = guarded(|| entries.next().transpose()).map_err(Trouble::nothing_done)?;
            let Some((name, bytes)) = entry else {
                due.all = true;
                break;
            };
            // What cannot be read stays, for who can mend it.
            let Ok(group) = Group::from_bytes(&name, &bytes) else { continue };
            if group.first() > now {
                due.all = true;
                break;
            }
            let (expiries, rest) = group.split(now, limit - due.expiries.len());
            due.expiries.extend(expiries);
            due.entries.push((name, rest));
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
            let mut later = BTreeSet::new();
            let removed =
                self.expiries.iter().map(|(_, key)| self.remove(views, key, &mut later, faults));
            let verdicts: Verdicts = removed.collect();
            if verdicts.iter().any(Result::is_err) {
                return abort(verdicts);
            }
            self.replace_entries(views)?;
            commit::set_expiries(views, number, later.into_iter().collect())?;
            commit::set_batch(views, number)?;
            Ok(verdicts)
        })
    }

    fn replace_entries(
        &self,
        views: &[TransactionalTree],
    ) -> Result<(), ConflictableTransactionError<Verdicts>> {
        for (name, rest) in &self.entries {
            views[EXPIRY].remove(name)?;
            if let Some(rest) = rest {
                views[EXPIRY].insert(rest.name(), rest.to_bytes())?;
            }
        }
        Ok(())
    }

    /// Removes the record of an expiry if it is gone, or notes when it will be.
    fn remove(
        &self,
        views: &[TransactionalTree],
        key: &[u8],
        later: &mut BTreeSet<Expiry>,
        faults: &Faults,
    ) -> Result<Verdict, Error> {
        let found = guarded(|| commit::get(&views[RECORDS], key));
        let found = found.map_err(|trouble| faults.note(trouble))?;
        match found.map(|bytes| Record::from_slice(&bytes)) {
            Some(Ok(record)) if record.is_purgeable(self.now) => {
                commit::set(views, vec![(RECORDS, IVec::from(key), None)])
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
