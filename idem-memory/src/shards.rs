//! The data: maps in shards, each behind a lock of its own.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{BuildHasher, Hash, RandomState},
    mem,
};

use bytes::Bytes;
use idem_core::{Cursor, Error, Filter, Key, Page, Record, Space, Timestamp};

use crate::{
    room::Room,
    sync::{RwLock, RwLockWriteGuard},
};

const SHARDS: usize = 64;

/// Records and values, spread over shards by their hashes.
pub(crate) struct Shards {
    shards: Box<[RwLock<Shard>]>,
    hasher: RandomState,
    room: Room,
}

#[derive(Default)]
pub(crate) struct Shard {
    records: HashMap<Key, Record>,
    /// When records are gone, earliest first.
    gone_at: BTreeSet<(Timestamp, Key)>,
    values: HashMap<Space, HashMap<Bytes, Bytes>>,
}

impl Shards {
    pub(crate) fn new(capacity: Option<usize>) -> Self {
        let shards = (0..SHARDS).map(|_| RwLock::default()).collect();
        Self { shards, hasher: RandomState::new(), room: Room::new(capacity) }
    }

    pub(crate) fn record(&self, key: &Key) -> Option<Record> {
        self.shards[self.of(key)].read().records.get(key).cloned()
    }

    pub(crate) fn value(&self, space: &Space, name: &[u8]) -> Option<Bytes> {
        let shard = self.shards[self.of(&(space, name))].read();
        shard.values.get(space)?.get(name).cloned()
    }

    /// The page after that key, of whole shards: one after the other, in each by the order of keys.
    ///
    /// So a page looks at one shard, and at those before the end that its limit or what it passes over sets.
    pub(crate) fn page(
        &self,
        filter: &Filter,
        after: Option<&Key>,
        limit: usize,
        now: Timestamp,
    ) -> Page {
        let first = after.map_or(0, |key| self.of(key));
        let (mut records, mut last, mut looked_at) = (Vec::new(), None, 0);
        for (index, shard) in self.shards.iter().enumerate().skip(first) {
            if looked_at - records.len() >= Filter::MAX_SKIPPED {
                return Page::new(records, last, now);
            }
            let shard = shard.read();
            let wanted = limit - records.len();
            let after = after.filter(|_| index == first);
            // One more than asked for tells whether there is a next page.
            let found = shard.first_matching(filter, after, wanted.saturating_add(1), now);
            let is_full = found.len() > wanted;
            let of_page = found.into_iter().take(wanted);
            records.extend(of_page.map(|(key, record)| (key.clone(), record.clone())));
            if is_full {
                let next = records.last().map(|(key, _)| Cursor::after(key));
                return Page::new(records, next, now);
            }
            looked_at += shard.records.len();
            // Nothing in this shard is left to show.
            last = shard.records.keys().max().map(Cursor::after).or(last);
        }
        Page::new(records, None, now)
    }

    /// Drops nothing of it, ever.
    pub(crate) fn leak(&mut self) {
        mem::forget(mem::take(&mut self.shards));
    }

    /// Returns when every atomic section that is under way has ended.
    pub(crate) fn wait(&self) {
        for shard in &self.shards {
            drop(shard.write());
        }
    }

    /// Removes at most `limit` records that may be purged at `now`.
    pub(crate) fn purge(&self, now: Timestamp, limit: usize) -> usize {
        let mut removed = 0;
        for shard in &self.shards {
            if removed == limit {
                break;
            }
            let mut shard = shard.write();
            let purged = shard.purge(now, limit - removed);
            // Under the lock, so that nobody finds the store full of what is gone.
            self.room.give_back(purged);
            removed += purged;
        }
        removed
    }

    /// Locks what belongs to `key` and to the named values of `space`, for one atomic section.
    pub(crate) fn lock<'a>(
        &self,
        key: &Key,
        space: &'a Space,
        names: impl Iterator<Item = &'a Bytes>,
    ) -> Locked<'_> {
        // In order, so that no two sections wait for each other.
        let mut wanted: BTreeSet<usize> =
            names.map(|name| self.of(&(space, name.as_ref()))).collect();
        wanted.insert(self.of(key));
        let guards = wanted.into_iter().map(|index| (index, self.shards[index].write())).collect();
        Locked { shards: self, guards }
    }

    fn of(&self, part: &impl Hash) -> usize {
        // The high bits: a map of the same hasher would use the low ones.
        (self.hasher.hash_one(part) >> 58) as usize % SHARDS
    }
}

impl Shard {
    /// The first `most` records after that key, in the order of keys, that match.
    fn first_matching(
        &self,
        filter: &Filter,
        after: Option<&Key>,
        most: usize,
        now: Timestamp,
    ) -> BTreeMap<&Key, &Record> {
        let mut first = BTreeMap::new();
        let behind = self.records.iter().filter(|(key, _)| after < Some(*key));
        for (key, record) in behind.filter(|(key, record)| filter.matches(key, record, now)) {
            if first.len() < most {
                first.insert(key, record);
            } else if let Some(last) = first.last_entry().filter(|last| key < *last.key()) {
                last.remove();
                first.insert(key, record);
            }
        }
        first
    }

    fn purge(&mut self, now: Timestamp, limit: usize) -> usize {
        let mut removed = 0;
        while removed < limit && self.gone_at.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, key)) = self.gone_at.pop_first() {
                self.records.remove(&key);
                removed += 1;
            }
        }
        removed
    }

    fn set_record(&mut self, key: &Key, after: Option<Record>) {
        let gone_at = after.as_ref().and_then(Record::gone_at);
        let before = match after {
            Some(record) => self.records.insert(key.clone(), record),
            None => self.records.remove(key),
        };
        if let Some(at) = before.as_ref().and_then(Record::gone_at) {
            self.gone_at.remove(&(at, key.clone()));
        }
        if let Some(at) = gone_at {
            self.gone_at.insert((at, key.clone()));
        }
    }

    fn set_value(&mut self, space: &Space, name: &Bytes, value: Option<&Bytes>) {
        match (value, self.values.get_mut(space)) {
            (Some(value), Some(values)) => drop(values.insert(name.clone(), value.clone())),
            (Some(value), None) => {
                let values = HashMap::from([(name.clone(), value.clone())]);
                self.values.insert(space.clone(), values);
            }
            (None, Some(values)) => {
                values.remove(name);
                if values.is_empty() {
                    self.values.remove(space);
                }
            }
            (None, None) => {}
        }
    }
}

/// The shards of one atomic section, locked.
pub(crate) struct Locked<'s> {
    shards: &'s Shards,
    guards: Vec<(usize, RwLockWriteGuard<'s, Shard>)>,
}

impl Locked<'_> {
    pub(crate) fn record(&mut self, key: &Key) -> Option<&Record> {
        self.of(key).records.get(key)
    }

    pub(crate) fn value(&mut self, space: &Space, name: &Bytes) -> Option<&Bytes> {
        self.of(&(space, name.as_ref())).values.get(space)?.get(name)
    }

    /// Sets the record and the values, or nothing if there is no room for them.
    pub(crate) fn apply<'a>(
        &mut self,
        key: &Key,
        after: Option<Record>,
        space: &Space,
        writes: impl Iterator<Item = (&'a Bytes, Option<&'a Bytes>)> + Clone,
    ) -> Result<(), Error> {
        let (mut added, mut removed) = (0, 0);
        let mut count = |exists: bool, will_exist: bool| match (exists, will_exist) {
            (false, true) => added += 1,
            (true, false) => removed += 1,
            _ => {}
        };
        count(self.record(key).is_some(), after.is_some());
        for (name, value) in writes.clone() {
            count(self.value(space, name).is_some(), value.is_some());
        }
        self.shards.room.change(added, removed)?;
        self.of(key).set_record(key, after);
        for (name, value) in writes {
            self.of(&(space, name.as_ref())).set_value(space, name, value);
        }
        Ok(())
    }

    fn of(&mut self, part: &impl Hash) -> &mut Shard {
        let index = self.shards.of(part);
        let guard = self.guards.iter_mut().find(|(locked, _)| *locked == index);
        &mut guard.expect("a section touches only what it locked").1
    }
}
