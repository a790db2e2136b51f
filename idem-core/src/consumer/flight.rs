//! One delivery, from the queue to its end.

use std::{
    future::pending,
    pin::pin,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use futures_util::future::{Either, select};

use super::{
    Delivery, Handled, Handler, NotInFlight, Options, Queue,
    handler::Mode,
    patience::{Health, Patient, Unhandled},
    places::Places,
    recorder::Found,
    signal::Signal,
    turns::{Turn, Turns},
};
use crate::{Error, ErrorKind, Store, error::BoxError, trouble::Trouble};

/// What all deliveries of a loop share.
pub(super) struct Flights<'l, Q: ?Sized, S: Store, M> {
    pub(super) queue: &'l Q,
    pub(super) handler: &'l Handler<S, M>,
    pub(super) options: &'l Options,
    pub(super) health: Health,
    /// Raised when nothing more is to be begun.
    pub(super) stop: Signal,
    /// Raised when what is at it then is given back.
    pub(super) cut: Signal,
    /// Raised when the queue is not waited for any more.
    pub(super) leave: Signal,
    pub(super) turns: Turns,
    places: Places,
    queue_failures: AtomicU64,
}

/// A delivery that is over here.
pub(super) struct Landed {
    pub(super) fate: Fate,
    /// Whether its handler failed.
    pub(super) has_failed: bool,
    /// Whether the queue took the answer, or wants none.
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
    Unmarked,
    Lost,
}

/// What the queue is told of a delivery.
enum Answer {
    Ack,
    GiveBack(Error),
    SetAside(Error),
    /// It is another's by now.
    Nothing,
}

impl<'l, Q, S, M> Flights<'l, Q, S, M>
where
    Q: Queue<Message = M> + ?Sized,
    S: Store + 'static,
    M: Send + Sync + 'static,
{
    pub(super) fn new(queue: &'l Q, handler: &'l Handler<S, M>, options: &'l Options) -> Self {
        let (health, turns, queue_failures) = Default::default();
        let (stop, cut, leave) = Default::default();
        let places = Places::new(options.places());
        Self { queue, handler, options, health, stop, cut, leave, turns, places, queue_failures }
    }

    pub(super) fn store(&self) -> &'l S {
        self.handler.idem().store()
    }

    pub(super) fn queue_failed(&self, error: &BoxError) {
        self.queue_failures.fetch_add(1, Ordering::Relaxed);
        self.options.tell(error.as_ref());
    }

    pub(super) fn queue_failures(&self) -> u64 {
        self.queue_failures.load(Ordering::Relaxed)
    }

    /// Handles a delivery in its turn, keeps it in flight meanwhile, and settles it.
    pub(super) async fn fly(&self, delivery: Delivery<M, Q::Tag>, turn: Turn<'_>) -> Landed {
        let Delivery { event_id, message, tag, attempt } = delivery;
        let has_begun = AtomicBool::new(false);
        let handled = self.handled(&event_id, message, attempt, &turn, &has_begun);
        let handled = self.in_hand(&tag, &has_begun, handled).await;
        // The event's next delivery waits until this one is settled: a duplicate is told as one.
        self.settle(&tag, attempt, handled).await
    }

    async fn handled(
        &self,
        event_id: &str,
        message: M,
        attempt: u32,
        turn: &Turn<'_>,
        has_begun: &AtomicBool,
    ) -> Result<Handled, Unhandled> {
        if !self.stop.is_raised() {
            turn.comes().await;
        }
        // A queue may bring more than it was asked for.
        let _place = self.places.take().await;
        if self.stop.is_raised() {
            return Err(Unhandled::NotBegun);
        }
        let (store, options) = (self.store(), self.options);
        let mut patience = Patient::new(store, options, &self.health, &self.stop, has_begun);
        if !options.is_beyond(attempt) {
            return self.handler.attempt(event_id, message, &mut patience).await;
        }
        match self.handler.found(event_id, &message, &mut patience).await? {
            Found::Marked => Ok(Handled::Duplicate),
            Found::Other => Ok(Handled::Conflict),
            Found::Free => Err(Unhandled::TooOften),
        }
    }

    /// Drives `work`, and tells the queue now and then that the delivery is still in hand; until the delivery is
    /// another's and nothing was begun, or the time of the end is over.
    async fn in_hand(
        &self,
        tag: &Q::Tag,
        has_begun: &AtomicBool,
        work: impl Future<Output = Result<Handled, Unhandled>>,
    ) -> Result<Handled, Unhandled> {
        let (lost, cut) = (pin!(self.extended_until_lost(tag, has_begun)), pin!(self.cut.raised()));
        let is_outside = matches!(self.handler.mode(), Mode::MarkAfter(_));
        match select(pin!(work), select(lost, cut)).await {
            Either::Left((done, _)) => done,
            Either::Right((Either::Left(_), _)) => Err(Unhandled::Lost),
            Either::Right((Either::Right(_), _)) => {
                let cut = Unhandled::Cut;
                if !(is_outside && has_begun.load(Ordering::Relaxed)) {
                    return Err(cut);
                }
                Err(Unhandled::Unmarked(cut.into_error(), Trouble::Store))
            }
        }
    }

    /// Ends when the delivery is another's and its handler was not begun here.
    async fn extended_until_lost(&self, tag: &Q::Tag, has_begun: &AtomicBool) {
        let Some(visibility) = self.queue.visibility() else { return pending().await };
        // Below a millisecond a sleep may be none.
        let interval = (visibility / 3).max(Duration::from_millis(1));
        loop {
            self.store().sleep(interval).await;
            match self.queue.extend(tag).await {
                Err(error) if !error.is::<NotInFlight>() => self.queue_failed(&error),
                Ok(()) => {}
                Err(_) if has_begun.load(Ordering::Relaxed) => return pending().await,
                Err(_) => return,
            }
        }
    }

    async fn settle(
        &self,
        tag: &Q::Tag,
        attempt: u32,
        handled: Result<Handled, Unhandled>,
    ) -> Landed {
        let is_last = self.options.is_last(attempt);
        let has_failed = matches!(
            handled,
            Err(Unhandled::Failed(_, Trouble::Call) | Unhandled::Unmarked(_, Trouble::Call))
        );
        let mut closed = None;
        let (fate, answer) = match handled {
            Ok(Handled::Ran) => (Fate::Ran, Answer::Ack),
            Ok(Handled::Duplicate) => (Fate::Duplicate, Answer::Ack),
            // It would be one however often it came.
            Ok(Handled::Conflict) => (Fate::Conflict, Answer::SetAside(conflict())),
            Err(Unhandled::Lost) => (Fate::Lost, Answer::Nothing),
            Err(why) => {
                if let Unhandled::Failed(error, Trouble::Closed)
                | Unhandled::Unmarked(error, Trouble::Closed) = &why
                {
                    closed = Some(Error::nothing_done(match *error.kind() {
                        ErrorKind::OtherProcess { opened_in } => {
                            ErrorKind::OtherProcess { opened_in }
                        }
                        _ => ErrorKind::Closed,
                    }));
                }
                let fate = match &why {
                    Unhandled::TooOften => Fate::SetAside,
                    _ if has_failed && is_last => Fate::SetAside,
                    Unhandled::Unmarked(..) => Fate::Unmarked,
                    _ if has_failed => Fate::Failed,
                    _ => Fate::GivenBack,
                };
                let error = why.into_error();
                match fate {
                    Fate::SetAside => (fate, Answer::SetAside(error)),
                    _ => (fate, Answer::GiveBack(error)),
                }
            }
        };
        Landed { fate, has_failed, is_settled: self.answered(tag, &answer).await, closed }
    }

    /// Whether the queue took an answer.
    async fn answered(&self, tag: &Q::Tag, answer: &Answer) -> bool {
        let call = match answer {
            Answer::Ack => self.queue.ack(tag),
            Answer::GiveBack(error) => self.queue.nack(tag, error),
            Answer::SetAside(error) => self.queue.set_aside(tag, error),
            Answer::Nothing => return true,
        };
        match select(call, pin!(self.leave.raised())).await {
            Either::Left((Ok(()), _)) => true,
            // There is nothing left to settle.
            Either::Left((Err(error), _)) if error.is::<NotInFlight>() => true,
            Either::Left((Err(error), _)) => {
                self.queue_failed(&error);
                false
            }
            Either::Right(_) => {
                self.queue_failed(&"the queue did not answer before the end".into());
                false
            }
        }
    }
}

/// Why a message is set aside whose event is marked with another payload.
fn conflict() -> Error {
    let problem = "its event was handled before, with another payload".to_string();
    Error::nothing_done(ErrorKind::InvalidSetting { field: "message", problem })
}
