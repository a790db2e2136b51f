//! Which records a listing shows.

use std::ops::Bound;

use crate::{
    Cursor, Error, Key, Kind, Phase, Record, Space, State, Timestamp,
    key::{check_given, prefix},
};

/// How far the action of a key got, as an operator looks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// A live receipt: the action was done, and its result is replayed.
    Completed,
    /// A live lease: somebody is at it.
    Held,
    /// A lease that ended without an answer: nobody knows whether the action was done.
    Ended,
}

impl KeyState {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Completed, Self::Held, Self::Ended];

    /// The state of a record at `now`; none if the record is [gone](Phase::Gone).
    #[must_use]
    pub fn of(record: &Record, now: Timestamp) -> Option<Self> {
        match (record.phase(now), &record.state) {
            (Phase::Gone, _) => None,
            (Phase::Ended, _) => Some(Self::Ended),
            (Phase::Live, State::Completed { .. }) => Some(Self::Completed),
            (Phase::Live, State::Claimed { .. }) => Some(Self::Held),
        }
    }
}

/// Which records a listing shows: all, or those of one tenant or consumer, of one operation, in one state.
///
/// A record must match every condition. A second call of one method replaces the first.
///
/// ```
/// # fn main() -> Result<(), idem_core::Error> {
/// use idem_core::{Filter, Key, KeyState, Space};
/// // Whose outcome nobody knows, of one operation of one tenant.
/// let stuck = Filter::all().tenant("north")?.operation("charge")?.state(KeyState::Ended);
/// assert!(stuck.matches_key(&Key::new("north", "charge", "a")?));
/// assert!(!stuck.matches_key(&Key::new("north", "charge-card", "a")?));
/// // A consumer is no tenant of its name.
/// let events = Filter::all().in_namespace(&Space::consumer("north")?);
/// assert!(events.matches_key(&Key::event("north", 7)?));
/// assert!(!events.matches_key(&Key::new("north", "charge", 7)?));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    namespace: Option<Space>,
    operation: Option<Box<str>>,
    state: Option<KeyState>,
}

impl Filter {
    /// How many records that do not match a store passes over before it ends a page: 10 000, or few more.
    pub const MAX_SKIPPED: usize = 10_000;

    /// The filter that every record matches.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Only the requests of this tenant; `""` is the default tenant.
    ///
    /// # Errors
    /// As [`Space::tenant`].
    pub fn tenant(self, tenant: &str) -> Result<Self, Error> {
        Ok(self.in_namespace(&Space::tenant(tenant)?))
    }

    /// Only the requests of the namespace's tenant, or the events of its consumer.
    #[must_use]
    pub fn in_namespace(mut self, namespace: &Space) -> Self {
        self.namespace = Some(namespace.clone());
        self
    }

    /// Only the requests of this operation. An event has no operation and does not match.
    ///
    /// # Errors
    /// As [`Key::new`] for an invalid operation.
    pub fn operation(mut self, operation: &str) -> Result<Self, Error> {
        check_given("operation", operation)?;
        self.operation = Some(operation.into());
        Ok(self)
    }

    /// Only records in this state, at the time of the page.
    #[must_use]
    pub fn state(mut self, state: KeyState) -> Self {
        self.state = Some(state);
        self
    }

    /// The one namespace that is listed, if there is a condition on it.
    #[must_use]
    pub fn only_namespace(&self) -> Option<&Space> {
        self.namespace.as_ref()
    }

    /// The one operation that is listed, if there is a condition on it.
    #[must_use]
    pub fn only_operation(&self) -> Option<&str> {
        self.operation.as_deref()
    }

    /// The one state that is listed, if there is a condition on it.
    #[must_use]
    pub fn only_state(&self) -> Option<KeyState> {
        self.state
    }

    /// Whether the filter shows this record, as it is at `now`.
    ///
    /// A record that is [gone](Phase::Gone) matches only a filter without a state.
    #[must_use]
    pub fn matches(&self, key: &Key, record: &Record, now: Timestamp) -> bool {
        self.matches_key(key)
            && self.state.is_none_or(|state| KeyState::of(record, now) == Some(state))
    }

    /// Whether the filter shows the record of this key, if it shows that state.
    #[must_use]
    pub fn matches_key(&self, key: &Key) -> bool {
        let is_in = |space: &Space| key.kind() == space.kind() && key.tenant() == space.owner();
        self.namespace.as_ref().is_none_or(is_in)
            // An event's operation is empty, and no filter's is.
            && self.operation.as_deref().is_none_or(|operation| operation == key.operation())
    }

    /// The ranges of [`Key::to_bytes`] that hold every key which matches and follows `after`, in order.
    ///
    /// A tenant's keys lie in one range for each length of an operation, 255 at most, and a range with a namespace holds
    /// no other keys. Other ranges may hold keys that do not match.
    ///
    /// # Errors
    /// As [`Cursor::key`].
    pub fn key_ranges(
        &self,
        after: Option<&Cursor>,
    ) -> Result<impl Iterator<Item = KeyRange> + use<>, Error> {
        // The first bytes that are larger: the key's own are their beginning.
        let larger = |key: Key| [&*key.to_bytes(), &[0]].concat();
        let first = after.map(Cursor::key).transpose()?.map(larger).unwrap_or_default();
        Ok(self.key_prefixes().into_iter().filter_map(move |prefix| {
            let end = successor(&prefix);
            let is_ahead = end.as_ref().is_none_or(|end| first < *end);
            is_ahead.then(|| KeyRange { start: first.clone().max(prefix), end })
        }))
    }

    /// What the bytes of keys that match begin with, in order.
    fn key_prefixes(&self) -> Vec<Vec<u8>> {
        match (&self.namespace, self.operation.as_deref()) {
            (None, None) => vec![Vec::new()],
            (None, Some(_)) => vec![vec![Kind::Request.as_byte()]],
            (Some(space), Some(operation)) => match space.kind() {
                Kind::Request => vec![prefix(space, operation.len(), operation)],
                Kind::Event => Vec::new(),
            },
            (Some(space), None) => {
                let lengths = match space.kind() {
                    Kind::Request => 1..=Key::MAX_PART,
                    Kind::Event => 0..=0,
                };
                lengths.map(|length| prefix(space, length, "")).collect()
            }
        }
    }
}

/// A range of [`Key::to_bytes`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    start: Vec<u8>,
    end: Option<Vec<u8>>,
}

impl KeyRange {
    /// Its first bytes, and those that it ends before if there are any: a range for the maps of most engines.
    #[must_use]
    pub fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        let end = self.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        (Bound::Included(&self.start), end)
    }
}

/// The first bytes that are larger than all that begin with `prefix`; none if there are none.
fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut successor = prefix[..=last].to_vec();
    successor[last] += 1;
    Some(successor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Retention, Span, Token};
    use bytes::Bytes;
    use std::{collections::BTreeMap, time::Duration};
    use uuid::Uuid;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn record(state: State) -> Record {
        Record { fingerprint: None, attempt: Uuid::nil(), created_at: at(0), state }
    }

    fn receipt(expires_at: i64) -> Record {
        record(State::Completed { result: Bytes::new(), expires_at: Some(at(expires_at)) })
    }

    /// A lease until 100 whose record is kept for 50 after it.
    fn lease(is_ended: bool) -> Record {
        let keep = Retention::For(Span::new("retention", Duration::from_millis(50)).unwrap());
        let token = Token::from_u64(7).unwrap();
        record(State::Claimed { token, took_over: None, until: at(100), is_ended, keep })
    }

    #[test]
    fn a_state_changes_at_its_very_millisecond_and_what_is_gone_has_none() {
        use KeyState::{Completed, Ended, Held};
        for (record, now, expected) in [
            (receipt(100), 99, Some(Completed)),
            (receipt(100), 100, None),
            (lease(false), -100, Some(Held)),
            (lease(false), 99, Some(Held)),
            (lease(false), 100, Some(Ended)),
            (lease(false), 149, Some(Ended)),
            (lease(false), 150, None),
            (lease(true), -100, Some(Ended)),
            (lease(true), 149, Some(Ended)),
            (lease(true), 150, None),
        ] {
            assert_eq!(KeyState::of(&record, at(now)), expected, "{record:?} at {now}");
            let key = Key::new("t", "o", "k").unwrap();
            assert!(Filter::all().matches(&key, &record, at(now)), "{record:?} at {now}");
            for state in KeyState::ALL {
                let is_shown = Filter::all().state(state).matches(&key, &record, at(now));
                assert_eq!(is_shown, expected == Some(state), "{record:?} at {now}: {state:?}");
            }
        }
    }

    /// Keys that a comparison of parts by their beginnings, or of whole keys, would mistake.
    fn keys() -> Vec<Key> {
        let long = "x".repeat(255);
        let mut keys = Vec::new();
        for tenant in ["", "a", "aa", "ab", "b", &long] {
            for operation in ["a", "aa", "b", &long] {
                for request in ["a", "b", "aa"] {
                    keys.push(Key::new(tenant, operation, request).unwrap());
                }
            }
            if !tenant.is_empty() {
                keys.push(Key::event(tenant, "a").unwrap());
                keys.push(Key::event(tenant, "aa").unwrap());
            }
        }
        keys.sort_by_key(Key::to_bytes);
        keys
    }

    fn filters() -> Vec<Filter> {
        let long = "x".repeat(255);
        let mut namespaces = vec![None];
        for owner in ["", "a", "aa", "b", "c", &long] {
            namespaces.push(Some(Space::tenant(owner).unwrap()));
            namespaces.extend(Space::consumer(owner).ok().map(Some));
        }
        let mut filters = Vec::new();
        for namespace in namespaces {
            let filter = namespace.map_or_else(Filter::all, |n| Filter::all().in_namespace(&n));
            for operation in ["a", "aa", "b", "c", &long] {
                filters.push(filter.clone().operation(operation).unwrap());
            }
            filters.push(filter);
        }
        filters
    }

    #[test]
    fn only_the_same_namespace_and_operation_match() {
        let filter = |tenant: &str| Filter::all().tenant(tenant).unwrap();
        let shown = |filter: &Filter| keys().iter().filter(|key| filter.matches_key(key)).count();
        assert_eq!(shown(&Filter::all()), keys().len());
        assert_eq!(shown(&filter("a")), 12);
        assert_eq!(shown(&filter("")), 12);
        assert_eq!(shown(&Filter::all().in_namespace(&Space::consumer("a").unwrap())), 2);
        assert_eq!(shown(&Filter::all().operation("a").unwrap()), 18);
        assert_eq!(shown(&filter("a").operation("aa").unwrap()), 3);
        let of_events = Filter::all().in_namespace(&Space::consumer("a").unwrap());
        assert_eq!(shown(&of_events.operation("a").unwrap()), 0, "an event has no operation");
        assert_eq!(shown(&filter("a").tenant("b").unwrap()), 12, "the last one counts");
        assert!(Filter::all().operation("").is_err());
        assert!(Filter::all().operation(&"x".repeat(256)).is_err());
        assert!(Filter::all().tenant("a\0").is_err());
    }

    /// The keys in a filter's ranges, as often as they come.
    fn in_ranges(filter: &Filter, after: Option<&Key>) -> Vec<Key> {
        let stored: BTreeMap<_, _> = keys().into_iter().map(|key| (key.to_bytes(), key)).collect();
        let ranges = filter.key_ranges(after.map(Cursor::after).as_ref()).unwrap();
        let found = ranges.flat_map(|range| {
            let found = stored.range::<[u8], _>(range.bounds());
            found.map(|(_, key)| key.clone()).collect::<Vec<_>>()
        });
        found.collect()
    }

    #[test]
    fn ranges_hold_each_key_that_matches_once_and_in_order() {
        let keys = keys();
        for filter in filters() {
            for after in keys.iter().step_by(5).map(Some).chain([None]) {
                let mut found = in_ranges(&filter, after);
                found.retain(|key| filter.matches_key(key));
                let is_after = |key: &&Key| after.is_none_or(|a| a.to_bytes() < key.to_bytes());
                let expected = keys.iter().filter(is_after).filter(|key| filter.matches_key(key));
                assert_eq!(found, expected.cloned().collect::<Vec<_>>(), "{filter:?}, {after:?}");
            }
        }
    }

    #[test]
    fn ranges_of_a_namespace_hold_no_other_ones_keys() {
        for filter in filters().into_iter().filter(|filter| filter.only_namespace().is_some()) {
            let found = in_ranges(&filter, None);
            assert!(found.iter().all(|key| filter.matches_key(key)), "{filter:?}: {found:?}");
        }
    }

    #[test]
    fn a_range_without_a_condition_holds_what_is_no_key_as_well() {
        let ranges: Vec<_> = Filter::all().key_ranges(None).unwrap().collect();
        assert_eq!(ranges.len(), 1);
        assert_eq!(ranges[0].bounds(), (Bound::Included(&[][..]), Bound::Unbounded));
        let error = Filter::all().key_ranges(Some(&Cursor(Bytes::from_static(b"x")))).err();
        let is_cursor = |error: &Error| {
            matches!(error.kind(), crate::ErrorKind::InvalidSetting { field: "cursor", .. })
        };
        assert!(error.as_ref().is_some_and(is_cursor), "{error:?}");
    }
}
