//! How a queue is consumed.

use std::{error::Error as StdError, fmt, sync::Arc, time::Duration};

use crate::{Error, ErrorKind, Retention, Span, back_off::BackOff, error::Field};

/// How [`consume`](super::consume) and [`drain`](super::drain) go about a queue.
///
/// Durations are counted by the store's clock. What is zero, or longer than the clock can hold, is refused
/// when the options are used, before anything is received.
///
/// ```
/// use idem_core::consumer::Options;
/// use std::time::Duration;
/// let options = Options::new()
///     .concurrency(16)
///     .attempts(3)
///     .back_off(Duration::from_millis(50), Duration::from_secs(10));
/// ```
#[derive(Clone)]
#[must_use = "options do nothing until they are used"]
pub struct Options {
    concurrency: usize,
    batch: usize,
    attempts: Option<u32>,
    back_off: BackOff,
    idle: Duration,
    horizon: Option<Duration>,
    end_within: Duration,
    on_trouble: Option<OnTrouble>,
}

type OnTrouble = Arc<dyn Fn(&(dyn StdError + 'static)) + Send + Sync>;

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("concurrency", &self.concurrency)
            .field("batch", &self.batch)
            .field("attempts", &self.attempts)
            .field("back_off", &self.back_off)
            .field("idle", &self.idle)
            .field("horizon", &self.horizon)
            .field("end_within", &self.end_within)
            .finish_non_exhaustive()
    }
}

impl Default for Options {
    fn default() -> Self {
        let back_off =
            BackOff { first: Duration::from_millis(100), longest: Duration::from_secs(30) };
        Self {
            concurrency: 1,
            batch: 16,
            attempts: Some(5),
            back_off,
            idle: Duration::from_millis(100),
            horizon: None,
            end_within: Duration::from_secs(10),
            on_trouble: None,
        }
    }
}

impl Options {
    /// One delivery at a time, five attempts.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many deliveries are in flight here at a time; 1 unless told, so that messages are handled in the
    /// order in which they are delivered.
    ///
    /// With more they overlap, but for those of one event, which wait for each other. A queue that delivers more
    /// than it was asked for does not make more handlers run at a time.
    pub fn concurrency(mut self, deliveries: usize) -> Self {
        self.concurrency = deliveries;
        self
    }

    /// How many deliveries are asked of the queue at once, at most; 16 unless told. Never more than can be
    /// handled at once, whatever is given here.
    pub fn batch(mut self, deliveries: usize) -> Self {
        self.batch = deliveries;
        self
    }

    /// After how many deliveries a message whose handler fails again is set aside; 5 unless told.
    ///
    /// The queue counts: also a delivery that was given back unhandled, or that nobody settled, is one. A message
    /// that is delivered more often than this is not handled any more: it is acked if its event was handled, else
    /// set aside, since it may be what kills its workers. So give more than the restarts and crashes of workers
    /// that a message may live to see.
    ///
    /// Handlers that fail one after the other, with no success between, slow the loop down as a failing store
    /// does ([`back_off`](Options::back_off)), so that an outage of what they depend on does not use up the
    /// attempts of a whole queue in a moment.
    pub fn attempts(mut self, deliveries: u32) -> Self {
        self.attempts = Some(deliveries);
        self
    }

    /// A message whose handler fails is given back however often it was delivered.
    pub fn attempts_without_end(mut self) -> Self {
        self.attempts = None;
        self
    }

    /// How long to wait after the queue or the store has failed: `first`, doubled after each further failure
    /// in a row up to `longest`, each time shortened at random by up to a half; 100 milliseconds and 30 seconds
    /// unless told.
    ///
    /// As long is nothing received after handlers have failed in a row: as many failures as there are handlers at
    /// a time ([`concurrency`](Options::concurrency)) count as one, and a success ends the pause. A delivery whose
    /// key is held by a lease waits as long, and not beyond the lease's end.
    pub fn back_off(mut self, first: Duration, longest: Duration) -> Self {
        self.back_off = BackOff { first, longest };
        self
    }

    /// How long to wait before the queue is asked again when it had nothing; 100 milliseconds unless told. A
    /// queue that waits for messages by itself needs little here.
    pub fn idle(mut self, pause: Duration) -> Self {
        self.idle = pause;
        self
    }

    /// How long after its first delivery the queue may deliver an event again, at most; the queue's own
    /// [horizon](super::Queue::horizon) unless told.
    ///
    /// A handler's marks must live at least as long ([`Handler::retain`](super::Handler::retain)): an event that
    /// comes after its mark has expired runs again. So a handler whose marks end is refused on a queue whose
    /// horizon is longer, or not known. Count in what others may add, such as a publisher that sends an event
    /// again a day later, and how long a delivery may wait for the store.
    pub fn horizon(mut self, horizon: Duration) -> Self {
        self.horizon = Some(horizon);
        self
    }

    /// How long the end may take, from when `until` is ready; 10 seconds unless told.
    ///
    /// Then what is still running is dropped and given back, and so is what waits for the store. A handler outside
    /// the store that was cut short, or that ran and could not be marked by then, runs again. A queue that does not
    /// answer is waited for as long again at most.
    pub fn end_within(mut self, longest: Duration) -> Self {
        self.end_within = longest;
        self
    }

    /// What to do with each failure of the queue and of the store that the loop rides out, and with the one that
    /// ends it: log it, say. It is called where the loop runs: it must not block, nor panic.
    ///
    /// A queue's failure is the error that the queue returned; a store's is an [`Error`].
    ///
    /// ```
    /// use idem_core::consumer::Options;
    /// let options = Options::new().on_trouble(|error| eprintln!("the consumer goes on: {error}"));
    /// ```
    pub fn on_trouble(
        mut self,
        tell: impl Fn(&(dyn StdError + 'static)) + Send + Sync + 'static,
    ) -> Self {
        self.on_trouble = Some(Arc::new(tell));
        self
    }

    /// Refuses what makes no sense.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSetting`], [`ErrorKind::InvalidDuration`].
    pub(super) fn check(&self) -> Result<(), Error> {
        let counts = [
            ("concurrency", self.concurrency),
            ("batch", self.batch),
            ("attempts", self.attempts.map_or(1, |attempts| attempts as usize)),
        ];
        for (field, count) in counts {
            if count == 0 {
                return Err(invalid(field, "it is zero: give at least one"));
            }
        }
        Span::new("back_off", self.back_off.first)?;
        Span::new("back_off", self.back_off.longest)?;
        if self.back_off.longest < self.back_off.first {
            return Err(invalid("back_off", "the longest pause is shorter than the first"));
        }
        Span::new("idle", self.idle)?;
        Span::new("end_within", self.end_within)?;
        self.horizon.map_or(Ok(()), |horizon| Span::new("horizon", horizon).map(drop))
    }

    /// Refuses marks that may expire while the queue can still deliver their events.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSetting`].
    pub(super) fn check_retention(
        &self,
        retention: Retention,
        of_queue: Option<Duration>,
    ) -> Result<(), Error> {
        let Retention::For(retention) = retention else { return Ok(()) };
        let retention = Duration::from_millis(retention.as_millis().unsigned_abs());
        match self.horizon.or(of_queue) {
            Some(horizon) if horizon <= retention => Ok(()),
            Some(horizon) => Err(invalid(
                "retention",
                format!(
                    "marks live {retention:?}, and the queue may deliver an event again for {horizon:?}: retain \
                     them as long, or forever"
                ),
            )),
            None => Err(invalid(
                "retention",
                format!(
                    "marks live {retention:?}, and how long the queue may deliver an event again is not known: \
                     give the horizon, or retain them forever"
                ),
            )),
        }
    }

    /// How many deliveries may be asked for while so many are in flight here.
    pub(super) fn room(&self, in_flight: usize) -> usize {
        self.concurrency.saturating_sub(in_flight).min(self.batch)
    }

    /// Whether a message whose handler failed again in that attempt is to be set aside.
    pub(super) fn is_last(&self, attempt: u32) -> bool {
        self.attempts.is_some_and(|attempts| attempt >= attempts)
    }

    /// Whether a message is not to be handled any more in that attempt.
    pub(super) fn is_beyond(&self, attempt: u32) -> bool {
        self.attempts.is_some_and(|attempts| attempt > attempts)
    }

    /// How long to leave the queue alone after so many handlers have failed in a row.
    pub(super) fn pause_after(&self, failures: usize) -> Duration {
        let rounds = failures.div_ceil(self.concurrency.max(1));
        self.back_off.pause(u32::try_from(rounds).unwrap_or(u32::MAX))
    }

    /// How many handlers may be at it at a time.
    pub(super) fn places(&self) -> usize {
        self.concurrency
    }

    pub(super) fn longest_end(&self) -> Duration {
        self.end_within
    }

    pub(super) fn tell(&self, error: &(dyn StdError + 'static)) {
        if let Some(tell) = &self.on_trouble {
            tell(error);
        }
    }

    pub(super) fn pauses(&self) -> BackOff {
        self.back_off
    }

    pub(super) fn idle_pause(&self) -> Duration {
        self.idle
    }
}

fn invalid(field: Field, problem: impl Into<String>) -> Error {
    Error::nothing_done(ErrorKind::InvalidSetting { field, problem: problem.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// The setting that is refused.
    fn refused(options: Options) -> Option<Field> {
        options.check().err().map(|error| match error.kind() {
            ErrorKind::InvalidSetting { field, .. } | ErrorKind::InvalidDuration { field, .. } => {
                *field
            }
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn what_is_zero_or_beyond_the_clock_is_refused() {
        let new = Options::new;
        let good = new().concurrency(1).batch(1).attempts(1).back_off(SECOND, SECOND).idle(SECOND);
        assert_eq!(refused(good.horizon(SECOND)), None);
        assert_eq!(refused(new().attempts_without_end()), None);
        assert_eq!(refused(new().concurrency(0)), Some("concurrency"));
        assert_eq!(refused(new().batch(0)), Some("batch"));
        assert_eq!(refused(new().attempts(0)), Some("attempts"));
        for (first, longest) in
            [(Duration::ZERO, SECOND), (SECOND, Duration::MAX), (2 * SECOND, SECOND)]
        {
            assert_eq!(refused(new().back_off(first, longest)), Some("back_off"));
        }
        for bad in [Duration::ZERO, Duration::MAX] {
            assert_eq!(refused(new().idle(bad)), Some("idle"));
            assert_eq!(refused(new().horizon(bad)), Some("horizon"));
            assert_eq!(refused(new().end_within(bad)), Some("end_within"));
        }
    }

    #[test]
    fn marks_must_live_as_long_as_the_queue_can_deliver_again() {
        let brief = Retention::For(Span::new("retention", SECOND).unwrap());
        let longer = SECOND + Duration::from_nanos(1);
        let is_good = |options: &Options, retention, of_queue| {
            options.check_retention(retention, of_queue).is_ok()
        };
        let untold = Options::new();
        for of_queue in [None, Some(Duration::ZERO), Some(SECOND), Some(Duration::MAX)] {
            assert!(is_good(&untold, Retention::Forever, of_queue));
        }
        assert!(!is_good(&untold, brief, None));
        assert!(is_good(&untold, brief, Some(SECOND)));
        assert!(!is_good(&untold, brief, Some(longer)));
        let told = Options::new().horizon(SECOND);
        assert!(is_good(&told, brief, None));
        assert!(is_good(&told, brief, Some(longer)), "who consumes knows better than the queue");
        assert!(!is_good(&Options::new().horizon(longer), brief, Some(SECOND)));
    }

    #[test]
    fn no_more_is_asked_for_than_there_is_room() {
        let options = Options::new().concurrency(5).batch(3);
        let room = [0, 1, 2, 3, 4, 5, 6].map(|in_flight| options.room(in_flight));
        assert_eq!(room, [3, 3, 3, 2, 1, 0, 0]);
    }

    #[test]
    fn the_last_attempt_is_the_one_of_that_number() {
        let options = Options::new().attempts(3);
        assert_eq!([1, 2, 3, 4].map(|n| options.is_last(n)), [false, false, true, true]);
        assert_eq!([1, 2, 3, 4].map(|n| options.is_beyond(n)), [false, false, false, true]);
        let endless = Options::new().attempts_without_end();
        assert!(!endless.is_last(u32::MAX) && !endless.is_beyond(u32::MAX));
    }

    #[test]
    fn as_many_failures_as_there_are_handlers_at_a_time_count_as_one() {
        let options = Options::new().concurrency(4).back_off(SECOND, 8 * SECOND);
        for (failures, whole) in [(1, 1), (4, 1), (5, 2), (8, 2), (9, 4), (13, 8), (usize::MAX, 8)]
        {
            let pause = options.pause_after(failures);
            assert!(
                pause >= whole * SECOND / 2 && pause <= whole * SECOND,
                "{failures}: {pause:?}"
            );
        }
    }
}
