//! What an effect sees in a store that can only compare and set: its own writes over what is committed.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
};

use bytes::Bytes;

use crate::{Error, Transaction};

/// Committed values under names, as an overlay reads them: those of one space, or of one tree.
pub trait Values {
    /// The committed value under `name`.
    ///
    /// # Errors
    /// Whatever keeps the store from reading.
    fn value(&self, name: &[u8]) -> Result<Option<Bytes>, Error>;
}

/// Remembers what an effect read and buffers what it writes.
///
/// Each value is read once, so that an effect sees one answer for one name however often it asks.
pub struct Overlay<V> {
    committed: V,
    reads: BTreeMap<Bytes, Option<Bytes>>,
    writes: BTreeMap<Bytes, Option<Bytes>>,
}

impl<V> Overlay<V> {
    /// An empty overlay of what is committed.
    #[must_use]
    pub fn new(committed: V) -> Self {
        Self { committed, reads: BTreeMap::new(), writes: BTreeMap::new() }
    }

    /// What is committed.
    #[must_use]
    pub fn committed(&self) -> &V {
        &self.committed
    }

    /// What the effect read of the committed values: name and value, none for absent.
    ///
    /// A commit holds only if these are unchanged.
    pub fn reads(&self) -> impl Iterator<Item = (&Bytes, Option<&Bytes>)> {
        self.reads.iter().map(|(name, value)| (name, value.as_ref()))
    }

    /// What the effect wrote last under each name; none for deleted.
    pub fn writes(&self) -> impl Iterator<Item = (&Bytes, Option<&Bytes>)> {
        self.writes.iter().map(|(name, value)| (name, value.as_ref()))
    }
}

// Values may be secrets: not in a log.
impl<V> fmt::Debug for Overlay<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overlay")
            .field("reads", &self.reads.len())
            .field("writes", &self.writes.len())
            .finish_non_exhaustive()
    }
}

impl<V: Values + Send> Transaction for Overlay<V> {
    fn get(&mut self, name: &[u8]) -> Result<Option<Bytes>, Error> {
        if let Some(written) = self.writes.get(name) {
            return Ok(written.clone());
        }
        match self.reads.entry(Bytes::copy_from_slice(name)) {
            Entry::Occupied(read) => Ok(read.get().clone()),
            Entry::Vacant(unread) => {
                let value = self.committed.value(name);
                let value = value.map_err(Error::of_transaction)?;
                Ok(unread.insert(value).clone())
            }
        }
    }

    fn put(&mut self, name: &[u8], value: &[u8]) -> Result<(), Error> {
        self.writes.insert(Bytes::copy_from_slice(name), Some(Bytes::copy_from_slice(value)));
        Ok(())
    }

    fn delete(&mut self, name: &[u8]) -> Result<(), Error> {
        self.writes.insert(Bytes::copy_from_slice(name), None);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Answers every read with how many there were, except under the name `absent`.
    #[derive(Default)]
    struct Counting(Cell<usize>);

    impl Values for Counting {
        fn value(&self, name: &[u8]) -> Result<Option<Bytes>, Error> {
            self.0.set(self.0.get() + 1);
            Ok((name != b"absent").then(|| self.0.get().to_string().into()))
        }
    }

    fn overlay() -> Overlay<Counting> {
        Overlay::new(Counting::default())
    }

    fn bytes(text: &'static str) -> Option<Bytes> {
        Some(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn a_value_is_read_once_and_remembered_as_first_read() {
        let mut overlay = overlay();
        assert_eq!(overlay.get(b"a").unwrap(), bytes("1"));
        assert_eq!(overlay.get(b"a").unwrap(), bytes("1"));
        assert_eq!(overlay.get(b"absent").unwrap(), None);
        assert_eq!(overlay.get(b"absent").unwrap(), None);
        assert_eq!(overlay.get(b"b").unwrap(), bytes("3"));
        let reads: Vec<_> = overlay.reads().map(|(n, v)| (n.clone(), v.cloned())).collect();
        let expected =
            vec![("a".into(), bytes("1")), ("absent".into(), None), ("b".into(), bytes("3"))];
        assert_eq!(reads, expected);
    }

    #[test]
    fn an_effect_sees_its_own_writes_and_a_blind_write_is_no_read() {
        let mut overlay = overlay();
        overlay.put(b"a", b"x").unwrap();
        assert_eq!(overlay.get(b"a").unwrap(), bytes("x"));
        overlay.delete(b"a").unwrap();
        assert_eq!(overlay.get(b"a").unwrap(), None);
        overlay.put(b"b", b"").unwrap();
        assert_eq!(overlay.get(b"b").unwrap(), bytes(""));
        assert_eq!(overlay.reads().count(), 0);
        let writes: Vec<_> = overlay.writes().map(|(n, v)| (n.clone(), v.cloned())).collect();
        assert_eq!(writes, vec![("a".into(), None), ("b".into(), bytes(""))]);
    }

    #[test]
    fn a_read_before_a_write_stays_a_read() {
        let mut overlay = overlay();
        overlay.get(b"a").unwrap();
        overlay.put(b"a", b"x").unwrap();
        assert_eq!(overlay.get(b"a").unwrap(), bytes("x"));
        assert_eq!(overlay.reads().next(), Some((&"a".into(), bytes("1").as_ref())));
    }
}
