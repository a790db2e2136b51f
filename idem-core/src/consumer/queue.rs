//! What a consumer needs of a queue.

use std::time::Duration;

use async_trait::async_trait;

use crate::{Error, error::BoxError};

/// An at-least-once queue: what is received stays in flight until it is settled (acked, given back or set
/// aside), and comes again if it is not.
#[async_trait]
pub trait Queue: Send + Sync {
    /// What is delivered.
    type Message: Send;
    /// Identifies one delivery of a message to its queue.
    type Tag: Send + Sync;

    /// At most `max` deliveries, as many as are there; none when the queue has nothing to give.
    ///
    /// A queue that can wait for a message may do so for a while: a second, say, and not for long, since a
    /// consumer that is told to end waits for the answer.
    ///
    /// # Errors
    /// The queue's own.
    ///
    /// # Cancel safety
    /// What would have been delivered may be in flight until its [visibility](Queue::visibility) has passed.
    async fn receive(
        &self,
        max: usize,
    ) -> Result<Vec<Delivery<Self::Message, Self::Tag>>, BoxError>;

    /// Removes a delivered message for good.
    ///
    /// # Errors
    /// The queue's own; also if the delivery is no longer in flight here, and then it settles nothing.
    async fn ack(&self, tag: &Self::Tag) -> Result<(), BoxError>;

    /// Gives a delivered message back, to be delivered again, at once or later as the queue sees fit; `reason`
    /// says why.
    ///
    /// # Errors
    /// As [`Queue::ack`].
    async fn nack(&self, tag: &Self::Tag, reason: &Error) -> Result<(), BoxError>;

    /// Sets a delivered message aside for good (a dead letter), so that it is not delivered again; `reason`
    /// says why.
    ///
    /// # Errors
    /// As [`Queue::ack`].
    async fn set_aside(&self, tag: &Self::Tag, reason: &Error) -> Result<(), BoxError>;

    /// Keeps a delivered message in flight for another [visibility](Queue::visibility) from now.
    ///
    /// # Errors
    /// As [`Queue::ack`].
    ///
    /// # Cancel safety
    /// The message is kept in flight or not: a delivery may be settled before this was answered.
    async fn extend(&self, tag: &Self::Tag) -> Result<(), BoxError>;

    /// How long a delivery stays in flight unless it is settled or extended; none if it does so until its
    /// consumer is gone.
    fn visibility(&self) -> Option<Duration>;

    /// How long after its first delivery the queue may still deliver a message, or another of the same event,
    /// again; none if there is no such bound.
    fn horizon(&self) -> Option<Duration>;
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
    /// How often the message has been delivered, this time included: 1 at first.
    pub attempt: u32,
}

impl<M, T> Delivery<M, T> {
    /// The first delivery of the event with that id.
    pub fn new(event_id: impl Into<String>, message: M, tag: T) -> Self {
        Self { event_id: event_id.into(), message, tag, attempt: 1 }
    }

    /// The same as the delivery of that number, from 1.
    #[must_use]
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.attempt = attempt;
        self
    }
}
