//! How long work holds its key.

use std::time::Duration;

use crate::{Error, ErrorKind, Span};

/// How long a key is held for work: a lease, and whether it is renewed while the work goes on.
///
/// A [`Duration`] is a lease that is not renewed.
///
/// ```
/// use idem_core::LeaseTerms;
/// use std::time::Duration;
/// let lease = Duration::from_secs(30);
/// let terms = LeaseTerms::new(lease).keep_alive(lease / 3, Duration::from_secs(300));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct LeaseTerms {
    lease: Duration,
    renewal: Option<(Duration, Duration)>,
}

/// When a lease is renewed beside its work.
#[derive(Clone, Copy)]
pub(super) struct Renewal {
    pub(super) every: Duration,
    pub(super) ceiling: Span,
}

impl LeaseTerms {
    /// A lease that is not renewed.
    pub const fn new(lease: Duration) -> Self {
        Self { lease, renewal: None }
    }

    /// Renews the lease every `every` while the work goes on, each time for as long as it was claimed for, but never
    /// beyond `ceiling` from the claim, so that work which hangs does not hold the key for ever. A third of the lease is
    /// a good interval; the first renewal comes after it. The ceiling must be at least the lease.
    pub const fn keep_alive(mut self, every: Duration, ceiling: Duration) -> Self {
        self.renewal = Some((every, ceiling));
        self
    }

    /// The lease.
    #[must_use]
    pub const fn lease(&self) -> Duration {
        self.lease
    }

    /// When it is renewed, if it is.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidDuration`] if the interval is zero or more than half the lease, or the ceiling below the lease.
    pub(super) fn renewal(&self) -> Result<Option<Renewal>, Error> {
        let Some((every, ceiling)) = self.renewal else { return Ok(None) };
        let lease = Span::new("lease", self.lease)?;
        let renewal = Renewal::new(lease, every, ceiling)?;
        if renewal.ceiling < lease {
            let problem = "give at least the lease";
            let kind = ErrorKind::InvalidDuration { field: "ceiling", duration: ceiling, problem };
            return Err(Error::nothing_done(kind));
        }
        Ok(Some(renewal))
    }
}

impl From<Duration> for LeaseTerms {
    fn from(lease: Duration) -> Self {
        Self::new(lease)
    }
}

impl Renewal {
    pub(super) fn new(lease: Span, every: Duration, ceiling: Duration) -> Result<Self, Error> {
        let interval = Span::new("interval", every)?;
        let ceiling = Span::new("ceiling", ceiling)?;
        if interval.as_millis() > lease.as_millis() / 2 {
            let problem = "give half the lease at most, or it may end before it is renewed";
            let kind = ErrorKind::InvalidDuration { field: "interval", duration: every, problem };
            return Err(Error::nothing_done(kind));
        }
        Ok(Self { every, ceiling })
    }
}
