//! What the rules' keys, spaces, values and fingerprints are called in a store.

use idem_core::{Fingerprint, Key, Space};

use super::calls::{K, Name, Owner};

/// What the keys and the spaces of one run are called: runs in one place have names of their own.
#[derive(Clone, Debug)]
pub(super) struct Names {
    north: String,
    south: String,
}

impl Names {
    pub(super) fn of_run(run: usize) -> Self {
        Self { north: format!("north-{run}"), south: format!("south-{run}") }
    }

    pub(super) fn key(&self, key: K) -> Key {
        let key = match key {
            K::NorthA => Key::new(&self.north, "order", "a"),
            K::NorthB => Key::new(&self.north, "order", "b"),
            K::South => Key::new(&self.south, "order", "a"),
            K::Event => Key::event(&self.north, "event"),
        };
        key.expect("a good key")
    }

    /// The consumer of the event.
    pub(super) fn consumer(&self) -> &str {
        &self.north
    }

    pub(super) fn space(&self, owner: Owner) -> Space {
        let space = match owner {
            Owner::North => Space::tenant(&self.north),
            Owner::South => Space::tenant(&self.south),
            Owner::Consumer => Space::consumer(&self.north),
        };
        space.expect("a good owner")
    }
}

impl Name {
    pub(super) fn as_bytes(self) -> &'static [u8] {
        match self {
            Self::X => b"x",
            Self::Y => b"y",
        }
    }
}

/// The fingerprint of that number.
pub(super) fn fingerprint(number: u8) -> Fingerprint {
    Fingerprint::of_bytes([number])
}
