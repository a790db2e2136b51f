//! Writes deterministic CBOR (RFC 8949, section 4.2.1).
//!
//! Everything is appended to one buffer. The two things that are known only
//! when a container ends, the count in its header and the order of its
//! members, are settled then and in place.

use super::FingerprintError;

/// Levels of arrays and maps.
pub(super) const MAX_DEPTH: usize = 128;

/// `Some`s and newtype structs on one path. They leave no trace in the form,
/// but a recursive type made of nothing else would exhaust the stack.
const MAX_WRAPPERS: usize = 4 * MAX_DEPTH;

/// Characters of a member's name that an error repeats.
const MAX_NAME: usize = 64;

/// Major types (RFC 8949, section 3.1).
const UNSIGNED: u8 = 0;
const NEGATIVE: u8 = 1;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const ARRAY: u8 = 4;
const MAP: u8 = 5;
const TAG: u8 = 6;

/// Tags of bignums (RFC 8949, section 3.4.3).
const POSITIVE_BIGNUM: u64 = 2;
const NEGATIVE_BIGNUM: u64 = 3;

/// Initial bytes of major type 7 (RFC 8949, section 3.3).
const FALSE: u8 = 0xf4;
const TRUE: u8 = 0xf5;
const NULL: u8 = 0xf6;
const HALF: u8 = 0xf9;
const SINGLE: u8 = 0xfa;
const DOUBLE: u8 = 0xfb;

/// The buffer and the bookkeeping of open containers.
#[derive(Default)]
pub(super) struct Encoder {
    out: Vec<u8>,
    /// Members of all open maps, those of the innermost map last.
    members: Vec<Member>,
    scratch: Vec<u8>,
    depth: usize,
    wrappers: usize,
    spoiled: bool,
    is_of_a_result: bool,
    /// Whether some key of a map is no text.
    has_other_keys: bool,
}

/// Where a member of an open map lies in the buffer.
struct Member {
    start: usize,
    value: usize,
    end: usize,
    /// Offset of the key in the JSON text, if there is one.
    origin: Option<usize>,
}

/// A header whose count is not known yet.
struct Header {
    start: usize,
    reserved: usize,
    major: u8,
    /// Depth to return to, which is that outside of the container.
    outside: usize,
}

/// An array that is being written.
pub(super) struct OpenArray {
    header: Header,
    count: u64,
}

/// A map that is being written.
pub(super) struct OpenMap {
    header: Header,
    first: usize,
}

/// The key of a member whose value is not written yet.
pub(super) struct Key {
    start: usize,
    value: usize,
    origin: Option<usize>,
}

impl Encoder {
    /// The finished form.
    ///
    /// Fails if a part of the value failed and the failure was swallowed: the
    /// buffer then holds the torso of that part.
    pub(super) fn finish(self) -> Result<Vec<u8>, FingerprintError> {
        self.refuse_torso()?;
        Ok(self.out)
    }

    /// As [`finish`](Self::finish), with whether all keys of maps are texts.
    pub(super) fn finish_with_keys(self) -> Result<bool, FingerprintError> {
        let keys_are_texts = !self.has_other_keys;
        self.finish().map(|_| keys_are_texts)
    }

    /// Notes that a failure was handed to code that might ignore it.
    pub(super) fn watch<T>(
        &mut self,
        result: Result<T, FingerprintError>,
    ) -> Result<T, FingerprintError> {
        self.spoiled |= result.is_err();
        result
    }

    /// One for a value that JSON must give back.
    pub(super) fn of_a_result() -> Self {
        Self { out: Vec::with_capacity(128), is_of_a_result: true, ..Self::default() }
    }

    /// Whether the value must read back as what it is, and need not be the same each time.
    pub(super) fn is_of_a_result(&self) -> bool {
        self.is_of_a_result
    }

    /// Refuses what is present and yet was written, from `start` on, as null.
    pub(super) fn check_present(&self, start: usize) -> Result<(), FingerprintError> {
        if self.is_of_a_result && self.out[start..] == [NULL] {
            let message = "a value that is present is written as null and reads back as absent";
            return Err(FingerprintError::Serialize { message: message.to_owned() });
        }
        Ok(())
    }

    pub(super) fn null(&mut self) {
        self.out.push(NULL);
    }

    pub(super) fn boolean(&mut self, value: bool) {
        self.out.push(if value { TRUE } else { FALSE });
    }

    /// Writes `argument`, or `-1 - argument` if `negative`.
    pub(super) fn integer(&mut self, negative: bool, argument: u128) {
        match u64::try_from(argument) {
            Ok(argument) => self.head(if negative { NEGATIVE } else { UNSIGNED }, argument),
            Err(_) => self.bignum(negative, &argument.to_be_bytes()),
        }
    }

    /// Writes an integer like [`integer`](Self::integer) does, from the bytes
    /// of an argument that has more than 64 bits.
    pub(super) fn bignum(&mut self, negative: bool, big_endian: &[u8]) {
        let zeros = big_endian.iter().take_while(|byte| **byte == 0).count();
        let minimal = &big_endian[zeros..];
        debug_assert!(minimal.len() > 8, "RFC 8949, 4.2.1 wants no bignum here");
        let tag = if negative { NEGATIVE_BIGNUM } else { POSITIVE_BIGNUM };
        self.head(TAG, tag);
        self.bytes(minimal);
    }

    /// Writes the shortest float that has the same value.
    pub(super) fn float(&mut self, value: f64) -> Result<(), FingerprintError> {
        if !value.is_finite() {
            return Err(FingerprintError::NonFinite);
        }
        // The sum of -0.0 and 0.0 is 0.0, and nothing else changes.
        let value = value + 0.0;
        let single = value as f32;
        if f64::from(single) != value {
            self.out.push(DOUBLE);
            self.out.extend_from_slice(&value.to_be_bytes());
        } else if let Some(half) = exact_half(single) {
            self.out.push(HALF);
            self.out.extend_from_slice(&half.to_be_bytes());
        } else {
            self.out.push(SINGLE);
            self.out.extend_from_slice(&single.to_be_bytes());
        }
        Ok(())
    }

    pub(super) fn bytes(&mut self, value: &[u8]) {
        self.head(BYTES, length(value.len()));
        self.out.extend_from_slice(value);
    }

    pub(super) fn text(&mut self, value: &str) {
        self.head(TEXT, length(value.len()));
        self.out.extend_from_slice(value.as_bytes());
    }

    /// Takes back everything from `start` on.
    pub(super) fn take_from(&mut self, start: usize) -> Vec<u8> {
        self.out.split_off(start)
    }

    /// Where the next byte goes.
    pub(super) fn position(&self) -> usize {
        self.out.len()
    }

    /// Steps into something that leaves no trace in the form.
    pub(super) fn enter_wrapper(&mut self) -> Result<(), FingerprintError> {
        if self.wrappers == MAX_WRAPPERS {
            return Err(FingerprintError::TooDeep { offset: None });
        }
        self.wrappers += 1;
        Ok(())
    }

    /// Ends what [`enter_wrapper`](Self::enter_wrapper) began.
    pub(super) fn leave_wrapper(&mut self) {
        self.wrappers -= 1;
    }

    /// Begins a map with one member, whose value is still to come.
    pub(super) fn begin_variant(&mut self, name: &str) -> Result<(), FingerprintError> {
        self.descend()?;
        self.head(MAP, 1);
        self.text(name);
        Ok(())
    }

    /// Ends what [`begin_variant`](Self::begin_variant) began.
    pub(super) fn end_variant(&mut self) {
        self.depth -= 1;
    }

    /// Begins an array. `hint` only saves work if it is right.
    pub(super) fn begin_array(
        &mut self,
        hint: Option<usize>,
    ) -> Result<OpenArray, FingerprintError> {
        let header = self.open(ARRAY, hint)?;
        Ok(OpenArray { header, count: 0 })
    }

    pub(super) fn end_array(&mut self, array: OpenArray) {
        self.close(array.header, array.count);
    }

    /// Begins a map. `hint` only saves work if it is right.
    pub(super) fn begin_map(&mut self, hint: Option<usize>) -> Result<OpenMap, FingerprintError> {
        let header = self.open(MAP, hint)?;
        let first = self.members.len();
        Ok(OpenMap { header, first })
    }

    /// Marks what was written since `start` as a key.
    pub(super) fn key_since(&mut self, start: usize, origin: Option<usize>) -> Key {
        self.has_other_keys |= self.out.get(start).is_none_or(|initial| initial >> 5 != TEXT);
        Key { start, value: self.out.len(), origin }
    }

    /// Marks what was written since `key` as its value.
    pub(super) fn end_member(&mut self, key: Key) {
        self.members.push(Member {
            start: key.start,
            value: key.value,
            end: self.out.len(),
            origin: key.origin,
        });
    }

    /// Ends a map: sorts its members and rejects duplicates.
    pub(super) fn end_map(&mut self, map: OpenMap) -> Result<(), FingerprintError> {
        // After a failure the list of members may not match the buffer.
        self.refuse_torso()?;
        let count = self.members.len() - map.first;
        if !self.is_sorted(map.first) {
            self.sort_members(map.first)?;
        }
        self.members.truncate(map.first);
        self.close(map.header, length(count));
        Ok(())
    }

    fn refuse_torso(&self) -> Result<(), FingerprintError> {
        if self.spoiled {
            return Err(FingerprintError::Serialize {
                message: "a part of the value failed and the failure was ignored".to_owned(),
            });
        }
        Ok(())
    }

    /// Whether the members from `first` on have strictly ascending keys.
    fn is_sorted(&self, first: usize) -> bool {
        self.members[first..].is_sorted_by(|a, b| self.key(a) < self.key(b))
    }

    /// Brings the members from `first` on into the bytewise order of their
    /// encoded keys (RFC 8949, section 4.2.1).
    fn sort_members(&mut self, first: usize) -> Result<(), FingerprintError> {
        let out = &self.out;
        let key = |member: &Member| &out[member.start..member.value];
        // Equal keys stay in the order of the input, so that the second one
        // is reported.
        self.members[first..]
            .sort_unstable_by(|a, b| key(a).cmp(key(b)).then(a.start.cmp(&b.start)));
        self.reject_duplicates(first)?;
        self.rewrite_members(first);
        Ok(())
    }

    fn reject_duplicates(&self, first: usize) -> Result<(), FingerprintError> {
        let duplicate =
            self.members[first..].windows(2).find(|pair| self.key(&pair[0]) == self.key(&pair[1]));
        match duplicate {
            None => Ok(()),
            Some(pair) => Err(FingerprintError::DuplicateMember {
                name: text_of(self.key(&pair[1])).map(|name| name.chars().take(MAX_NAME).collect()),
                offset: pair[1].origin,
            }),
        }
    }

    /// Moves the bytes of the members from `first` on into the order in which
    /// the members are listed. Together they are the tail of the buffer.
    fn rewrite_members(&mut self, first: usize) {
        self.scratch.clear();
        for member in &self.members[first..] {
            self.scratch.extend_from_slice(&self.out[member.start..member.end]);
        }
        let body = self.out.len() - self.scratch.len();
        self.out[body..].copy_from_slice(&self.scratch);
    }

    fn key(&self, member: &Member) -> &[u8] {
        &self.out[member.start..member.value]
    }

    fn descend(&mut self) -> Result<(), FingerprintError> {
        if self.depth == MAX_DEPTH {
            return Err(FingerprintError::TooDeep { offset: None });
        }
        self.depth += 1;
        Ok(())
    }

    /// Begins a container with room for the header that `hint` calls for.
    fn open(&mut self, major: u8, hint: Option<usize>) -> Result<Header, FingerprintError> {
        let outside = self.depth;
        self.descend()?;
        let start = self.out.len();
        self.head(major, length(hint.unwrap_or(0)));
        Ok(Header { start, reserved: self.out.len() - start, major, outside })
    }

    /// Ends a container: its header gets the true count, and if that needs
    /// another length than was reserved, the content moves.
    fn close(&mut self, header: Header, count: u64) {
        let (bytes, len) = head(header.major, count);
        let room = header.start..header.start + header.reserved;
        if room.len() == len {
            self.out[room].copy_from_slice(&bytes[..len]);
        } else {
            self.out.splice(room, bytes[..len].iter().copied());
        }
        self.depth = header.outside;
    }

    fn head(&mut self, major: u8, argument: u64) {
        let (bytes, len) = head(major, argument);
        self.out.extend_from_slice(&bytes[..len]);
    }
}

impl OpenArray {
    /// Counts an element that was written.
    pub(super) fn count_element(&mut self) {
        self.count += 1;
    }

    /// Makes the array the content of a variant, which it then ends as well.
    pub(super) fn within_variant(mut self) -> Self {
        self.header.outside -= 1;
        self
    }
}

impl OpenMap {
    /// Makes the map the content of a variant, which it then ends as well.
    pub(super) fn within_variant(mut self) -> Self {
        self.header.outside -= 1;
        self
    }
}

/// The shortest head (RFC 8949, section 3) and its length in bytes.
fn head(major: u8, argument: u64) -> ([u8; 9], usize) {
    let mut bytes = [0; 9];
    let be = argument.to_be_bytes();
    // The argument is in the initial byte, or in the last `size` bytes of `be`.
    let (info, size) = match argument {
        0..24 => (be[7], 0),
        24..=0xff => (24, 1),
        0x100..=0xffff => (25, 2),
        0x1_0000..=0xffff_ffff => (26, 4),
        _ => (27, 8),
    };
    bytes[0] = major << 5 | info;
    bytes[1..=size].copy_from_slice(&be[8 - size..]);
    (bytes, 1 + size)
}

/// The text that `encoded` is, if it is a single text string.
pub(super) fn text_of(encoded: &[u8]) -> Option<&str> {
    let (&initial, rest) = encoded.split_first()?;
    if initial >> 5 != TEXT {
        return None;
    }
    let size = match initial & 0x1f {
        24 => 1,
        25 => 2,
        26 => 4,
        27 => 8,
        _ => 0,
    };
    std::str::from_utf8(rest.get(size..)?).ok()
}

/// A length in memory as CBOR counts it.
fn length(len: usize) -> u64 {
    u64::try_from(len).expect("a length in memory fits 64 bits")
}

/// The binary16 with the same value as `value`, which is finite and not -0.0.
fn exact_half(value: f32) -> Option<u16> {
    if value == 0.0 {
        return Some(0);
    }
    let bits = value.to_bits();
    let sign = bits >> 16 & 0x8000;
    let biased = bits >> 23 & 0xff;
    let fraction = bits & 0x007f_ffff;
    let half = match biased {
        // Exponents -24 to -15, which are subnormal in binary16: its last
        // place is 2^-24, so the significand with its leading one is shifted
        // until that place is the last.
        103..=112 => exact_shift(fraction | 0x0080_0000, 126 - biased)?,
        // Exponents -14 to 15: 13 places of the fraction go, and the bias
        // changes from 127 to 15.
        113..=142 => (biased - 112) << 10 | exact_shift(fraction, 13)?,
        _ => return None,
    };
    u16::try_from(sign | half).ok()
}

/// `value >> places` if only zeros are shifted out.
fn exact_shift(value: u32, places: u32) -> Option<u32> {
    (value.trailing_zeros() >= places).then_some(value >> places)
}
