//! What may become of stored bytes, for tests of a backend that puts it in their place.

/// Every way to change one byte to some others, every way to cut the end, and some bytes more.
#[must_use]
pub fn damaged(stored: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for at in 0..stored.len() {
        for byte in [stored[at] ^ 1, stored[at] ^ 0x80, b'0', b'-', b' ', b'\n', 0] {
            let mut changed = stored.to_vec();
            changed[at] = byte;
            all.push(changed);
        }
        all.push(stored[..at].to_vec());
    }
    for more in [&b"x"[..], b" ", b"\n", b"\0", stored] {
        all.push([stored, more].concat());
    }
    all.retain(|changed| changed != stored);
    all
}
