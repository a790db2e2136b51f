//! One delivery, from the queue to its end.

use std::{
    pin::pin,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use futures_util::future::{Either, select};

use super::{
    Delivery, Handled, Handler, Options, Queue,
    handler::Mode,
    patience::{Health, Patient},
    signal::Signal,
    turns::{Turn, Turns},
};
use crate::{
    Error, ErrorKind, Store,
    trouble::{Load, Trouble},
};

/// What all deliveries of a loop share.
pub(super) struct Flights<'l, Q: ?Sized, S: Store, M> {
    pub(super) queue: &'l Q,
    pub(super) handler: &'l Handler<S, M>,
    pub(super) options: &'l Options,
    pub(super) health: Health,
    /// Raised when nothing more is to be begun.
    pub(super) stop: Signal,
    pub(super) turns: Turns,
    queue_failures: AtomicU64,
}

/// A delivery that is over here.
pub(super) struct Landed {
    pub(super) fate: Fate,
    /// Whether the queue took the answer.
    pub(super) is_settled: bool,
    /// The store was closed.
    pub(super) closed: Option<Error>,
}

/// What became of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Ran,
    Duplicate,
    Conflict,
    Failed,
    SetAside,
    GivenBack,
}

impl<'l, Q, S, M> Flights<'l, Q, S, M>
where
    Q: Queue<Message = M> + ?Sized,
    S: Store + 'static,
    M: Send + Sync + 'static,
{
    pub(super) fn new(queue: &'l Q, handler: &'l Handler<S, M>, options: &'l Options) -> Self {
        let (health, stop, turns) = Default::default();
        Self { queue, handler, options, health, stop, turns, queue_failures: AtomicU64::new(0) }
    }

    pub(super) fn store(&self) -> &'l S {
        self.handler.idem().store()
    }

    pub(super) fn queue_failed(&self) {
        self.queue_failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn queue_failures(&self) -> u64 {
        self.queue_failures.load(Ordering::Relaxed)
    }

    /// Handles a delivery in its turn, keeps it in flight meanwhile, and settles it.
    pub(super) async fn fly(&self, delivery: Delivery<M, Q::Tag>, turn: Turn<'_>) -> Landed {
        let Delivery { event_id, message, tag, attempt } = delivery;
        let handled = self.kept_in_flight(&tag, self.handled(&event_id, message, &turn)).await;
        // The event's next delivery waits until this one is settled: a duplicate is told as one.
        self.settle(&tag, attempt, handled).await
    }

    /// What came of the message; none if it was not begun, since the loop ends.
    async fn handled(
        &self,
        event_id: &str,
        message: M,
        turn: &Turn<'_>,
    ) -> Option<Result<Handled, Error>> {
        if !self.stop.is_raised() {
            turn.comes().await;
        }
        if self.stop.is_raised() {
            return None;
        }
        let pauses = self.options.pauses();
        let mut patience = Patient::new(self.store(), pauses, &self.health, &self.stop);
        Some(self.handler.attempt(event_id, message, &mut patience).await)
    }

    /// Drives `work`, and tells the queue now and then that the delivery is still in hand.
    async fn kept_in_flight<T>(&self, tag: &Q::Tag, work: impl Future<Output = T>) -> T {
        let Some(visibility) = self.queue.visibility() else { return work.await };
        // Below a millisecond a sleep may be none.
        let interval = (visibility / 3).max(Duration::from_millis(1));
        let extending = pin!(async {
            loop {
                self.store().sleep(interval).await;
                if self.queue.extend(tag).await.is_err() {
                    self.queue_failed();
                }
            }
        });
        match select(pin!(work), extending).await {
            Either::Left((done, _)) => done,
            Either::Right((never, _)) => never,
        }
    }

    async fn settle(
        &self,
        tag: &Q::Tag,
        attempt: u32,
        handled: Option<Result<Handled, Error>>,
    ) -> Landed {
        let mut closed = None;
        let (fate, answer) = match handled {
            Some(Ok(Handled::Ran)) => (Fate::Ran, self.queue.ack(tag).await),
            Some(Ok(Handled::Duplicate)) => (Fate::Duplicate, self.queue.ack(tag).await),
            // It would be one however often it came.
            Some(Ok(Handled::Conflict)) => {
                (Fate::Conflict, self.queue.set_aside(tag, &conflict()).await)
            }
            Some(Err(error)) => match Trouble::of(&error, self.load()) {
                Trouble::Call if self.options.is_last(attempt) => {
                    (Fate::SetAside, self.queue.set_aside(tag, &error).await)
                }
                Trouble::Call => (Fate::Failed, self.queue.nack(tag, &error).await),
                trouble => {
                    let answer = self.queue.nack(tag, &error).await;
                    closed = (trouble == Trouble::Closed).then_some(error);
                    (Fate::GivenBack, answer)
                }
            },
            None => (Fate::GivenBack, self.queue.nack(tag, &not_begun()).await),
        };
        if answer.is_err() {
            self.queue_failed();
        }
        Landed { fate, is_settled: answer.is_ok(), closed }
    }

    /// What the store's calls carry.
    fn load(&self) -> Load {
        match self.handler.mode() {
            Mode::MarkAfter(_) => Load::Nothing,
            Mode::Atomic(_) => Load::Effect,
        }
    }
}

/// Why a message is set aside whose event is marked with another payload.
fn conflict() -> Error {
    let problem = "its event was handled before, with another payload".to_string();
    Error::nothing_done(ErrorKind::InvalidSetting { field: "message", problem })
}

/// Why a message is given back that was not looked at.
fn not_begun() -> Error {
    Error::nothing_done(ErrorKind::Work).with_source("it was not begun: the consumer ends")
}
