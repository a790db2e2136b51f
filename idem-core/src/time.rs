//! Whole milliseconds since the Unix epoch, how long things live, and who says what time it is.

use std::{
    collections::HashMap,
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::{Error, ErrorKind, error::Field};

/// A future that is not tied to what made it.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// An instant: whole milliseconds since the Unix epoch, negative before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The instant so many milliseconds after the epoch.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the epoch.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// The same instant for the standard library; none if that is beyond what it can hold.
    #[must_use]
    pub fn to_system_time(self) -> Option<SystemTime> {
        let distance = Duration::from_millis(self.0.unsigned_abs());
        if self.0 < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) }
    }

    /// The instant `span` later; none if that is beyond what a timestamp can hold.
    #[must_use]
    pub fn after(self, span: Span) -> Option<Self> {
        self.0.checked_add(span.0).map(Self)
    }

    /// How long from `earlier` to here; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        let millis = i128::from(self.0) - i128::from(earlier.0);
        Duration::from_millis(u64::try_from(millis).unwrap_or(0))
    }
}

impl From<SystemTime> for Timestamp {
    /// Rounds down to the millisecond; saturates 292 million years from the epoch.
    fn from(time: SystemTime) -> Self {
        let millis = match time.duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
            Err(before) => {
                let before = before.duration().as_nanos().div_ceil(1_000_000);
                i64::try_from(before).map_or(i64::MIN, |millis| -millis)
            }
        };
        Self(millis)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

/// A length of time that a record may live by: at least one whole millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(i64);

impl Span {
    /// A span from a duration: what is not a whole millisecond is rounded up, so that nothing lives
    /// shorter than asked.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidDuration`], naming `field`, if it is zero or over `i64::MAX` milliseconds.
    pub fn new(field: Field, duration: Duration) -> Result<Self, Error> {
        let invalid =
            |problem| Error::nothing_done(ErrorKind::InvalidDuration { field, duration, problem });
        if duration.is_zero() {
            return Err(invalid("give at least one millisecond"));
        }
        let millis = duration.as_nanos().div_ceil(1_000_000);
        let millis = i64::try_from(millis).map_err(|_| {
            invalid("it overflows the clock: give less, or ask for forever by name")
        })?;
        Ok(Self(millis))
    }

    /// The span of so many milliseconds; none if that is not at least one.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Option<Self> {
        if millis > 0 { Some(Self(millis)) } else { None }
    }

    /// The span in milliseconds.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// When something that starts at `now` and lives this long ends.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidDuration`], naming `field`, if that is beyond what a timestamp can hold.
    pub fn ends_at(self, field: Field, now: Timestamp) -> Result<Timestamp, Error> {
        now.after(self).ok_or_else(|| {
            Error::nothing_done(ErrorKind::InvalidDuration {
                field,
                duration: Duration::from_millis(self.0.unsigned_abs()),
                problem: "it overflows the clock: give less, or ask for forever by name",
            })
        })
    }
}

/// How long a receipt lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retention {
    /// So long, counted from the start of the run; that of a lease's result from its completion, that of a mark
    /// without an effect in the store from the mark.
    For(Span),
    /// Until it is forgotten.
    Forever,
}

impl Retention {
    /// What a receipt gets unless told: 24 hours.
    pub const DEFAULT: Self = Self::For(Span(24 * 60 * 60 * 1000));

    /// The longer of the two.
    #[must_use]
    pub fn longer(self, other: Self) -> Self {
        match (self, other) {
            (Self::For(one), Self::For(other)) => Self::For(one.max(other)),
            _ => Self::Forever,
        }
    }

    /// When the record of a lease is gone that was claimed and ended then; none for never.
    pub(crate) fn gone_at(self, claimed: Timestamp, ended: Timestamp) -> Option<Timestamp> {
        match self {
            Self::For(span) => ended.max(claimed).after(span),
            Self::Forever => None,
        }
    }

    /// When a receipt that starts at `now` expires; none for never.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidDuration`] if that is beyond what a timestamp can hold.
    pub fn expires_at(self, now: Timestamp) -> Result<Option<Timestamp>, Error> {
        match self {
            Self::For(span) => span.ends_at("retention", now).map(Some),
            Self::Forever => Ok(None),
        }
    }
}

/// Says what time it is.
///
/// A store owns one and reads it once per attempt, after it has got hold of the record.
pub trait Clock: Send + Sync + 'static {
    /// The current instant.
    fn now(&self) -> Timestamp;

    /// Ends when this clock has moved on by `duration`.
    ///
    /// A clock that runs with the wall clock has nothing to offer here and answers none: the store then
    /// sleeps by its runtime's timer.
    fn sleep(&self, duration: Duration) -> Option<BoxFuture<()>> {
        let _ = duration;
        None
    }
}

// So that what holds some clock can derive it.
impl fmt::Debug for dyn Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

impl<C: Clock + Sync + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }

    fn sleep(&self, duration: Duration) -> Option<BoxFuture<()>> {
        (**self).sleep(duration)
    }
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        SystemTime::now().into()
    }
}

/// A clock that moves only when it is told to: for tests.
///
/// Clones share one time.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<Mutex<Manual>>);

#[derive(Debug)]
struct Manual {
    now: Timestamp,
    sleepers: HashMap<u64, (Timestamp, Waker)>,
    next_sleep: u64,
}

impl ManualClock {
    /// A clock that stands at `now`.
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        Self(Arc::new(Mutex::new(Manual { now, sleepers: HashMap::new(), next_sleep: 0 })))
    }

    /// Moves on by whole milliseconds of `duration`; saturates at the end of time.
    pub fn advance(&self, duration: Duration) {
        let millis = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        self.jump(|now| Timestamp(now.0.saturating_add(millis)));
    }

    /// Jumps to `now`, forwards or backwards.
    pub fn set(&self, now: Timestamp) {
        self.jump(|_| now);
    }

    /// How many sleeps on this clock are being waited for: so a test moves it when there is somebody to wake.
    #[must_use]
    pub fn sleepers(&self) -> usize {
        self.lock().sleepers.len()
    }

    fn jump(&self, to: impl FnOnce(Timestamp) -> Timestamp) {
        let mut manual = self.lock();
        let now = to(manual.now);
        manual.now = now;
        let due: Vec<_> = manual.sleepers.extract_if(|_, (until, _)| *until <= now).collect();
        drop(manual);
        for (_, (_, waker)) in due {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Manual> {
        // No panic can leave a time half written.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.lock().now
    }

    fn sleep(&self, duration: Duration) -> Option<BoxFuture<()>> {
        // Rounded up: a sleep must not end before its time.
        let millis = i64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX);
        let until = Timestamp(self.now().as_millis().saturating_add(millis));
        let mut manual = self.lock();
        manual.next_sleep += 1;
        Some(Box::pin(ManualSleep { clock: self.clone(), number: manual.next_sleep, until }))
    }
}

struct ManualSleep {
    clock: ManualClock,
    number: u64,
    until: Timestamp,
}

impl Future for ManualSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut manual = self.clock.lock();
        if self.until <= manual.now {
            return Poll::Ready(());
        }
        manual.sleepers.insert(self.number, (self.until, context.waker().clone()));
        Poll::Pending
    }
}

impl Drop for ManualSleep {
    fn drop(&mut self) {
        self.clock.lock().sleepers.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(duration: Duration) -> Result<i64, String> {
        Span::new("retention", duration).map(Span::as_millis).map_err(|error| error.to_string())
    }

    #[test]
    fn spans_round_up_and_refuse_zero_and_overflow() {
        assert_eq!(span(Duration::from_nanos(1)), Ok(1));
        assert_eq!(span(Duration::from_micros(999)), Ok(1));
        assert_eq!(span(Duration::from_millis(1)), Ok(1));
        assert_eq!(span(Duration::from_micros(1001)), Ok(2));
        assert_eq!(span(Duration::from_millis(i64::MAX as u64)), Ok(i64::MAX));
        assert!(span(Duration::ZERO).unwrap_err().starts_with("invalid retention of 0ns"));
        assert!(span(Duration::from_millis(1 << 63)).unwrap_err().contains("overflows"));
        assert!(span(Duration::MAX).unwrap_err().contains("overflows"));
    }

    #[test]
    fn an_expiry_beyond_the_end_of_time_is_refused() {
        let late = Timestamp::from_millis(i64::MAX - 5);
        let retention = |millis| Retention::For(Span(millis));
        assert_eq!(retention(5).expires_at(late).unwrap(), Some(Timestamp::from_millis(i64::MAX)));
        assert!(retention(6).expires_at(late).is_err());
        assert_eq!(Retention::Forever.expires_at(late).unwrap(), None);
    }

    #[test]
    fn system_times_round_down_on_both_sides_of_the_epoch() {
        let at = |time: SystemTime| Timestamp::from(time).as_millis();
        assert_eq!(at(UNIX_EPOCH + Duration::from_micros(1999)), 1);
        assert_eq!(at(UNIX_EPOCH - Duration::from_micros(1001)), -2);
        assert_eq!(at(UNIX_EPOCH), 0);
        for millis in [-1_500, 0, 1_700_000_000_123] {
            let there = Timestamp::from_millis(millis).to_system_time().unwrap();
            assert_eq!(at(there), millis);
        }
    }

    #[test]
    fn since_is_zero_backwards_and_survives_the_extremes() {
        let (first, last) = (Timestamp::from_millis(i64::MIN), Timestamp::from_millis(i64::MAX));
        assert_eq!(first.since(last), Duration::ZERO);
        assert_eq!(last.since(first), Duration::from_millis(u64::MAX));
    }

    #[tokio::test]
    async fn a_sleep_on_a_manual_clock_ends_when_the_clock_gets_there() {
        let clock = ManualClock::at(Timestamp::from_millis(1_000));
        let sleeping = tokio::spawn(clock.sleep(Duration::from_millis(10)).unwrap());
        tokio::task::yield_now().await;
        clock.advance(Duration::from_millis(9));
        tokio::task::yield_now().await;
        assert!(!sleeping.is_finished());
        assert_eq!(clock.sleepers(), 1);
        clock.advance(Duration::from_millis(1));
        sleeping.await.unwrap();
        assert_eq!(clock.sleepers(), 0);
        assert_eq!(clock.now().as_millis(), 1_010);
    }

    #[tokio::test]
    async fn a_sleep_that_is_dropped_is_no_sleeper_and_one_that_is_polled_again_is_one() {
        let clock = ManualClock::at(Timestamp::from_millis(1_000));
        let mut sleep = clock.sleep(Duration::from_millis(10)).unwrap();
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..3 {
            assert!(sleep.as_mut().poll(&mut context).is_pending());
            assert_eq!(clock.sleepers(), 1);
        }
        drop(sleep);
        assert_eq!(clock.sleepers(), 0);
    }

    #[tokio::test]
    async fn a_sleep_below_a_millisecond_is_no_busy_loop() {
        let clock = ManualClock::at(Timestamp::from_millis(0));
        let sleeping = tokio::spawn(clock.sleep(Duration::from_micros(1)).unwrap());
        tokio::task::yield_now().await;
        assert!(!sleeping.is_finished());
        clock.advance(Duration::from_millis(1));
        sleeping.await.unwrap();
    }
}
