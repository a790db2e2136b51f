//! What is longer than an entry may be is kept in pieces, so that its space is used again; see [`Segments`].
//!
//! The first piece lies under the name itself, in the tree of its kind, and the others in the tree `idem.pieces`. A
//! piece of the full length is followed by the next, if there is one; any other is the last. So what is short is
//! stored as it is; so is what earlier versions stored, in one entry of any length.
//!
//! [`Segments`]: crate::segments::Segments

use sled::{IVec, transaction::TransactionalTree};

use crate::{commit, failure::Trouble};

/// The length of a piece in bytes, which is part of the format. 32 of them fit into the largest page of the smallest
/// segments; and the more entries are written, the sooner the engine moves pages, see [`Sweep`](crate::sweep::Sweep).
pub(crate) const PIECE: usize = 4 << 10;

/// What is kept in pieces. Each kind has names of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The record of a key.
    Record,
    /// A portable value.
    Value,
    /// An entry of the expiry index.
    Expiry,
}

impl Kind {
    /// The tree of the first pieces, among those of a batch.
    fn tree(self) -> usize {
        match self {
            Self::Record => commit::RECORDS,
            Self::Value => commit::VALUES,
            Self::Expiry => commit::EXPIRY,
        }
    }

    fn tag(self) -> u8 {
        match self {
            Self::Record => 0,
            Self::Value => 1,
            Self::Expiry => 2,
        }
    }

    /// The name in `idem.pieces` of a piece that follows the first: its number has always four bytes.
    fn name(self, of: &[u8], number: usize) -> Vec<u8> {
        let number = u32::try_from(number).expect("nothing of that length fits into memory");
        [&[self.tag()], of, &number.to_be_bytes()].concat()
    }
}

/// The pieces that begin with the first. `get` looks into `idem.pieces`.
pub(crate) fn follow<E>(
    kind: Kind,
    name: &[u8],
    first: IVec,
    mut get: impl FnMut(&[u8]) -> Result<Option<IVec>, E>,
) -> Result<Vec<IVec>, E> {
    let mut pieces = vec![first];
    while pieces.last().is_some_and(|last| last.len() == PIECE) {
        match get(&kind.name(name, pieces.len()))? {
            Some(next) => pieces.push(next),
            None => break,
        }
    }
    Ok(pieces)
}

/// What the pieces are together.
pub(crate) fn join(mut pieces: Vec<IVec>) -> IVec {
    match pieces.len() {
        1 => pieces.remove(0),
        _ => IVec::from(pieces.concat()),
    }
}

/// A write inside a transaction: the tree, the name and the value, none to remove it.
pub(crate) type Write = (usize, IVec, Option<IVec>);

/// The writes that put a value, or nothing, in the place of what was under a name in so many pieces.
pub(crate) fn replace(kind: Kind, name: &[u8], before: usize, value: Option<&[u8]>) -> Vec<Write> {
    let mut pieces: Vec<Option<&[u8]>> = match value {
        Some([]) => vec![Some(&[])],
        Some(value) => value.chunks(PIECE).map(Some).collect(),
        None => Vec::new(),
    };
    pieces.resize(pieces.len().max(before), None);
    // Where somebody removed a first piece by hand, others of it are left: none may be taken for one of this value.
    if pieces.last().is_some_and(|last| last.is_some_and(|last| last.len() == PIECE)) {
        pieces.push(None);
    }
    let pieces = pieces.into_iter().enumerate();
    let writes = pieces.map(|(number, piece)| {
        let (tree, name) = match number {
            0 => (kind.tree(), name.to_vec()),
            _ => (commit::PIECES, kind.name(name, number)),
        };
        (tree, IVec::from(name), piece.map(IVec::from))
    });
    writes.collect()
}

/// What is kept in pieces, inside a transaction on the trees of a batch.
#[derive(Clone, Copy)]
pub(crate) struct Pieces<'v>(pub(crate) &'v [TransactionalTree]);

impl Pieces<'_> {
    /// What is under a name.
    pub(crate) fn get(self, kind: Kind, name: &[u8]) -> Result<Option<IVec>, Trouble> {
        let pieces = self.all(kind, name)?;
        Ok((!pieces.is_empty()).then(|| join(pieces)))
    }

    /// The writes that put a value, or nothing, in the place of what is under a name.
    pub(crate) fn replace(
        self,
        kind: Kind,
        name: &[u8],
        value: Option<&[u8]>,
    ) -> Result<Vec<Write>, Trouble> {
        // Where there is nothing, removing it does no harm.
        let before = self.all(kind, name)?.len().max(1);
        Ok(replace(kind, name, before, value))
    }

    fn all(self, kind: Kind, name: &[u8]) -> Result<Vec<IVec>, Trouble> {
        let Some(first) = commit::get(&self.0[kind.tree()], name)? else {
            return Ok(Vec::new());
        };
        let get = |name: &[u8]| commit::get(&self.0[commit::PIECES], name);
        follow(kind, name, first, get)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    type Stored = BTreeMap<(usize, IVec), IVec>;

    fn put(stored: &mut Stored, name: &[u8], before: usize, value: Option<&[u8]>) {
        for (tree, name, value) in replace(Kind::Value, name, before, value) {
            match value {
                Some(value) => stored.insert((tree, name), value),
                None => stored.remove(&(tree, name)),
            };
        }
    }

    fn pieces(stored: &Stored, name: &[u8]) -> Vec<IVec> {
        let get = |tree, name: &[u8]| stored.get(&(tree, IVec::from(name))).cloned();
        let Some(first) = get(commit::VALUES, name) else { return Vec::new() };
        let next = |name: &[u8]| Ok::<_, ()>(get(commit::PIECES, name));
        follow(Kind::Value, name, first, next).unwrap()
    }

    /// Lengths about those of one piece, two and three, and bytes of that length that do not repeat in a piece.
    fn values() -> Vec<Vec<u8>> {
        let lengths = (0..=3).flat_map(|pieces| {
            let whole = pieces * PIECE;
            [whole.saturating_sub(1), whole, whole + 1]
        });
        lengths.map(|length| (0..251).cycle().take(length).collect()).collect()
    }

    #[test]
    fn a_piece_that_is_left_over_is_none_of_another_values() {
        let mut stored = Stored::new();
        put(&mut stored, b"name", 0, Some(&[1; 3 * PIECE]));
        stored.remove(&(commit::VALUES, IVec::from(b"name")));
        for pieces_of_it in [1, 2] {
            let value = vec![2; pieces_of_it * PIECE];
            put(&mut stored, b"name", 1, Some(&value));
            assert!(join(pieces(&stored, b"name")) == value[..], "{pieces_of_it}");
        }
    }

    #[test]
    fn a_value_of_any_length_replaces_one_of_any_other_and_leaves_no_piece() {
        let count = |value: &[u8]| value.len().div_ceil(PIECE).max(1);
        let other = vec![7; 3 * PIECE];
        for before in values() {
            for after in values() {
                let mut stored = Stored::new();
                put(&mut stored, b"other", 0, Some(&other));
                put(&mut stored, b"name", 0, Some(&before));
                assert_eq!(pieces(&stored, b"name").len(), count(&before));
                put(&mut stored, b"name", count(&before), Some(&after));
                assert_eq!(stored.len(), 3 + count(&after));
                assert!(join(pieces(&stored, b"name")) == after[..]);
                put(&mut stored, b"name", count(&after), None);
                assert_eq!(stored.len(), 3);
                assert!(join(pieces(&stored, b"other")) == other[..]);
            }
        }
    }

    #[test]
    fn what_an_earlier_version_stored_in_one_entry_is_whole() {
        let (mut stored, long) = (Stored::new(), vec![7; 2 * PIECE]);
        stored.insert((commit::VALUES, IVec::from("name")), IVec::from(&*long));
        assert!(pieces(&stored, b"name") == [IVec::from(&*long)]);
        put(&mut stored, b"name", 1, Some(&long));
        assert_eq!(pieces(&stored, b"name").len(), 2);
    }
}
