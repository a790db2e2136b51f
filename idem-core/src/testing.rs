//! What tests and examples need besides the library.

use std::{
    collections::{BTreeMap, VecDeque},
    error::Error as StdError,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;

use crate::{
    Clock, Error, Span, Timestamp,
    consumer::{Delivery, NotInFlight, Queue},
    error::BoxError,
};

/// An at-least-once queue in memory: messages are ready, in flight, set aside, or gone.
pub struct MemoryQueue<M> {
    inner: Mutex<Inner<M>>,
    visibility: Option<(Arc<dyn Clock>, Duration)>,
    horizon: Option<Duration>,
}

#[derive(Debug)]
struct Inner<M> {
    ready: VecDeque<Message<M>>,
    in_flight: BTreeMap<u64, InFlight<M>>,
    set_aside: Vec<(String, M, String)>,
    next_tag: u64,
    is_failing: bool,
    acks_to_fail: usize,
    failures: usize,
    extensions: usize,
}

#[derive(Debug)]
struct Message<M> {
    event_id: String,
    body: M,
    attempt: u32,
}

#[derive(Debug)]
struct InFlight<M> {
    message: Message<M>,
    /// When it is taken back; none for never.
    until: Option<Timestamp>,
}

impl<M> Inner<M> {
    fn take(&mut self, tag: u64) -> Result<Message<M>, NotInFlight> {
        self.in_flight.remove(&tag).map(|taken| taken.message).ok_or_else(|| NotInFlight::new(tag))
    }

    /// Takes back what is in flight and `is_over`, the earlier delivered first.
    fn take_back(&mut self, is_over: impl Fn(&InFlight<M>) -> bool) {
        let taken = self.in_flight.extract_if(.., |_, in_flight| is_over(in_flight));
        self.ready.extend(taken.map(|(_, in_flight)| in_flight.message));
    }

    /// Fails if it was told to, or if this call `must_fail`.
    fn works(&mut self, must_fail: bool) -> Result<(), QueueFails> {
        if self.is_failing || must_fail {
            self.failures += 1;
            return Err(QueueFails);
        }
        Ok(())
    }
}

/// The queue fails, since it was told to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFails;

impl fmt::Display for QueueFails {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the queue fails, as it was told to")
    }
}

impl StdError for QueueFails {}

impl<M> Default for MemoryQueue<M> {
    fn default() -> Self {
        let (ready, in_flight, set_aside) = (VecDeque::new(), BTreeMap::new(), Vec::new());
        let inner = Inner {
            ready,
            in_flight,
            set_aside,
            next_tag: 0,
            is_failing: false,
            acks_to_fail: 0,
            failures: 0,
            extensions: 0,
        };
        Self { inner: Mutex::new(inner), visibility: None, horizon: None }
    }
}

impl<M: fmt::Debug> fmt::Debug for MemoryQueue<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemoryQueue").field(&*self.lock()).finish()
    }
}

impl<M> MemoryQueue<M> {
    /// An empty queue, whose deliveries are in flight until they are settled or
    /// [taken back](MemoryQueue::take_back).
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty queue that takes back what was neither settled nor extended for so long by `clock`.
    #[must_use]
    pub fn with_visibility(clock: impl Clock, visibility: Duration) -> Self {
        Self { visibility: Some((Arc::new(clock), visibility)), ..Self::default() }
    }

    /// The same queue with that [horizon](Queue::horizon); none unless told.
    #[must_use]
    pub fn with_horizon(mut self, horizon: Duration) -> Self {
        self.horizon = Some(horizon);
        self
    }

    /// Adds a message at the end.
    pub fn send(&self, event_id: impl fmt::Display, message: M) {
        let message = Message { event_id: event_id.to_string(), body: message, attempt: 0 };
        self.lock().ready.push_back(message);
    }

    /// From now on every call of a consumer fails with [`QueueFails`] and changes nothing, or works again.
    pub fn fail(&self, fails: bool) {
        self.lock().is_failing = fails;
    }

    /// The next acks, so many, fail with [`QueueFails`], and leave their deliveries in flight.
    pub fn fail_acks(&self, acks: usize) {
        self.lock().acks_to_fail = acks;
    }

    /// Takes back all that is in flight, as a queue does when its consumer is gone.
    pub fn take_back(&self) {
        self.lock().take_back(|_| true);
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

    /// How many calls have failed as told.
    #[must_use]
    pub fn failures(&self) -> usize {
        self.lock().failures
    }

    /// How many times a delivery was kept in flight.
    #[must_use]
    pub fn extensions(&self) -> usize {
        self.lock().extensions
    }

    /// The messages that were set aside: event id, message, and the reason with what caused it.
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

    /// The queue as it is now.
    fn lock(&self) -> MutexGuard<'_, Inner<M>> {
        // No call panics between two changes that belong together.
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((clock, _)) = &self.visibility {
            let now = clock.now();
            inner.take_back(|in_flight| in_flight.until.is_some_and(|until| until <= now));
        }
        inner
    }

    /// When a delivery that is seen now is taken back.
    fn until(&self) -> Option<Timestamp> {
        let (clock, visibility) = self.visibility.as_ref()?;
        // One that lasts beyond the clock, or no time at all, is none.
        clock.now().after(Span::new("visibility", *visibility).ok()?)
    }
}

#[async_trait]
impl<M: Clone + Send + 'static> Queue for MemoryQueue<M> {
    type Message = M;
    type Tag = u64;

    async fn receive(&self, max: usize) -> Result<Vec<Delivery<M, u64>>, BoxError> {
        let mut inner = self.lock();
        inner.works(false)?;
        let mut deliveries = Vec::new();
        while deliveries.len() < max {
            let Some(mut message) = inner.ready.pop_front() else { break };
            message.attempt += 1;
            inner.next_tag += 1;
            let tag = inner.next_tag;
            let delivery = Delivery::new(&message.event_id, message.body.clone(), tag);
            deliveries.push(delivery.attempt(message.attempt));
            inner.in_flight.insert(tag, InFlight { message, until: self.until() });
        }
        Ok(deliveries)
    }

    async fn ack(&self, tag: &u64) -> Result<(), BoxError> {
        let mut inner = self.lock();
        let must_fail = inner.acks_to_fail > 0;
        inner.acks_to_fail = inner.acks_to_fail.saturating_sub(1);
        inner.works(must_fail)?;
        inner.take(*tag)?;
        Ok(())
    }

    async fn nack(&self, tag: &u64, _: &Error) -> Result<(), BoxError> {
        let mut inner = self.lock();
        inner.works(false)?;
        let message = inner.take(*tag)?;
        inner.ready.push_back(message);
        Ok(())
    }

    async fn set_aside(&self, tag: &u64, reason: &Error) -> Result<(), BoxError> {
        let mut inner = self.lock();
        inner.works(false)?;
        let message = inner.take(*tag)?;
        inner.set_aside.push((message.event_id, message.body, reason.with_causes().to_string()));
        Ok(())
    }

    async fn extend(&self, tag: &u64) -> Result<(), BoxError> {
        let mut inner = self.lock();
        inner.works(false)?;
        inner.in_flight.get_mut(tag).ok_or_else(|| NotInFlight::new(tag))?.until = self.until();
        inner.extensions += 1;
        Ok(())
    }

    fn visibility(&self) -> Option<Duration> {
        self.visibility.as_ref().map(|(_, visibility)| *visibility)
    }

    fn horizon(&self) -> Option<Duration> {
        self.horizon
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorKind, ManualClock};

    const SECOND: Duration = Duration::from_secs(1);

    fn reason() -> Error {
        Error::nothing_done(ErrorKind::Work).with_source("it is broken")
    }

    async fn one<M: Clone + Send + 'static>(queue: &MemoryQueue<M>) -> Delivery<M, u64> {
        queue.receive(1).await.unwrap().pop().unwrap()
    }

    #[tokio::test]
    async fn a_delivery_is_settled_once_and_a_late_ack_settles_nothing() {
        let queue = MemoryQueue::new();
        queue.send(1, "a");
        let first = one(&queue).await;
        assert_eq!((queue.ready(), queue.in_flight()), (0, 1));
        queue.take_back();
        let second = one(&queue).await;
        assert_eq!((second.event_id.as_str(), second.message, second.attempt), ("1", "a", 2));
        let late = queue.ack(&first.tag).await.unwrap_err();
        assert_eq!(late.downcast_ref(), Some(&NotInFlight::new(first.tag)));
        assert_eq!(queue.in_flight(), 1);
        queue.nack(&second.tag, &reason()).await.unwrap();
        assert_eq!((queue.ready(), queue.in_flight()), (1, 0));
        let third = one(&queue).await;
        assert_eq!((first.attempt, third.attempt), (1, 3));
        queue.ack(&third.tag).await.unwrap();
        assert!(queue.is_empty());
        assert_eq!(queue.receive(1).await.unwrap(), []);
    }

    #[tokio::test]
    async fn what_is_not_settled_in_time_is_taken_back_and_its_late_answers_are_refused() {
        let clock = ManualClock::at(Timestamp::from_millis(5));
        let queue = MemoryQueue::with_visibility(clock.clone(), SECOND);
        assert_eq!((queue.visibility(), queue.horizon()), (Some(SECOND), None));
        queue.send(1, "a");
        let first = one(&queue).await;
        clock.advance(Duration::from_millis(999));
        assert_eq!(queue.in_flight(), 1);
        queue.extend(&first.tag).await.unwrap();
        clock.advance(Duration::from_millis(999));
        assert_eq!((queue.ready(), queue.in_flight()), (0, 1));
        clock.advance(Duration::from_millis(1));
        assert_eq!((queue.ready(), queue.in_flight()), (1, 0));
        let second = one(&queue).await;
        let refused = [
            queue.ack(&first.tag).await,
            queue.nack(&first.tag, &reason()).await,
            queue.set_aside(&first.tag, &reason()).await,
            queue.extend(&first.tag).await,
        ];
        for late in refused {
            let late = late.unwrap_err();
            assert_eq!(late.downcast_ref(), Some(&NotInFlight::new(first.tag)));
        }
        assert_eq!((queue.ready(), queue.in_flight(), queue.dead_letters().len()), (0, 1, 0));
        queue.ack(&second.tag).await.unwrap();
        assert!(queue.is_empty());
    }

    #[tokio::test]
    async fn what_is_set_aside_is_kept_with_its_reason() {
        let queue = MemoryQueue::new().with_horizon(SECOND);
        assert_eq!((queue.visibility(), queue.horizon()), (None, Some(SECOND)));
        queue.send(1, "a");
        let delivery = one(&queue).await;
        queue.set_aside(&delivery.tag, &reason()).await.unwrap();
        assert!(queue.is_empty());
        let [(event_id, message, reason)] = &queue.dead_letters()[..] else { panic!("it is one") };
        assert_eq!((event_id.as_str(), *message), ("1", "a"));
        assert!(reason.starts_with("the work failed"), "{reason}");
        assert!(reason.ends_with(": it is broken"), "{reason}");
    }

    #[tokio::test]
    async fn a_queue_fails_as_told_and_changes_nothing() {
        let queue = MemoryQueue::new();
        queue.send(1, "a");
        let delivery = one(&queue).await;
        queue.fail(true);
        let failed = [
            queue.receive(1).await.map(drop),
            queue.ack(&delivery.tag).await,
            queue.nack(&delivery.tag, &reason()).await,
            queue.set_aside(&delivery.tag, &reason()).await,
            queue.extend(&delivery.tag).await,
        ];
        for failed in failed {
            assert_eq!(failed.unwrap_err().downcast_ref(), Some(&QueueFails));
        }
        queue.fail(false);
        assert_eq!((queue.ready(), queue.in_flight(), queue.dead_letters().len()), (0, 1, 0));
        assert_eq!((queue.failures(), queue.extensions()), (5, 0));
        queue.fail_acks(1);
        assert!(queue.ack(&delivery.tag).await.is_err());
        queue.extend(&delivery.tag).await.unwrap();
        assert_eq!((queue.failures(), queue.extensions()), (6, 1));
        queue.ack(&delivery.tag).await.unwrap();
        assert!(queue.is_empty());
    }
}
