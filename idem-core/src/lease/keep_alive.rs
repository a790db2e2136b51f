//! Renewing a lease beside the work that it is held for.

use std::{pin::pin, time::Duration};

use futures_util::future::{Either, select};

use super::{
    guard::{Held, Lease},
    step::{Last, Prolong},
    terms::Renewal,
};
use crate::{Error, ErrorKind, Store, Timestamp, back_off::BackOff};

/// The first pause after a renewal that failed.
const FIRST_RETRY: Duration = Duration::from_millis(20);

/// What [`Lease::keep_alive`] saw through.
#[derive(Debug)]
#[must_use = "the lease may have been lost while the work went on"]
#[non_exhaustive]
pub struct KeptAlive<R> {
    /// What the work returned.
    pub output: R,
    /// [`ErrorKind::LeaseLost`] if the lease was found lost while the work went on. None does not promise that
    /// it is still held: the next step of the lease tells.
    pub lost: Option<Error>,
    /// Whether the ceiling was reached before the work ended: the lease was not renewed any more, and has ended or
    /// soon does.
    pub ceiling_reached: bool,
}

impl<S: Store + 'static, T> Lease<S, T> {
    /// Drives `work` to its end, and renews the lease beside it: once before it begins, then every `every` (a third
    /// of the lease is a good choice), each time for as long as it was claimed for, but never beyond `ceiling` from
    /// the call, so that work which hangs does not hold the key for ever. A lease that ends later than the ceiling
    /// is cut to it. After the ceiling the work goes on, and the lease ends.
    ///
    /// A renewal that fails for another reason than a lost lease is tried again, with growing pauses. When the
    /// lease is lost the work goes on as well, since only it knows how to stop; [`KeptAlive::lost`] then says so.
    ///
    /// # Errors
    /// Before the work begins: [`ErrorKind::LeaseLost`]; [`ErrorKind::InvalidDuration`] if `every` is zero or
    /// more than half the lease, or the ceiling zero; the store's own.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work; the lease is still held.
    pub fn keep_alive<W>(
        &mut self,
        every: Duration,
        ceiling: Duration,
        work: W,
    ) -> impl Future<Output = Result<KeptAlive<W::Output>, Error>> + Send
    where
        W: Future + Send,
        W::Output: Send,
    {
        async move {
            let Renewal { every, ceiling } = Renewal::new(self.held.lease, every, ceiling)?;
            let now = self.held.prolong(Last::In(ceiling)).await?;
            let last = Last::In(ceiling).at(now);
            Ok(self.held.keep_alive_until(last, every, work).await)
        }
    }

    /// As [`Lease::keep_alive`], just after the claim of a lease that ends before the ceiling: the first renewal comes
    /// after the interval.
    pub(super) async fn keep_alive_from_claim<W: Future>(
        &mut self,
        Renewal { every, ceiling }: Renewal,
        work: W,
    ) -> KeptAlive<W::Output> {
        let last = Last::In(ceiling).at(self.held.claimed_at());
        self.held.keep_alive_until(last, every, work).await
    }
}

impl<S: Store + 'static> Held<S> {
    async fn keep_alive_until<W: Future>(
        &mut self,
        last: Timestamp,
        every: Duration,
        work: W,
    ) -> KeptAlive<W::Output> {
        let mut work = pin!(work);
        let renewing = pin!(self.prolong_until(last, every));
        match select(work.as_mut(), renewing).await {
            Either::Left((output, _)) => KeptAlive { output, lost: None, ceiling_reached: false },
            Either::Right((lost, _)) => {
                let ceiling_reached = lost.is_none();
                KeptAlive { output: work.await, lost, ceiling_reached }
            }
        }
    }

    /// Renews the lease, and returns the time of it.
    async fn prolong(&mut self, last: Last) -> Result<Timestamp, Error> {
        let committed = self.take(Prolong { token: self.token, lease: self.lease, last }).await?;
        self.note(&committed);
        Ok(committed.now)
    }

    /// Renews every `every`, and returns when the lease ends at `last`, or with what it was lost by.
    async fn prolong_until(&mut self, last: Timestamp, every: Duration) -> Option<Error> {
        let retries = BackOff { first: FIRST_RETRY.min(every), longest: every };
        let (mut pause, mut failures) = (every, 0);
        while self.ends_at() < last {
            self.idem.store().sleep(pause).await;
            pause = match self.prolong(Last::At(last)).await {
                Ok(_) => {
                    failures = 0;
                    every
                }
                Err(error) if matches!(error.kind(), ErrorKind::LeaseLost { .. }) => {
                    return Some(error);
                }
                Err(_) => {
                    failures += 1;
                    retries.pause(failures)
                }
            };
        }
        None
    }
}
