//! What names one logical action.

use std::{fmt, sync::Arc};

use uuid::Uuid;

use crate::{Error, ErrorKind, error::Field};

/// What a key names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A request: `(tenant, operation, request key)`.
    Request,
    /// An event as one consumer sees it: `(consumer, event id)`.
    Event,
}

impl Kind {
    /// The kind's name, as stores write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Event => "event",
        }
    }

    pub(crate) const fn as_byte(self) -> u8 {
        match self {
            Self::Request => b'r',
            Self::Event => b'e',
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Request, Self::Event].into_iter().find(|kind| kind.as_byte() == byte)
    }

    /// The kind of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Request, Self::Event].into_iter().find(|kind| kind.as_str() == name)
    }
}

/// One logical action: `(tenant, operation, request key)`, or `(consumer, event id)`.
///
/// Each part is UTF-8 of 1 to 255 bytes (a tenant may be empty: the default tenant) without control
/// characters. Parts are compared byte by byte: no normalisation, no case folding, no trimming, and
/// `("a:b", "c")` is never `("a", "b:c")`. A consumer is never taken for a tenant of the same name.
///
/// A clone is cheap.
///
/// ```
/// # fn main() -> Result<(), idem_core::Error> {
/// use idem_core::Key;
/// let key = Key::new("north", "web-order", "intent-a")?;
/// assert_eq!((key.tenant(), key.operation(), key.request()), ("north", "web-order", "intent-a"));
/// assert!(Key::new("north", "", "intent-a").is_err());
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key {
    kind: Kind,
    tenant: u8,
    operation: u8,
    // The parts one after the other; the lengths above tell them apart.
    text: Arc<str>,
}

impl Key {
    /// The longest part in bytes.
    pub const MAX_PART: usize = 255;

    /// The key of a request.
    ///
    /// `request` is what the client sent: a string, a [`Uuid`], anything that prints.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`] naming the part, if one is too long, holds a control character, or is
    /// empty (only the tenant may be).
    pub fn new(tenant: &str, operation: &str, request: impl fmt::Display) -> Result<Self, Error> {
        check("tenant", tenant)?;
        check_given("operation", operation)?;
        let request = request.to_string();
        check_given("request key", &request)?;
        Ok(Self::join(Kind::Request, tenant, operation, &request))
    }

    /// The key of a request that brought none: a random one (UUID version 4).
    ///
    /// # Errors
    /// As [`Key::new`].
    pub fn fresh(tenant: &str, operation: &str) -> Result<Self, Error> {
        Self::new(tenant, operation, Uuid::new_v4())
    }

    /// As [`Key::fresh`], but later keys sort after earlier ones (UUID version 7).
    ///
    /// # Errors
    /// As [`Key::new`].
    pub fn fresh_ordered(tenant: &str, operation: &str) -> Result<Self, Error> {
        Self::new(tenant, operation, Uuid::now_v7())
    }

    /// The key of an event as one consumer sees it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`] naming the part, if one is empty, too long, or holds a control character.
    pub fn event(consumer: &str, event_id: impl fmt::Display) -> Result<Self, Error> {
        check_given("consumer", consumer)?;
        let event_id = event_id.to_string();
        check_given("event id", &event_id)?;
        Ok(Self::join(Kind::Event, consumer, "", &event_id))
    }

    /// The key of these parts, as a store reads them back.
    ///
    /// # Errors
    /// As [`Key::new`] and [`Key::event`]; also if an event has an operation.
    pub fn from_parts(
        kind: Kind,
        tenant: &str,
        operation: &str,
        request: &str,
    ) -> Result<Self, Error> {
        match kind {
            Kind::Request => Self::new(tenant, operation, request),
            Kind::Event if operation.is_empty() => Self::event(tenant, request),
            Kind::Event => Err(invalid("operation", operation, "an event has none")),
        }
    }

    /// The key as bytes: its kind, the lengths of tenant and operation, then the parts.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(3 + self.text.len());
        bytes.extend([self.kind.as_byte(), self.tenant, self.operation]);
        bytes.extend(self.text.as_bytes());
        bytes
    }

    /// The key of these bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] if [`Key::to_bytes`] cannot have made them.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let damaged = || {
            let problem = format!("{} bytes are no key", bytes.len());
            Error::nothing_done(ErrorKind::Damaged { problem })
        };
        let key = || {
            let (&[kind, tenant, operation], text) = bytes.split_first_chunk::<3>()?;
            let text = std::str::from_utf8(text).ok()?;
            let (tenant, rest) = text.split_at_checked(tenant.into())?;
            let (operation, request) = rest.split_at_checked(operation.into())?;
            Self::from_parts(Kind::from_byte(kind)?, tenant, operation, request).ok()
        };
        key().ok_or_else(damaged)
    }

    fn join(kind: Kind, tenant: &str, operation: &str, request: &str) -> Self {
        let length = |part: &str| u8::try_from(part.len()).expect("parts are 255 bytes at most");
        let mut text = String::with_capacity(tenant.len() + operation.len() + request.len());
        text.push_str(tenant);
        text.push_str(operation);
        text.push_str(request);
        Self { kind, tenant: length(tenant), operation: length(operation), text: text.into() }
    }

    /// What the key names.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The tenant; of an event, its consumer.
    #[must_use]
    pub fn tenant(&self) -> &str {
        &self.text[..usize::from(self.tenant)]
    }

    /// The operation; of an event, nothing.
    #[must_use]
    pub fn operation(&self) -> &str {
        &self.text[usize::from(self.tenant)..][..usize::from(self.operation)]
    }

    /// The request key; of an event, its id.
    #[must_use]
    pub fn request(&self) -> &str {
        &self.text[usize::from(self.tenant) + usize::from(self.operation)..]
    }

    /// The effect space that the key's effect reads and writes.
    #[must_use]
    pub fn space(&self) -> Space {
        Space { kind: self.kind, owner: self.tenant().into() }
    }

    fn parts(&self) -> (Kind, &str, &str, &str) {
        (self.kind, self.tenant(), self.operation(), self.request())
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Request => {
                write!(f, "Key({:?}, {:?}, {:?})", self.tenant(), self.operation(), self.request())
            }
            Kind::Event => write!(f, "Key::event({:?}, {:?})", self.tenant(), self.request()),
        }
    }
}

/// The part of a store that the effects of one tenant, or of one consumer, share: bytes under byte names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Space {
    kind: Kind,
    owner: Arc<str>,
}

impl Space {
    /// The space of a tenant's requests; `""` is the default tenant's.
    ///
    /// # Errors
    /// As [`Key::new`] has of its tenant.
    pub fn tenant(tenant: &str) -> Result<Self, Error> {
        check("tenant", tenant)?;
        Ok(Self { kind: Kind::Request, owner: tenant.into() })
    }

    /// The space of a consumer's events.
    ///
    /// # Errors
    /// As [`Key::event`] has of its consumer.
    pub fn consumer(consumer: &str) -> Result<Self, Error> {
        check_given("consumer", consumer)?;
        Ok(Self { kind: Kind::Event, owner: consumer.into() })
    }

    /// Whether it is a tenant's or a consumer's.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The tenant or the consumer.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// The name `name` of a value in this space as bytes that no name in another space has: the space's kind, the
    /// length of its owner, the owner, then the name.
    #[must_use]
    pub fn to_bytes(&self, name: &[u8]) -> Vec<u8> {
        let owner = self.owner.as_bytes();
        let length =
            u8::try_from(owner.len()).expect("an owner is a key's part: 255 bytes at most");
        [&[self.kind.as_byte(), length], owner, name].concat()
    }
}

/// What the bytes of a key in `space` begin with, if its operation is so long and begins with `operation`.
pub(crate) fn prefix(space: &Space, length: usize, operation: &str) -> Vec<u8> {
    let byte = |length| u8::try_from(length).expect("parts are 255 bytes at most");
    let owner = space.owner().as_bytes();
    let head = [space.kind().as_byte(), byte(owner.len()), byte(length)];
    [&head[..], owner, operation.as_bytes()].concat()
}

pub(crate) fn check_given(field: Field, part: &str) -> Result<(), Error> {
    if part.is_empty() {
        return Err(invalid(field, part, "it is empty: give 1 to 255 bytes"));
    }
    check(field, part)
}

fn check(field: Field, part: &str) -> Result<(), Error> {
    if part.len() > Key::MAX_PART {
        return Err(invalid(field, part, "it is too long: give at most 255 bytes, or a hash"));
    }
    if part.chars().any(char::is_control) {
        return Err(invalid(field, part, "it holds a control character: encode it"));
    }
    Ok(())
}

fn invalid(field: Field, part: &str, problem: &'static str) -> Error {
    Error::nothing_done(ErrorKind::InvalidKey { field, length: part.len(), problem })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_names_of_kinds_are_pinned() {
        for (kind, name) in [(Kind::Request, "request"), (Kind::Event, "event")] {
            assert_eq!((kind.as_str(), Kind::from_name(name)), (name, Some(kind)));
        }
        assert_eq!(Kind::from_name("Event"), None);
    }

    #[test]
    fn a_space_says_whose_it_is() {
        let (north, billing) =
            (Space::tenant("north").unwrap(), Space::consumer("billing").unwrap());
        assert_eq!((north.kind(), north.owner()), (Kind::Request, "north"));
        assert_eq!((billing.kind(), billing.owner()), (Kind::Event, "billing"));
    }

    #[test]
    fn parts_are_never_joined() {
        let keys = [
            Key::new("a:b", "c", "d"),
            Key::new("a", "b:c", "d"),
            Key::new("a", "b", "c:d"),
            Key::new("ab", "c", "d"),
            Key::new("a", "bc", "d"),
            Key::new("a", "b", "cd"),
            Key::new("", "ab", "cd"),
            Key::event("a", "bcd"),
            Key::event("ab", "cd"),
        ];
        let keys: HashSet<Key> = keys.into_iter().map(Result::unwrap).collect();
        assert_eq!(keys.len(), 9);
    }

    #[test]
    fn a_bad_part_is_named_with_its_length() {
        let problem = |key: Result<Key, Error>| key.unwrap_err().to_string();
        let long = "é".repeat(128);
        assert!(
            problem(Key::new(&long, "o", "k"))
                .starts_with("invalid tenant of 256 bytes: it is too")
        );
        assert!(
            problem(Key::new("t", "", "k"))
                .starts_with("invalid operation of 0 bytes: it is empty")
        );
        assert!(
            problem(Key::new("t", "o", "a\0b"))
                .starts_with("invalid request key of 3 bytes: it holds")
        );
        assert!(
            problem(Key::new("t", "o", "\u{85}")).starts_with("invalid request key of 2 bytes")
        );
        assert!(problem(Key::event("", "e")).starts_with("invalid consumer of 0 bytes"));
        assert!(problem(Key::event("c", "")).starts_with("invalid event id of 0 bytes"));
        assert!(Key::new("", "o", "k".repeat(255)).is_ok());
    }

    #[test]
    fn parts_come_back_as_they_were_given() {
        let key = Key::new("ten", "", "").map(|_| ());
        assert!(key.is_err());
        let key = Key::new("ténant", "op", 7).unwrap();
        assert_eq!((key.tenant(), key.operation(), key.request()), ("ténant", "op", "7"));
        let again =
            Key::from_parts(key.kind(), key.tenant(), key.operation(), key.request()).unwrap();
        assert_eq!(again, key);
        let event = Key::event("billing", Uuid::nil()).unwrap();
        assert_eq!(event.request(), "00000000-0000-0000-0000-000000000000");
        assert!(Key::from_parts(Kind::Event, "billing", "op", "1").is_err());
    }

    #[test]
    fn bytes_give_the_key_back_and_damaged_ones_an_error() {
        let keys = [
            Key::new("", "o", "k"),
            Key::new("ténant", "opération", "é"),
            Key::new(&"t".repeat(255), &"o".repeat(255), "k".repeat(255)),
            Key::event("billing", 7),
        ];
        for key in keys.map(Result::unwrap) {
            let bytes = key.to_bytes();
            assert_eq!(Key::from_bytes(&bytes).unwrap(), key);
            for length in 0..bytes.len() {
                // Cut short, it is damaged or another key, and never a panic.
                assert_ne!(Key::from_bytes(&bytes[..length]).ok().as_ref(), Some(&key));
            }
        }
        for damaged in [&b""[..], b"r\x00", b"x\x00\x01ok", b"r\x00\x09ok", b"r\x01\x01\xc3\xa9k"] {
            let error = Key::from_bytes(damaged).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Damaged { .. }), "{damaged:?}: {error}");
        }
    }

    #[test]
    fn spaces_of_tenants_and_consumers_are_apart() {
        assert_ne!(Space::tenant("a").unwrap(), Space::consumer("a").unwrap());
        assert_eq!(Key::event("a", 1).unwrap().space(), Space::consumer("a").unwrap());
        assert_eq!(Key::new("a", "o", 1).unwrap().space(), Space::tenant("a").unwrap());
        assert!(Space::tenant("").is_ok());
        assert!(Space::consumer("").is_err());
    }

    #[test]
    fn values_of_owners_that_look_alike_have_names_of_their_own() {
        let a = Space::tenant("a").unwrap().to_bytes(b"bc");
        assert_eq!(a, b"r\x01abc", "stores keep values under these bytes");
        let ab = Space::tenant("ab").unwrap().to_bytes(b"c");
        let consumer = Space::consumer("a").unwrap().to_bytes(b"bc");
        let default = Space::tenant("").unwrap().to_bytes(b"abc");
        let names: HashSet<Vec<u8>> = [a, ab, consumer, default].into();
        assert_eq!(names.len(), 4);
    }

    #[test]
    fn fresh_keys_differ() {
        assert_ne!(Key::fresh("t", "o").unwrap(), Key::fresh("t", "o").unwrap());
        assert!(Key::fresh_ordered("t", "o").unwrap() < Key::fresh_ordered("t", "o").unwrap());
    }
}
