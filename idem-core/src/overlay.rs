//! What an effect sees in a store that can only compare and set: its own writes over what is committed.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
    sync::Arc,
};

use bytes::Bytes;

use crate::{Error, Space, Transaction};

/// Committed values, as an overlay reads them.
pub trait Values: Send + Sync {
    /// The committed value under `name` in `space`.
    ///
    /// # Errors
    /// Whatever keeps the store from reading.
    fn value(&self, space: &Space, name: &[u8]) -> Result<Option<Bytes>, Error>;
}

/// Remembers what an effect read and buffers what it writes.
///
/// Each value is read once, so that an effect sees one answer for one name however often it asks.
pub struct Overlay {
    space: Space,
    committed: Arc<dyn Values>,
    reads: BTreeMap<Bytes, Option<Bytes>>,
    writes: BTreeMap<Bytes, Option<Bytes>>,
}

impl Overlay {
    /// An empty overlay of `space`.
    #[must_use]
    pub fn new(space: Space, committed: Arc<dyn Values>) -> Self {
        Self { space, committed, reads: BTreeMap::new(), writes: BTreeMap::new() }
    }

    /// The space that the effect reads and writes.
    #[must_use]
    pub fn space(&self) -> &Space {
        &self.space
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
impl fmt::Debug for Overlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overlay")
            .field("space", &self.space)
            .field("reads", &self.reads.len())
            .field("writes", &self.writes.len())
            .finish_non_exhaustive()
    }
}

impl Transaction for Overlay {
    fn get(&mut self, name: &[u8]) -> Result<Option<Bytes>, Error> {
        if let Some(written) = self.writes.get(name) {
            return Ok(written.clone());
        }
        match self.reads.entry(Bytes::copy_from_slice(name)) {
            Entry::Occupied(read) => Ok(read.get().clone()),
            Entry::Vacant(unread) => {
                let value = self.committed.value(&self.space, name);
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
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Answers every read with how many there were, except under the name `absent`.
    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl Values for Counting {
        fn value(&self, _: &Space, name: &[u8]) -> Result<Option<Bytes>, Error> {
            let count = self.0.fetch_add(1, Ordering::SeqCst) + 1;
            Ok((name != b"absent").then(|| count.to_string().into()))
        }
    }

    fn overlay() -> Overlay {
        Overlay::new(Space::tenant("t").unwrap(), Arc::new(Counting::default()))
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
