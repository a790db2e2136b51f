//! Going through all records: listing and purging.
//!
//! SCAN returns every key that was there all along, in no order and in batches that it sizes itself; a key may
//! come twice while the server moves its table (the Redis docs, "SCAN guarantees").

use std::collections::BTreeSet;

use bytes::Bytes;
use futures_util::future::join_all;
use idem_core::{Cursor, Error, ErrorKind, Filter, Key, Page, Purged, Record, Timestamp};

use crate::{
    inner::{Inner, decode, named},
    nodes::{self, Node},
    script::Commit,
    settle::{Doubt, Fate, settle},
};

/// How many keys a SCAN is asked to look at. More of them hold up the server for longer.
const BATCH: usize = 500;

/// How many records are looked at at once.
const AT_ONCE: usize = 128;

/// Where a sweep is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The node that is being scanned.
    node: Node,
    /// Where its next batch begins.
    scan: u64,
    /// The names of the last batch that are still to be looked at.
    left: Vec<Vec<u8>>,
    /// Whether the last batch was the node's last.
    is_last: bool,
}

impl Place {
    fn start_of(node: Node) -> Self {
        Self { node, scan: 0, left: Vec::new(), is_last: false }
    }

    fn to_cursor(&self) -> Cursor {
        let head = format!("{}\n{}\n{}\n", self.node, self.scan, u8::from(self.is_last));
        let mut bytes = head.into_bytes();
        for name in &self.left {
            // No server takes a key as long as this could not count.
            bytes.extend(u32::try_from(name.len()).unwrap_or(u32::MAX).to_be_bytes());
            bytes.extend(name);
        }
        Cursor(bytes.into())
    }

    fn of_cursor(cursor: &Cursor) -> Result<Self, Error> {
        let place = || {
            let mut parts = cursor.0.splitn(4, |byte| *byte == b'\n');
            let mut text = || std::str::from_utf8(parts.next()?).ok();
            let node = Node::parse(text()?)?;
            let scan = text()?.parse().ok()?;
            let is_last = text()? == "1";
            let mut names = parts.next()?;
            let mut left = Vec::new();
            while !names.is_empty() {
                let (length, rest) = names.split_first_chunk::<4>()?;
                let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
                let (name, rest) = rest.split_at_checked(length)?;
                left.push(name.to_vec());
                names = rest;
            }
            Some(Self { node, scan, left, is_last })
        };
        place().ok_or_else(|| bad_cursor("it is none of this store's: pass on a page's `next`"))
    }
}

fn bad_cursor(problem: &str) -> Error {
    let kind = ErrorKind::InvalidSetting { field: "cursor", problem: problem.to_string() };
    Error::nothing_done(kind)
}

/// A walk over the names of all records.
struct Sweep<'s> {
    store: &'s Inner,
    filter: &'s Filter,
    /// What SCAN is asked for.
    pattern: String,
    nodes: Vec<Node>,
    place: Option<Place>,
    /// How often a connection had been tried to be opened when the node's first batch came.
    tries: u64,
    /// How many keys the servers were asked to look at.
    looked_at: usize,
    /// Whether a server may have been started again meanwhile: it goes on elsewhere with the same cursor.
    may_have_missed: bool,
}

impl<'s> Sweep<'s> {
    async fn start(
        store: &'s Inner,
        filter: &'s Filter,
        from: Option<&Cursor>,
    ) -> Result<Self, Error> {
        let nodes = nodes::of(&store.link).await?;
        let place = match from {
            None => nodes.first().cloned().map(Place::start_of),
            Some(cursor) => {
                let place = Place::of_cursor(cursor)?;
                if !nodes.contains(&place.node) {
                    return Err(bad_cursor("the cluster's nodes have changed: begin anew"));
                }
                Some(place)
            }
        };
        let pattern = store.prefix.records(filter);
        let (tries, looked_at, may_have_missed) = (0, 0, false);
        Ok(Self { store, filter, pattern, nodes, place, tries, looked_at, may_have_missed })
    }

    /// The next name of a record whose key matches; none at the end, and before a batch that would make `looked_at`
    /// more than `most`.
    async fn next(&mut self, most: usize) -> Result<Option<Vec<u8>>, Error> {
        while let Some(place) = &mut self.place {
            if let Some(name) = place.left.pop() {
                // A cursor may have come from a page of another filter.
                if self.store.prefix.key(&name).is_some_and(|key| self.filter.matches_key(&key)) {
                    return Ok(Some(name));
                }
                continue;
            }
            if place.is_last {
                let node = self.nodes.iter().find(|node| **node > place.node);
                self.place = node.cloned().map(Place::start_of);
                continue;
            }
            if self.looked_at >= most {
                return Ok(None);
            }
            let (scan, names) = scan(self.store, &place.node, &self.pattern, place.scan).await?;
            self.looked_at += BATCH;
            let tries = self.store.link.tries();
            if place.scan == 0 {
                self.tries = tries;
            }
            self.may_have_missed |= tries != self.tries;
            place.scan = scan;
            place.is_last = scan == 0;
            place.left = names;
        }
        Ok(None)
    }

    /// The next names, at most so many and at most [`AT_ONCE`]; nothing where [`Sweep::next`] has none.
    async fn take(&mut self, count: usize, most: usize) -> Result<Vec<Vec<u8>>, Error> {
        let mut names = Vec::new();
        while names.len() < count.min(AT_ONCE)
            && let Some(name) = self.next(most).await?
        {
            names.push(name);
        }
        Ok(names)
    }

    /// Has names that were taken come again.
    fn give_back(&mut self, names: Vec<Vec<u8>>) {
        if self.place.is_none() && !names.is_empty() {
            let end = |node| Place { is_last: true, ..Place::start_of(node) };
            self.place = self.nodes.last().cloned().map(end);
        }
        if let Some(place) = &mut self.place {
            // By whichever node they came: a record is asked for where it lies.
            place.left.extend(names);
        }
    }

    fn into_cursor(self) -> Option<Cursor> {
        self.place.map(|place| place.to_cursor())
    }
}

/// One batch: where the next begins, 0 after the last, and the names in this one that match the pattern.
async fn scan(
    store: &Inner,
    node: &Node,
    pattern: &str,
    from: u64,
) -> Result<(u64, Vec<Vec<u8>>), Error> {
    let mut command = redis::cmd("SCAN");
    command.arg(from).arg("MATCH").arg(pattern).arg("COUNT").arg(BATCH);
    let mut patience = store.link.patience();
    let answer = loop {
        match nodes::send(&store.link, node, &command).await {
            Ok(answer) => break answer,
            Err(failure) => patience.bear_reading(failure).await?,
        }
    };
    let batch: (u64, BTreeSet<Vec<u8>>) = redis::from_redis_value(answer)
        .map_err(|error| Error::nothing_done(ErrorKind::Store).with_source(error))?;
    Ok((batch.0, batch.1.into_iter().collect()))
}

/// A record and when it was seen.
struct Found {
    key: Key,
    name: Vec<u8>,
    record: Result<Record, Error>,
    /// As it is stored.
    head: Bytes,
    now: Timestamp,
}

/// What lies under a name; none if nothing does any more.
async fn find(store: &Inner, name: Vec<u8>) -> Result<Option<Found>, Error> {
    let Some(key) = store.prefix.key(&name) else { return Ok(None) };
    let (record, head, now) = match store.look_patiently(&name, &[]).await {
        Ok(seen) => {
            let head = seen.record.as_ref().map(|bytes| bytes.slice_ref(Record::head_in(bytes)));
            let record = decode(seen.record, &name).transpose();
            (record, head.unwrap_or_default(), store.decided_now(seen.now))
        }
        Err(error) if matches!(error.kind(), ErrorKind::Damaged { .. }) => {
            (Some(Err(named(error, &name))), Bytes::new(), store.estimated_now())
        }
        Err(error) => return Err(error),
    };
    Ok(record.map(|record| Found { key, name, record, head, now }))
}

/// At most `limit` records from a place on that the filter shows.
pub(crate) async fn list(
    store: &Inner,
    filter: &Filter,
    after: Option<&Cursor>,
    limit: usize,
) -> Result<Page, Error> {
    let mut sweep = Sweep::start(store, filter, after).await?;
    let (mut records, mut now) = (Vec::new(), store.estimated_now());
    while records.len() < limit {
        // Of a state there may be few: one record at a time would take a round trip for each.
        let wanted = limit - records.len();
        let count = if filter.only_state().is_some() { AT_ONCE } else { wanted };
        let most = Filter::MAX_SKIPPED.saturating_add(records.len());
        let names = sweep.take(count, most).await?;
        if names.is_empty() {
            break;
        }
        let found = join_all(names.into_iter().map(|name| find(store, name))).await;
        let mut left = Vec::new();
        for found in found.into_iter().filter_map(Result::transpose) {
            let found = found?;
            if records.len() == limit {
                left.push(found.name);
                continue;
            }
            now = found.now;
            let record = found.record?;
            if filter.matches(&found.key, &record, now) {
                records.push((found.key, record));
            }
        }
        sweep.give_back(left);
    }
    // What has changed its state since it was read is not shown in one that it has no more.
    records.retain(|(key, record)| filter.matches(key, record, now));
    // A page of nothing leads nowhere.
    let next = if limit == 0 { None } else { sweep.into_cursor() };
    Ok(Page::new(records, next, now))
}

/// Removes at most `limit` records that may go. One that cannot be read stays.
pub(crate) async fn purge(store: &Inner, limit: usize) -> Result<Purged, Error> {
    let mut removed = 0;
    match remove_due(store, limit, &mut removed).await {
        // What failed fails the next purge as well, which can say that nothing was done.
        Err(_) if removed > 0 => Ok(Purged::new(removed, true)),
        more => Ok(Purged::new(removed, more?)),
    }
}

/// Removes what is due, and counts it; whether there may be more.
async fn remove_due(store: &Inner, limit: usize, removed: &mut usize) -> Result<bool, Error> {
    let all = Filter::all();
    let mut sweep = Sweep::start(store, &all, None).await?;
    while *removed < limit {
        let names = sweep.take(AT_ONCE, usize::MAX).await?;
        if names.is_empty() {
            return Ok(sweep.may_have_missed);
        }
        let found = join_all(names.into_iter().map(|name| find(store, name))).await;
        let (found, unseen) = good_of(found);
        let mut due = found.iter().flatten().filter_map(|found| {
            let record = found.record.as_ref().ok()?;
            record.is_purgeable(found.now).then_some(found)
        });
        loop {
            // What another has taken meanwhile makes room for the next.
            let some: Vec<_> = due.by_ref().take(limit - *removed).collect();
            if some.is_empty() {
                break;
            }
            let removals = some.into_iter().map(|found| remove(store, found));
            let (were_removed, failed) = good_of(join_all(removals).await);
            *removed += were_removed.into_iter().filter(|was_removed| *was_removed).count();
            failed.map_or(Ok(()), Err)?;
        }
        unseen.map_or(Ok(()), Err)?;
    }
    Ok(true)
}

/// What went well, and the first failure.
fn good_of<T>(results: Vec<Result<T, Error>>) -> (Vec<T>, Option<Error>) {
    let mut failure = None;
    let keep = |result: Result<T, Error>| match result {
        Ok(good) => Some(good),
        Err(error) => {
            failure.get_or_insert(error);
            None
        }
    };
    (results.into_iter().filter_map(keep).collect(), failure)
}

/// Removes a record unless another has taken its place; whether it was removed.
async fn remove(store: &Inner, found: &Found) -> Result<bool, Error> {
    let commit = Commit::removal(&found.name, found.head.clone());
    let doubt = Doubt::default();
    match settle(store, &commit, true, &doubt).await.map_err(|error| doubt.of(error))? {
        Fate::Done { .. } => Ok(true),
        Fate::Refused { record, .. } => Ok(doubt.is_there() && record.is_none()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_gives_its_place_back_and_another_an_error() {
        let node = Node::parse("127.0.0.1:7000").expect("a node");
        let left = vec![b"idem:{t}:r:1:o:\xff\n".to_vec(), Vec::new()];
        let place = Place { node, scan: u64::MAX, left, is_last: true };
        let cursor = place.to_cursor();
        assert_eq!(Place::of_cursor(&cursor).unwrap(), place);
        for length in 0..cursor.0.len() {
            let cut = Place::of_cursor(&Cursor(cursor.0.slice(..length)));
            assert_ne!(cut.ok().as_ref(), Some(&place));
        }
        let other = Place::of_cursor(&Cursor(Bytes::from_static(b"r\x00\x01ok")));
        let error = other.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::InvalidSetting { field: "cursor", .. }));
    }
}
