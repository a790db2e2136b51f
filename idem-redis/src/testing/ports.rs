//! Ports that nobody uses.

use std::{
    hash::{BuildHasher, RandomState},
    io,
    net::{Ipv4Addr, TcpListener},
    ops::Range,
};

/// Below what systems give to outgoing connections: one of those could take the port of a server that is
/// down, or even connect to itself there.
const RANGE: Range<u16> = 10_000..32_000;

/// A listener on a free port of the loopback interface.
pub(crate) fn listen() -> io::Result<TcpListener> {
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..100 {
        match TcpListener::bind((Ipv4Addr::LOCALHOST, random())) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A port that was free a moment ago: whoever binds it must expect that it is taken, and try another.
pub(crate) fn free() -> io::Result<u16> {
    Ok(listen()?.local_addr()?.port())
}

/// Random, so that programs that start servers at the same time rarely want the same port.
fn random() -> u16 {
    // A fresh state has fresh keys.
    let hash = RandomState::new().hash_one(std::process::id());
    RANGE.start + (hash % u64::from(RANGE.end - RANGE.start)) as u16
}
