//! What tests and examples need besides the library.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;

use crate::{
    consumer::{Delivery, Queue},
    error::BoxError,
};

/// An at-least-once queue in memory: messages are ready, in flight, or gone.
#[derive(Debug)]
pub struct MemoryQueue<M>(Mutex<Inner<M>>);

#[derive(Debug)]
struct Inner<M> {
    ready: VecDeque<Message<M>>,
    in_flight: BTreeMap<u64, Message<M>>,
    set_aside: Vec<(String, M, String)>,
    next_tag: u64,
}

#[derive(Debug)]
struct Message<M> {
    event_id: String,
    body: M,
    attempt: u32,
}

impl<M> Inner<M> {
    fn take(&mut self, tag: u64) -> Result<Message<M>, NotInFlight> {
        self.in_flight.remove(&tag).ok_or(NotInFlight(tag))
    }
}

/// The delivery is not in flight: it was acked, given back, or taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotInFlight(pub u64);

impl fmt::Display for NotInFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "delivery {} is not in flight", self.0)
    }
}

impl std::error::Error for NotInFlight {}

impl<M> Default for MemoryQueue<M> {
    fn default() -> Self {
        let (ready, in_flight, set_aside) = (VecDeque::new(), BTreeMap::new(), Vec::new());
        Self(Mutex::new(Inner { ready, in_flight, set_aside, next_tag: 0 }))
    }
}

impl<M> MemoryQueue<M> {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a message at the end.
    pub fn send(&self, event_id: impl fmt::Display, message: M) {
        let message = Message { event_id: event_id.to_string(), body: message, attempt: 0 };
        self.lock().ready.push_back(message);
    }

    /// Takes back all that is in flight, as a queue does when its consumer is gone.
    pub fn take_back(&self) {
        let mut inner = self.lock();
        let taken = std::mem::take(&mut inner.in_flight);
        inner.ready.extend(taken.into_values());
    }

    /// How many messages are ready.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.lock().ready.len()
    }

    /// How many messages are in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.lock().in_flight.len()
    }

    /// The messages that were set aside: event id, message, reason.
    #[must_use]
    pub fn dead_letters(&self) -> Vec<(String, M, String)>
    where
        M: Clone,
    {
        self.lock().set_aside.clone()
    }

    /// Whether no message is ready and none in flight.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let inner = self.lock();
        inner.ready.is_empty() && inner.in_flight.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Inner<M>> {
        // No call panics between two changes that belong together.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl<M: Clone + Send + 'static> Queue for MemoryQueue<M> {
    type Message = M;
    type Tag = u64;

    async fn receive(&self, max: usize) -> Result<Vec<Delivery<M, u64>>, BoxError> {
        let mut inner = self.lock();
        let mut deliveries = Vec::new();
        while deliveries.len() < max {
            let Some(mut message) = inner.ready.pop_front() else { break };
            message.attempt += 1;
            inner.next_tag += 1;
            let tag = inner.next_tag;
            let delivery = Delivery::new(&message.event_id, message.body.clone(), tag);
            deliveries.push(delivery.attempt(message.attempt));
            inner.in_flight.insert(tag, message);
        }
        Ok(deliveries)
    }

    async fn ack(&self, tag: &u64) -> Result<(), BoxError> {
        self.lock().take(*tag)?;
        Ok(())
    }

    async fn nack(&self, tag: &u64, _: &crate::Error) -> Result<(), BoxError> {
        let mut inner = self.lock();
        let message = inner.take(*tag)?;
        inner.ready.push_back(message);
        Ok(())
    }

    async fn set_aside(&self, tag: &u64, reason: &crate::Error) -> Result<(), BoxError> {
        let mut inner = self.lock();
        let message = inner.take(*tag)?;
        inner.set_aside.push((message.event_id, message.body, reason.to_string()));
        Ok(())
    }

    async fn extend(&self, tag: &u64) -> Result<(), BoxError> {
        self.lock().in_flight.contains_key(tag).then_some(()).ok_or(NotInFlight(*tag))?;
        Ok(())
    }

    fn visibility(&self) -> Option<Duration> {
        None
    }

    fn horizon(&self) -> Option<Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Error, ErrorKind};

    #[tokio::test]
    async fn a_delivery_is_settled_once_and_a_late_ack_settles_nothing() {
        let queue = MemoryQueue::new();
        queue.send(1, "a");
        let first = queue.receive(1).await.unwrap().pop().unwrap();
        assert_eq!((queue.ready(), queue.in_flight()), (0, 1));
        queue.take_back();
        let second = queue.receive(1).await.unwrap().pop().unwrap();
        assert_eq!((second.event_id.as_str(), second.message), ("1", "a"));
        let late = queue.ack(&first.tag).await.unwrap_err();
        assert_eq!(late.downcast_ref(), Some(&NotInFlight(first.tag)));
        assert_eq!(queue.in_flight(), 1);
        queue.nack(&second.tag, &Error::nothing_done(ErrorKind::Full)).await.unwrap();
        assert_eq!((queue.ready(), queue.in_flight()), (1, 0));
        let third = queue.receive(1).await.unwrap().pop().unwrap();
        queue.ack(&third.tag).await.unwrap();
        assert!(queue.is_empty());
        assert_eq!(queue.receive(1).await.unwrap(), []);
    }
}
