//! What tests and examples need besides the library.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
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
    ready: VecDeque<(String, M)>,
    in_flight: BTreeMap<u64, (String, M)>,
    next_tag: u64,
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
        let (ready, in_flight) = (VecDeque::new(), BTreeMap::new());
        Self(Mutex::new(Inner { ready, in_flight, next_tag: 0 }))
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
        self.lock().ready.push_back((event_id.to_string(), message));
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

    async fn receive(&self) -> Result<Option<Delivery<M, u64>>, BoxError> {
        let mut inner = self.lock();
        let Some((event_id, message)) = inner.ready.pop_front() else { return Ok(None) };
        inner.next_tag += 1;
        let tag = inner.next_tag;
        inner.in_flight.insert(tag, (event_id.clone(), message.clone()));
        Ok(Some(Delivery { event_id, message, tag }))
    }

    async fn ack(&self, tag: &u64) -> Result<(), BoxError> {
        self.lock().in_flight.remove(tag).ok_or(NotInFlight(*tag))?;
        Ok(())
    }

    async fn nack(&self, tag: &u64, _: &crate::Error) -> Result<(), BoxError> {
        let mut inner = self.lock();
        let message = inner.in_flight.remove(tag).ok_or(NotInFlight(*tag))?;
        inner.ready.push_back(message);
        Ok(())
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
        let first = queue.receive().await.unwrap().unwrap();
        assert_eq!((queue.ready(), queue.in_flight()), (0, 1));
        queue.take_back();
        let second = queue.receive().await.unwrap().unwrap();
        assert_eq!((second.event_id.as_str(), second.message), ("1", "a"));
        let late = queue.ack(&first.tag).await.unwrap_err();
        assert_eq!(late.downcast_ref(), Some(&NotInFlight(first.tag)));
        assert_eq!(queue.in_flight(), 1);
        queue.nack(&second.tag, &Error::nothing_done(ErrorKind::Full)).await.unwrap();
        assert_eq!((queue.ready(), queue.in_flight()), (1, 0));
        let third = queue.receive().await.unwrap().unwrap();
        queue.ack(&third.tag).await.unwrap();
        assert!(queue.is_empty());
        assert_eq!(queue.receive().await.unwrap(), None);
    }
}
