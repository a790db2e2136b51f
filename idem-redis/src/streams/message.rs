//! What is delivered, and what identifies a delivery.

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
