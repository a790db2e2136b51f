//! Ports that nobody uses.

use std::{
    collections::BTreeSet,
    hash::{BuildHasher, RandomState},
    io,
    net::{Ipv4Addr, TcpListener},
    ops::Range,
};

use idem_core::locks::Mutex;

/// Below what systems give to outgoing connections: one of those could take the port of a server that is
/// down, or even connect to itself there.
const RANGE: Range<u16> = 10_000..32_000;

/// The ports that this program has chosen and still wants, also while nobody listens there.
static WANTED: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A port that nobody else in this program chooses before it is dropped: whoever is down can come back.
#[derive(Debug)]
pub(crate) struct Port(u16);

impl Port {
    pub(crate) fn number(&self) -> u16 {
        self.0
    }

    /// A random one, so that programs that start servers at the same time rarely want the same port.
    fn random() -> Self {
        loop {
            // A fresh state has fresh keys.
            let hash = RandomState::new().hash_one(std::process::id());
            let port = RANGE.start + (hash % u64::from(RANGE.end - RANGE.start)) as u16;
            if WANTED.lock().insert(port) {
                return Self(port);
            }
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        WANTED.lock().remove(&self.0);
    }
}

/// A listener on a free port of the loopback interface.
pub(crate) fn listen() -> io::Result<(TcpListener, Port)> {
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..100 {
        let port = Port::random();
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port.number())) {
            Ok(listener) => return Ok((listener, port)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A port that was free a moment ago: whoever binds it must expect that another program takes it, and try another.
pub(crate) fn free() -> io::Result<Port> {
    Ok(listen()?.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_wanted_until_it_is_dropped() {
        let port = free().unwrap();
        let number = port.number();
        assert!(WANTED.lock().contains(&number));
        drop(port);
        assert!(!WANTED.lock().contains(&number));
    }
}
