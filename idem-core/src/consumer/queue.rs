//! What a consumer needs of a queue.

use async_trait::async_trait;

use crate::error::BoxError;

/// An at-least-once queue: what is received stays in flight until it is acked or given back, and comes
/// again if it is not acked.
#[async_trait]
pub trait Queue: Send + Sync {
    /// What is delivered.
    type Message: Send;
    /// Identifies one delivery of a message to its queue.
    type Tag: Send + Sync;

    /// The next delivery; none when the queue has nothing to give and will not wait.
    ///
    /// # Errors
    /// The queue's own.
    async fn receive(&self) -> Result<Option<Delivery<Self::Message, Self::Tag>>, BoxError>;

    /// Removes a delivered message for good.
    ///
    /// # Errors
    /// The queue's own; also if the delivery is no longer in flight, and then it settles nothing.
    async fn ack(&self, tag: &Self::Tag) -> Result<(), BoxError>;

    /// Gives a delivered message back, to be delivered again; `reason` says why.
    ///
    /// # Errors
    /// As [`Queue::ack`].
    async fn nack(&self, tag: &Self::Tag, reason: &crate::Error) -> Result<(), BoxError>;
}

/// One delivery of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delivery<M, T> {
    /// Identifies the event, the same in every delivery of it.
    pub event_id: String,
    /// What is delivered.
    pub message: M,
    /// Identifies this delivery.
    pub tag: T,
}

impl<M, T> Delivery<M, T> {
    /// A delivery of the event with that id.
    pub fn new(event_id: impl Into<String>, message: M, tag: T) -> Self {
        Self { event_id: event_id.into(), message, tag }
    }
}
