//! The loop between a queue and a handler.

use std::{
    error::Error as StdError,
    fmt,
    future::{pending, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll},
};

use futures_util::stream::{FuturesUnordered, Stream};

use super::{
    Delivery, Handler, Options, Queue,
    flight::{Fate, Flights, Landed},
};
use crate::{Error, Span, Store, error::BoxError, time::BoxFuture};

/// What a run of [`consume`] or [`drain`] did.
///
/// Each delivery that was received counts once: as `ran`, `duplicates`, `conflicts`, `failed`, `set_aside`,
/// `given_back`, `unmarked` or `lost`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Consumed {
    /// Deliveries whose handler ran and whose event is marked.
    pub ran: u64,
    /// Deliveries of events that were handled before; also one whose own commit was in doubt until the store
    /// was asked again.
    pub duplicates: u64,
    /// Deliveries of events that were handled before, or held by a lease that ended, with another payload; set aside.
    pub conflicts: u64,
    /// Deliveries that failed and were given back.
    pub failed: u64,
    /// Deliveries that failed at the last of their attempts, or came after it, and were set aside.
    pub set_aside: u64,
    /// Deliveries that were given back since the run ended: not begun, or while the store failed.
    pub given_back: u64,
    /// Deliveries that were given back though their handler had begun outside the store: it ran and could not be
    /// marked, or the end came while it ran. It runs again.
    pub unmarked: u64,
    /// Deliveries that the queue took back before their handler began; nothing was done with them.
    pub lost: u64,
    /// Calls of the queue that failed. A delivery that could not be settled is counted by what became of it, and
    /// comes again.
    pub queue_failures: u64,
    /// Calls of the store that failed for what may pass, or since it is closed. A key in use is no failure.
    pub store_failures: u64,
}

impl Consumed {
    fn count(&mut self, fate: Fate) {
        let count = match fate {
            Fate::Ran => &mut self.ran,
            Fate::Duplicate => &mut self.duplicates,
            Fate::Conflict => &mut self.conflicts,
            Fate::Failed => &mut self.failed,
            Fate::SetAside => &mut self.set_aside,
            Fate::GivenBack => &mut self.given_back,
            Fate::Unmarked => &mut self.unmarked,
            Fate::Lost => &mut self.lost,
        };
        *count += 1;
    }
}

/// A run was ended before its time, and this is what it did until then: the source of the error that it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CutShort {
    /// What it did.
    pub consumed: Consumed,
}

impl CutShort {
    /// Of the error that [`consume`] or [`drain`] returned; none if it was refused before it received anything.
    #[must_use]
    pub fn of(error: &Error) -> Option<&Self> {
        error.source()?.downcast_ref()
    }
}

impl fmt::Display for CutShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the consumer was cut short after {:?}", self.consumed)
    }
}

impl StdError for CutShort {}

/// Handles what the queue delivers until `until` is ready; then finishes what it has begun, and returns what it
/// did.
///
/// A delivery is acked only after the commit of its mark; a duplicate is acked without running; a failure
/// is given back with its reason, or set aside after its attempts, and so is a conflict at once. Deliveries of
/// one event never run at the same time here. While a delivery is in hand, [`Queue::extend`] is called every
/// third of the queue's visibility; one that the queue took back before its handler began is dropped.
///
/// A store that fails for a while costs no attempts: its call is made again, ever more slowly, and nothing new
/// is received meanwhile. What has run outside the store does not run again for it: the mark alone is tried. A
/// queue that fails is asked again, as slowly; what it did not let settle comes again. Handlers that fail one
/// after the other slow the loop down as well. [`Options`] says how slowly, and more; and
/// [`Options::on_trouble`] hears of what the loop rides out.
///
/// When `until` is ready nothing more is received: what is running goes on to its end and is settled, a mark
/// whose handler has run outside the store is tried on, any other call that waits for the store is made once
/// more, and what was not begun is given back. That takes as long as the slowest handler, and no longer than
/// [`Options::end_within`] says: then what is left is given back. For a program that ends by Ctrl-C, `until` is
/// `async { let _ = tokio::signal::ctrl_c().await; }`.
///
/// The handlers of one run share its task: they wait at the same time, and compute one after the other. An
/// effect, or a handler that blocks its thread, delays the others and the calls that keep deliveries in flight.
/// To use more threads, spawn several runs with the same queue and handler.
///
/// # Errors
/// Before anything is received: [`ErrorKind::InvalidSetting`] and [`ErrorKind::InvalidDuration`] for options
/// that make no sense, for a queue whose visibility is zero, and for a handler whose marks may expire while the
/// queue can still deliver their events ([`Options::horizon`]). [`ErrorKind::Closed`] if the store was closed,
/// after what was in flight was given back: what was handled until then stays handled, what had run outside the
/// store and could not be marked any more runs again, and [`CutShort::of`] has the counts.
///
/// # Cancel safety
/// Use `until` to end it. Dropping the future leaves what it had received in flight, until the queue takes it
/// back; an event that was being handled is as [`Handler::handle`] leaves it.
///
/// [`ErrorKind::InvalidSetting`]: crate::ErrorKind::InvalidSetting
/// [`ErrorKind::InvalidDuration`]: crate::ErrorKind::InvalidDuration
/// [`ErrorKind::Closed`]: crate::ErrorKind::Closed
pub fn consume<Q, S, M>(
    queue: &Q,
    handler: &Handler<S, M>,
    options: &Options,
    until: impl Future + Send,
) -> impl Future<Output = Result<Consumed, Error>> + Send
where
    Q: Queue<Message = M> + ?Sized,
    S: Store + 'static,
    M: Send + Sync + 'static,
{
    // Said to be Send here, where the store is any store: see `Idem::execute`.
    async move { run(queue, handler, options, until, WhenEmpty::Wait).await }
}

/// As [`consume`], until the queue has nothing to give and nothing is in flight here.
///
/// What others hold in flight, or the queue holds back, it does not wait for; a store or a queue that fails it
/// does, however long that takes.
///
/// # Errors
/// As [`consume`].
///
/// # Cancel safety
/// As [`consume`].
pub fn drain<Q, S, M>(
    queue: &Q,
    handler: &Handler<S, M>,
    options: &Options,
) -> impl Future<Output = Result<Consumed, Error>> + Send
where
    Q: Queue<Message = M> + ?Sized,
    S: Store + 'static,
    M: Send + Sync + 'static,
{
    async move { run(queue, handler, options, pending::<()>(), WhenEmpty::End).await }
}

/// What to do when the queue has nothing to give.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WhenEmpty {
    Wait,
    End,
}

async fn run<Q, S, M>(
    queue: &Q,
    handler: &Handler<S, M>,
    options: &Options,
    until: impl Future + Send,
    when_empty: WhenEmpty,
) -> Result<Consumed, Error>
where
    Q: Queue<Message = M> + ?Sized,
    S: Store + 'static,
    M: Send + Sync + 'static,
{
    options.check()?;
    if let Some(visibility) = queue.visibility().filter(std::time::Duration::is_zero) {
        Span::new("visibility", visibility)?;
    }
    options.check_retention(handler.retention()?, queue.horizon())?;
    let flights = Flights::new(queue, handler, options);
    let mut until = pin!(until);
    let mut in_flight = FuturesUnordered::new();
    let mut intake = Intake::new(&flights, when_empty);
    let mut ending: Option<BoxFuture<()>> = None;
    let (mut consumed, mut closed) = (Consumed::default(), None);
    loop {
        let event = poll_fn(|context| {
            if !flights.stop.is_raised() && until.as_mut().poll(context).is_ready() {
                return Poll::Ready(Event::Stop);
            }
            if flights.stop.is_raised() && !flights.leave.is_raised() {
                let ending =
                    ending.get_or_insert_with(|| flights.store().sleep(options.longest_end()));
                if ending.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Event::Late);
                }
            }
            if let Poll::Ready(Some(landed)) = Pin::new(&mut in_flight).poll_next(context) {
                return Poll::Ready(Event::Landed(landed));
            }
            // After the deliveries: whether the store fails is known of them.
            intake.poll(in_flight.len(), context)
        })
        .await;
        match event {
            Event::Stop => flights.stop.raise(),
            Event::Late if flights.cut.is_raised() => flights.leave.raise(),
            Event::Late => {
                flights.cut.raise();
                // As long again for the queue.
                ending = None;
            }
            Event::Landed(Landed { fate, has_failed, is_settled, closed: found_closed }) => {
                consumed.count(fate);
                intake.landed(fate, has_failed, is_settled);
                if let Some(error) = found_closed {
                    closed = closed.or(Some(error));
                    flights.stop.raise();
                }
            }
            Event::Received(deliveries) => {
                for delivery in deliveries {
                    // Here and not in the future, which may be polled after a later one's.
                    let turn = flights.turns.line_up(&delivery.event_id);
                    in_flight.push(flights.fly(delivery, turn));
                }
                // Where all is ready at once, others of the thread must have their turn, the one who ends this
                // loop among them.
                let_others_go_on().await;
            }
            Event::Over => break,
        }
    }
    consumed.queue_failures = flights.queue_failures();
    consumed.store_failures = flights.health.failures();
    closed.map_or(Ok(consumed), |error| Err(error.with_source(CutShort { consumed })))
}

enum Event<M, T> {
    /// The run is to end.
    Stop,
    /// The end has taken as long as it may.
    Late,
    /// A delivery is over.
    Landed(Landed),
    /// The queue has delivered.
    Received(Vec<Delivery<M, T>>),
    /// Nothing is in flight, and nothing more comes.
    Over,
}

/// What comes from the queue, and when it is asked.
struct Intake<'l, Q: Queue + ?Sized, S: Store> {
    flights: &'l Flights<'l, Q, S, Q::Message>,
    when_empty: WhenEmpty,
    /// Not dropped before it has answered: it may bring deliveries. What a queue brings that does not answer to the
    /// last comes again by itself.
    receiving: Option<Receiving<'l, Q>>,
    pause: Option<BoxFuture<()>>,
    /// After failures of handlers; the first success ends it.
    slowed: Option<BoxFuture<()>>,
    /// After answers that the queue did not take; the first that it takes ends it.
    unheard: Option<BoxFuture<()>>,
    /// Failures of handlers in a row.
    unhandled: usize,
    /// The queue had nothing, and nothing was given back since.
    is_dry: bool,
    /// Failures in a row: to receive, and to settle.
    unreceived: u32,
    unsettled: usize,
}

type Received<Q> = Result<Vec<Delivery<<Q as Queue>::Message, <Q as Queue>::Tag>>, BoxError>;
type Receiving<'l, Q> = Pin<Box<dyn Future<Output = Received<Q>> + Send + 'l>>;

impl<'l, Q, S> Intake<'l, Q, S>
where
    Q: Queue + ?Sized,
    Q::Message: Send + Sync + 'static,
    S: Store + 'static,
{
    fn new(flights: &'l Flights<'l, Q, S, Q::Message>, when_empty: WhenEmpty) -> Self {
        Self {
            flights,
            when_empty,
            receiving: None,
            pause: None,
            slowed: None,
            unheard: None,
            unhandled: 0,
            is_dry: false,
            unreceived: 0,
            unsettled: 0,
        }
    }

    /// Asks the queue as far as there is room and nothing stands against it.
    fn poll(
        &mut self,
        in_flight: usize,
        context: &mut Context<'_>,
    ) -> Poll<Event<Q::Message, Q::Tag>> {
        if self.flights.leave.is_raised() {
            self.receiving = None;
        }
        loop {
            if let Some(receiving) = &mut self.receiving {
                let Poll::Ready(answer) = receiving.as_mut().poll(context) else {
                    return Poll::Pending;
                };
                self.receiving = None;
                match self.received(answer) {
                    Some(deliveries) => return Poll::Ready(Event::Received(deliveries)),
                    None => continue,
                }
            }
            let is_done = self.flights.stop.is_raised() || self.is_dry;
            if is_done && in_flight == 0 {
                return Poll::Ready(Event::Over);
            }
            let room = self.flights.options.room(in_flight);
            if is_done || room == 0 || self.flights.health.is_failing() {
                return Poll::Pending;
            }
            for pause in [&mut self.pause, &mut self.slowed, &mut self.unheard] {
                if let Some(waiting) = pause {
                    let Poll::Ready(()) = waiting.as_mut().poll(context) else {
                        return Poll::Pending;
                    };
                    *pause = None;
                }
            }
            self.receiving = Some(self.flights.queue.receive(room));
        }
    }

    /// The deliveries of an answer, if it brought any.
    fn received(&mut self, answer: Received<Q>) -> Option<Vec<Delivery<Q::Message, Q::Tag>>> {
        match answer {
            Ok(deliveries) => {
                self.unreceived = 0;
                if !deliveries.is_empty() {
                    return Some(deliveries);
                }
                match self.when_empty {
                    WhenEmpty::End => self.is_dry = true,
                    WhenEmpty::Wait => {
                        let idle = self.flights.options.idle_pause();
                        self.pause = Some(self.flights.store().sleep(idle));
                    }
                }
            }
            Err(error) => {
                self.flights.queue_failed(&error);
                self.unreceived = self.unreceived.saturating_add(1);
                let pause = self.flights.options.pauses().pause(self.unreceived);
                self.pause = Some(self.flights.store().sleep(pause));
            }
        }
        None
    }

    /// A delivery is over: it may be ready again, if it was given back.
    fn landed(&mut self, fate: Fate, has_failed: bool, is_settled: bool) {
        self.is_dry = false;
        if has_failed {
            self.unhandled = self.unhandled.saturating_add(1);
            let pause = self.flights.options.pause_after(self.unhandled);
            self.slowed = Some(self.flights.store().sleep(pause));
        } else if fate == Fate::Ran {
            self.unhandled = 0;
            self.slowed = None;
        }
        if is_settled {
            self.unsettled = 0;
            self.unheard = None;
        } else {
            // Those in flight fail together: by one failure of the queue.
            self.unsettled = self.unsettled.saturating_add(1);
            let pause = self.flights.options.pause_after(self.unsettled);
            self.unheard = Some(self.flights.store().sleep(pause));
        }
    }
}

/// Lets the other tasks of the thread run.
async fn let_others_go_on() {
    let mut has_waited = false;
    poll_fn(|context| {
        if has_waited {
            return Poll::Ready(());
        }
        has_waited = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
