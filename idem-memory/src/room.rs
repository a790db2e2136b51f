//! How much fits.

use std::sync::atomic::{AtomicUsize, Ordering};

use idem_core::{Error, ErrorKind};

/// How many records and values there are, and may be.
pub(crate) struct Room {
    used: AtomicUsize,
    capacity: Option<usize>,
}

impl Room {
    pub(crate) fn new(capacity: Option<usize>) -> Self {
        Self { used: AtomicUsize::new(0), capacity }
    }

    /// Takes room for `added` entries and gives back that of `removed`.
    pub(crate) fn change(&self, added: usize, removed: usize) -> Result<(), Error> {
        let fits = |used: usize| {
            let after = (used + added).saturating_sub(removed);
            let grows = added > removed;
            (!grows || self.capacity.is_none_or(|capacity| after <= capacity)).then_some(after)
        };
        match self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits) {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::nothing_done(ErrorKind::Full)),
        }
    }

    pub(crate) fn give_back(&self, removed: usize) {
        self.used.fetch_sub(removed, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_taken_and_given_back_exactly() {
        let room = Room::new(Some(3));
        room.change(2, 0).unwrap();
        assert!(matches!(room.change(2, 0).unwrap_err().kind(), ErrorKind::Full));
        room.change(1, 0).unwrap();
        room.change(2, 2).unwrap();
        room.change(0, 1).unwrap();
        room.give_back(1);
        assert_eq!(room.used.load(Ordering::Acquire), 1);
    }
}
