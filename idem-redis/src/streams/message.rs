//! What is delivered, and what identifies a delivery.

use std::fmt;

use bytes::Bytes;

/// An entry of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The entry's id, such as `1764448478123-0`: its time in milliseconds, and a number.
    pub id: String,
    /// Names and values, in the order in which they were sent.
    pub fields: Vec<(Bytes, Bytes)>,
}

impl Message {
    /// The value of the first field of that name.
    #[must_use]
    pub fn field(&self, name: impl AsRef<[u8]>) -> Option<&Bytes> {
        let is_named = |(field, _): &&(Bytes, Bytes)| field == name.as_ref();
        self.fields.iter().find(is_named).map(|(_, value)| value)
    }
}

/// Identifies one delivery of an entry to its queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    pub(super) id: String,
    pub(super) attempt: u64,
}

/// The delivery is not in flight with this consumer: it was settled before, has been taken over by another, or its
/// entry or its group is gone. Nothing was done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotInFlight {
    /// The entry's id.
    pub id: String,
    /// The number of the delivery, from 1.
    pub attempt: u64,
}

impl fmt::Display for NotInFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "delivery {} of the entry {} is not in flight with this consumer",
            self.attempt, self.id
        )
    }
}

impl std::error::Error for NotInFlight {}
