//! What a backend implements.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;

use crate::{
    BoxStep, Committed, Error, Filter, Guarantees, Key, Record, Space, Transaction, time::BoxFuture,
};

/// A place that keeps records and effects, and runs one step on one key in one serialisable transaction.
///
/// A store knows how to transact and nothing of the protocol: what a step means, what a record allows and
/// what a caller is told is core's. It promises:
///
/// - The step's record and all that it wrote through its transaction are committed together or not at all:
///   under an error, a panic, a dropped future, a kill, a full disk, a lost connection.
/// - [`Committed`] means committed, as durably as [`Guarantees::durability`] says; and a record that it
///   shows is as durable as that.
/// - Steps on one key, and steps that read or write the same value, happen one after the other as far as
///   anybody can tell. A step is asked [`proceeds`](crate::Step::proceeds) and run on the record that its change replaces.
/// - Dropping the future of a call leaves its key untouched or committed.
/// - A store is its process's: in a child that was forked since, every call fails with
///   [`ErrorKind::OtherProcess`](crate::ErrorKind::OtherProcess) before it takes any lock, and dropping the store closes
///   nothing and waits for nobody. See [`HomeProcess`](crate::HomeProcess). A call, or an effect, that was under way at
///   the fork must not go on in the child.
/// - An effect that asks its own store again works or gets a typed error, and never waits for itself: a store
///   that holds a lock while an effect runs answers [`ErrorKind::Reentrant`](crate::ErrorKind::Reentrant) to
///   the thread that the effect runs on, and [`ErrorKind::Busy`](crate::ErrorKind::Busy) after a bounded wait
///   to others.
///
/// # How to write one
///
/// A store that can lock takes its write lock, reads the record and the time, asks the step, runs it by
/// [`run_step`](crate::run_step), stamps its change by [`Change::stamp`](crate::Change::stamp) with a token by
/// [`Token::next`](crate::Token::next), writes and commits. The module `runtime` (feature `tokio`) has
/// [`Store::detach`] and [`Store::sleep`] ready. A store that can only compare and set implements [`Optimistic`](crate::Optimistic) and calls
/// [`optimistic`](crate::optimistic); so does one whose lock an effect had better not hold. Then it passes the suite of
/// the crate `idem-conformance`, whose first page goes through a whole backend step by step.
///
/// A store of bytes keeps [`Record::to_bytes`] under [`Key::to_bytes`], and values under [`Space::to_bytes`]; it lists by
/// [`Filter::key_ranges`] and [`Page::collect`]. A call may block its thread for as long as the engine reads or commits,
/// never for an effect of another caller without a bound.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// What an effect writes through: portable by its trait, native by its own methods.
    type Transaction: Transaction + ?Sized + 'static;

    /// Runs `step` on `key` in one transaction.
    ///
    /// # Errors
    /// The step's own error, with nothing kept; or the store's, with what is certain about it.
    ///
    /// # Cancel safety
    /// Dropping the future at any point leaves the key untouched or committed.
    async fn transact(
        &self,
        key: &Key,
        step: BoxStep<Self::Transaction>,
    ) -> Result<Committed, Error>;

    /// Removes at most `limit` records that [`Record::is_purgeable`]. Effects stay.
    ///
    /// # Errors
    /// The store's own, if nothing was removed. What fails later ends the purge, and its count is told.
    async fn purge(&self, limit: usize) -> Result<Purged, Error>;

    /// The committed value under `name` in `space`.
    ///
    /// # Errors
    /// The store's own.
    async fn value(&self, space: &Space, name: &[u8]) -> Result<Option<Bytes>, Error>;

    /// A page of at most `limit` records that match `filter`, in no promised order. The limit may be `usize::MAX`.
    ///
    /// Following [`Page::next`] to its end shows every matching record that was there all along; what comes, goes
    /// or changes meanwhile may show or not. A filter without a state also shows records that are gone and not yet
    /// purged.
    ///
    /// The store applies the filter where the records are, and reads those of other namespaces as little as its engine
    /// allows. It ends a page early when it has passed over about [`Filter::MAX_SKIPPED`] records that do not match, so
    /// a page can be short, even empty, and still have a next.
    ///
    /// Each page applies its own filter. A cursor of another filter shows no record that does not match, but the pages
    /// together may then leave records out; the store may also refuse such a cursor as
    /// [`ErrorKind::InvalidSetting`](crate::ErrorKind::InvalidSetting).
    ///
    /// # Errors
    /// The store's own; [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if it cannot list.
    async fn list(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, Error>;

    /// Waits for what is under way, then lets go of the engine. Later calls, through whichever handle,
    /// fail with [`ErrorKind::Closed`](crate::ErrorKind::Closed). Closing twice is harmless. An effect that closes its own
    /// store is not waited for: it is refused as [`ErrorKind::Reentrant`](crate::ErrorKind::Reentrant), or the store is closed,
    /// and the effect is committed before or fails as any later call.
    ///
    /// # Errors
    /// The engine's own; the store is closed all the same.
    async fn close(&self) -> Result<(), Error>;

    /// What this store promises, and what it does not.
    fn guarantees(&self) -> Guarantees;

    /// Runs a task on its own, as far as the process goes on. The task makes calls of this store: if they block their
    /// thread, it must not be one that [`Store::sleep`] needs.
    fn detach(&self, task: BoxFuture<()>);

    /// Ends when the store's clock has moved on by `duration` from this call, polled or not.
    fn sleep(&self, duration: Duration) -> BoxFuture<()>;
}

/// How much a purge removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Purged {
    /// Records removed.
    pub removed: usize,
    /// Whether there may be more to remove, since the limit ended it, or a failure after something was removed. If not,
    /// nobody has left what could be removed when it began.
    pub more: bool,
}

impl Purged {
    /// So many, and whether there may be more.
    #[must_use]
    pub const fn new(removed: usize, more: bool) -> Self {
        Self { removed, more }
    }
}

/// Where a listing goes on; opaque, and good for the store that made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(pub Bytes);

impl Cursor {
    /// The cursor after `key`, for a store that lists in the order of keys.
    #[must_use]
    pub fn after(key: &Key) -> Self {
        Self(key.to_bytes().into())
    }

    /// The key of a cursor that [`Cursor::after`] made.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSetting`](crate::ErrorKind::InvalidSetting) if it did not.
    pub fn key(&self) -> Result<Key, Error> {
        Key::from_bytes(&self.0).map_err(|error| {
            let problem = "it is none of this store's: pass on a page's `next`".to_string();
            let kind = crate::ErrorKind::InvalidSetting { field: "cursor", problem };
            Error::nothing_done(kind).with_source(error)
        })
    }
}

/// A part of a listing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Page {
    /// Keys and what is recorded for them.
    pub records: Vec<(Key, Record)>,
    /// Where to go on; none at the end.
    pub next: Option<Cursor>,
    /// The time that the page was made at.
    pub now: crate::Timestamp,
}

impl Page {
    /// A page made at `now`.
    #[must_use]
    pub const fn new(
        records: Vec<(Key, Record)>,
        next: Option<Cursor>,
        now: crate::Timestamp,
    ) -> Self {
        Self { records, next, now }
    }

    /// The page of those `entries` that match, at most `limit`, for a store that lists its keys in one order.
    ///
    /// The entries are keys that follow the page's cursor, with their records or what is wrong with these. They need
    /// not match, but [`Filter::key_ranges`] keeps most others away. The page ends at its limit, or when it has passed
    /// over [`Filter::MAX_SKIPPED`] entries; if there is another one then, its next is [`Cursor::after`] the last.
    ///
    /// # Errors
    /// That of the first entry which cannot be read; that of a record if its key matches.
    pub fn collect(
        entries: impl IntoIterator<Item = Result<(Key, Result<Record, Error>), Error>>,
        filter: &Filter,
        limit: usize,
        now: crate::Timestamp,
    ) -> Result<Self, Error> {
        let (mut records, mut skipped, mut last) = (Vec::new(), 0, None);
        for entry in entries {
            if records.len() == limit || skipped == Filter::MAX_SKIPPED {
                return Ok(Self::new(records, last, now));
            }
            let (key, record) = entry?;
            last = Some(Cursor::after(&key));
            if !filter.matches_key(&key) {
                skipped += 1;
                continue;
            }
            let record = record?;
            if filter.matches(&key, &record, now) {
                records.push((key, record));
            } else {
                skipped += 1;
            }
        }
        Ok(Self::new(records, None, now))
    }
}

#[async_trait]
impl<S: Store + ?Sized> Store for Arc<S> {
    type Transaction = S::Transaction;

    async fn transact(
        &self,
        key: &Key,
        step: BoxStep<Self::Transaction>,
    ) -> Result<Committed, Error> {
        (**self).transact(key, step).await
    }

    async fn purge(&self, limit: usize) -> Result<Purged, Error> {
        (**self).purge(limit).await
    }

    async fn value(&self, space: &Space, name: &[u8]) -> Result<Option<Bytes>, Error> {
        (**self).value(space, name).await
    }

    async fn list(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, Error> {
        (**self).list(filter, after, limit).await
    }

    async fn close(&self) -> Result<(), Error> {
        (**self).close().await
    }

    fn guarantees(&self) -> Guarantees {
        (**self).guarantees()
    }

    fn detach(&self, task: BoxFuture<()>) {
        (**self).detach(task);
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        (**self).sleep(duration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorKind, KeyState, State, Timestamp};

    const NOW: Timestamp = Timestamp::from_millis(7);

    fn key(tenant: &str, number: usize) -> Key {
        Key::new(tenant, "o", number).unwrap()
    }

    fn record(expires_at: Option<i64>) -> Record {
        let expires_at = expires_at.map(Timestamp::from_millis);
        let state = State::Completed { result: Bytes::new(), expires_at };
        Record { fingerprint: None, attempt: uuid::Uuid::nil(), created_at: NOW, state }
    }

    type Entry = Result<(Key, Result<Record, Error>), Error>;

    fn entry(tenant: &str, number: usize) -> Entry {
        Ok((key(tenant, number), Ok(record(None))))
    }

    fn damaged() -> Error {
        Error::nothing_done(ErrorKind::Damaged { problem: "it is odd".to_string() })
    }

    #[test]
    fn a_page_is_cut_at_its_limit_and_goes_on_only_if_more_was_found() {
        for (limit, shown, next) in [
            (0, 0, None),
            (1, 1, Some(0)),
            (2, 2, Some(1)),
            (3, 3, None),
            (4, 3, None),
            (usize::MAX, 3, None),
        ] {
            let entries = (0..3).map(|number| entry("t", number));
            let page = Page::collect(entries, &Filter::all(), limit, NOW).unwrap();
            let expected: Vec<_> = (0..shown).map(|n| (key("t", n), record(None))).collect();
            assert_eq!(page.records, expected, "{limit}");
            assert_eq!(page.next, next.map(|n| Cursor::after(&key("t", n))), "{limit}");
            assert_eq!(page.now, NOW);
        }
    }

    #[test]
    fn a_page_passes_over_what_does_not_match_and_not_for_ever() {
        let filter = Filter::all().tenant("t").unwrap();
        let others = |count| (0..count).map(|number| entry("other", number));
        let last = entry("t", 0);
        let page = Page::collect(others(Filter::MAX_SKIPPED - 1).chain([last]), &filter, 1, NOW);
        let page = page.unwrap();
        assert_eq!((page.records.len(), page.next), (1, None));
        let page =
            Page::collect(others(Filter::MAX_SKIPPED).chain([entry("t", 0)]), &filter, 1, NOW);
        let page = page.unwrap();
        assert_eq!(page.records, []);
        assert_eq!(page.next, Some(Cursor::after(&key("other", Filter::MAX_SKIPPED - 1))));
        // With nothing behind it, it is the last.
        let page = Page::collect(others(Filter::MAX_SKIPPED), &filter, 1, NOW).unwrap();
        assert_eq!((page.records.len(), page.next), (0, None));
    }

    #[test]
    fn a_page_shows_the_state_at_its_own_time() {
        let completed = Filter::all().state(KeyState::Completed);
        let entries = || [7, 8].map(|at| Ok((key("t", 1), Ok(record(Some(at))))));
        let page = Page::collect(entries(), &completed, 9, NOW).unwrap();
        assert_eq!(page.records, [(key("t", 1), record(Some(8)))]);
        let page = Page::collect(entries(), &Filter::all(), 9, NOW).unwrap();
        assert_eq!(page.records.len(), 2, "what is gone shows until it is purged");
    }

    #[test]
    fn a_damaged_record_is_told_to_whoever_asks_for_its_key() {
        let filter = Filter::all().tenant("t").unwrap();
        let of = |tenant| [Ok((key(tenant, 0), Err(damaged()))), entry("t", 1)];
        assert_eq!(Page::collect(of("other"), &filter, 9, NOW).unwrap().records.len(), 1);
        for entries in [of("t"), [Err(damaged()), entry("t", 1)]] {
            let error = Page::collect(entries, &filter, 9, NOW).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Damaged { .. }), "{error:?}");
        }
        // The next page shows it.
        let page = Page::collect([entry("t", 1), Err(damaged())], &filter, 1, NOW).unwrap();
        assert_eq!(page.next, Some(Cursor::after(&key("t", 1))));
    }
}
