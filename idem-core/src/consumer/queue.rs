//! What a consumer needs of a queue.

use std::{error::Error as StdError, fmt, sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::{Error, error::BoxError};

/// An at-least-once queue: what is received stays in flight until it is settled (acked, given back or set
/// aside), and comes again if it is not.
///
/// An implementation needs the crate `async-trait`. A small one, over a table's rows or a channel, say:
///
/// ```
/// use std::{collections::VecDeque, sync::Mutex, time::Duration};
///
/// use async_trait::async_trait;
/// use idem_core::consumer::{Delivery, NotInFlight, Queue};
/// use idem_core::{BoxError, Error};
///
/// /// An event's id, its amount, and how often it was delivered.
/// type Payment = (String, u64, u32);
///
/// /// Handed out one at a time; what is in flight is kept beside.
/// #[derive(Default)]
/// struct Payments {
///     ready: Mutex<VecDeque<Payment>>,
///     in_flight: Mutex<Vec<Payment>>,
/// }
///
/// impl Payments {
///     fn take(&self, event: &str) -> Result<Payment, BoxError> {
///         let mut in_flight = self.in_flight.lock().map_err(|_| "a caller panicked")?;
///         match in_flight.iter().position(|(id, ..)| id == event) {
///             Some(place) => Ok(in_flight.swap_remove(place)),
///             None => Err(NotInFlight::new(event).into()),
///         }
///     }
/// }
///
/// #[async_trait]
/// impl Queue for Payments {
///     type Message = u64;
///     type Tag = String;
///
///     async fn receive(&self, _: usize) -> Result<Vec<Delivery<u64, String>>, BoxError> {
///         let next = self.ready.lock().map_err(|_| "a caller panicked")?.pop_front();
///         let Some((event, amount, before)) = next else { return Ok(Vec::new()) };
///         let attempt = before + 1;
///         let in_flight = (event.clone(), amount, attempt);
///         self.in_flight.lock().map_err(|_| "a caller panicked")?.push(in_flight);
///         // The queue counts: by this a message that always fails is set aside.
///         Ok(vec![Delivery::new(event.clone(), amount, event).attempt(attempt)])
///     }
///
///     async fn ack(&self, event: &String) -> Result<(), BoxError> {
///         self.take(event).map(drop)
///     }
///
///     async fn nack(&self, event: &String, _: &Error) -> Result<(), BoxError> {
///         let message = self.take(event)?;
///         self.ready.lock().map_err(|_| "a caller panicked")?.push_back(message);
///         Ok(())
///     }
///
///     async fn set_aside(&self, event: &String, reason: &Error) -> Result<(), BoxError> {
///         let (event, amount, _) = self.take(event)?;
///         eprintln!("{event} of {amount} is set aside: {}", reason.with_causes());
///         Ok(())
///     }
///
///     async fn extend(&self, _: &String) -> Result<(), BoxError> {
///         Ok(())
///     }
///
///     fn visibility(&self) -> Option<Duration> {
///         None
///     }
///
///     fn horizon(&self) -> Option<Duration> {
///         None
///     }
/// }
/// ```
#[async_trait]
pub trait Queue: Send + Sync {
    /// What is delivered.
    type Message: Send;
    /// Identifies one delivery of a message to its queue.
    type Tag: Send + Sync;

    /// At most `max` deliveries, as many as are there; none when the queue has nothing to give. More are handled
    /// as well, no more at a time.
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
    /// [`NotInFlight`] if the delivery is no longer in flight here, and then it settles nothing; the queue's own.
    ///
    /// # Cancel safety
    /// The delivery is settled or not; if not, the message comes again.
    async fn ack(&self, tag: &Self::Tag) -> Result<(), BoxError>;

    /// Gives a delivered message back, to be delivered again, at once or later as the queue sees fit; `reason`
    /// says why. Its own text does not hold the handler's words: [`Error::with_causes`] does.
    ///
    /// # Errors
    /// As [`Queue::ack`].
    ///
    /// # Cancel safety
    /// As [`Queue::ack`].
    async fn nack(&self, tag: &Self::Tag, reason: &Error) -> Result<(), BoxError>;

    /// Sets a delivered message aside for good (a dead letter), so that it is not delivered again; `reason`
    /// says why. Its own text does not hold the handler's words: [`Error::with_causes`] does.
    ///
    /// # Errors
    /// As [`Queue::ack`].
    ///
    /// # Cancel safety
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
    /// consumer is gone. Zero is refused before anything is received.
    fn visibility(&self) -> Option<Duration>;

    /// How long after its first delivery the queue may still deliver a message, or another of the same event,
    /// again; none if there is no such bound.
    fn horizon(&self) -> Option<Duration>;
}

macro_rules! queue_behind {
    ($pointer:ty) => {
        #[async_trait]
        impl<Q: Queue + ?Sized> Queue for $pointer {
            type Message = Q::Message;
            type Tag = Q::Tag;

            async fn receive(
                &self,
                max: usize,
            ) -> Result<Vec<Delivery<Self::Message, Self::Tag>>, BoxError> {
                (**self).receive(max).await
            }

            async fn ack(&self, tag: &Self::Tag) -> Result<(), BoxError> {
                (**self).ack(tag).await
            }

            async fn nack(&self, tag: &Self::Tag, reason: &Error) -> Result<(), BoxError> {
                (**self).nack(tag, reason).await
            }

            async fn set_aside(&self, tag: &Self::Tag, reason: &Error) -> Result<(), BoxError> {
                (**self).set_aside(tag, reason).await
            }

            async fn extend(&self, tag: &Self::Tag) -> Result<(), BoxError> {
                (**self).extend(tag).await
            }

            fn visibility(&self) -> Option<Duration> {
                (**self).visibility()
            }

            fn horizon(&self) -> Option<Duration> {
                (**self).horizon()
            }
        }
    };
}

queue_behind!(&Q);
queue_behind!(Arc<Q>);
queue_behind!(Box<Q>);

/// A delivery is not in flight with who asked: it was settled before, or taken back, or is another's by now.
/// Nothing was done.
///
/// What a [`Queue`] returns, boxed. [`consume`](super::consume) takes it for no failure of the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotInFlight {
    delivery: String,
}

impl NotInFlight {
    /// The delivery that is identified so to who reads about it.
    pub fn new(delivery: impl fmt::Display) -> Self {
        Self { delivery: delivery.to_string() }
    }

    /// What identifies the delivery.
    #[must_use]
    pub fn delivery(&self) -> &str {
        &self.delivery
    }
}

impl fmt::Display for NotInFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the delivery {} is not in flight here", self.delivery)
    }
}

impl StdError for NotInFlight {}

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

    /// The same as the delivery of that number, from 1. The queue counts them: a message whose number does not grow never
    /// comes to a limit above one, and so is not [set aside](Queue::set_aside) for its failures.
    #[must_use]
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.attempt = attempt;
        self
    }
}
