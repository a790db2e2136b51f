//! All that can be asked of a store, for tests of a backend that disturb it: each operation is tried on a key whose
//! state is known, and may leave that state as it was or as the operation makes it, and nothing between.

use std::time::Duration;

use idem_core::{
    Certainty, Claim, Error, Filter, Idem, Lease, LeaseError, Outcome, Request, Space, State,
    Store, Transaction,
    consumer::{Marked, Recorder},
};

use crate::setup::{add, count_in, request};

/// Longer than any test takes.
const LEASE: Duration = Duration::from_secs(600);

/// The name of the one key, and of the one count.
const NAME: &str = "k";

/// Something that a caller asks of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Runs an effect that only writes.
    Execute,
    /// Runs an effect that reads what it changes.
    ExecuteReading,
    /// Claims a free key.
    Claim,
    /// Completes a lease.
    Complete,
    /// Completes a lease together with an effect that reads.
    CompleteWith,
    /// Renews a lease.
    Renew,
    /// Releases a lease.
    Release,
    /// Ends a lease and waits for it.
    End,
    /// Drops a lease, and closes the store, which waits for its end.
    Drop,
    /// Marks an event.
    Mark,
    /// Forgets a receipt.
    Forget,
    /// Purges an expired receipt.
    Purge,
    /// Reads a receipt.
    Receipt,
    /// Reads a value.
    Value,
    /// Lists the records.
    List,
}

/// What is recorded for the one key, or event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing.
    Free,
    /// A live receipt.
    Completed,
    /// An expired receipt.
    Expired,
    /// A live lease.
    Held,
    /// A live lease that was renewed for longer.
    Renewed,
    /// A lease that has ended.
    Ended,
}

/// What a store holds: the record's phase, and how many effects there were.
pub type Seen = (Phase, u64);

impl Operation {
    /// Every one.
    pub const ALL: [Self; 15] = [
        Self::Execute,
        Self::ExecuteReading,
        Self::Claim,
        Self::Complete,
        Self::CompleteWith,
        Self::Renew,
        Self::Release,
        Self::End,
        Self::Drop,
        Self::Mark,
        Self::Forget,
        Self::Purge,
        Self::Receipt,
        Self::Value,
        Self::List,
    ];

    /// What a store holds before it, and after it.
    #[must_use]
    pub fn states(self) -> (Seen, Seen) {
        use Phase::{Completed, Ended, Expired, Free, Held, Renewed};
        match self {
            Self::Execute | Self::ExecuteReading => ((Free, 0), (Completed, 1)),
            Self::Claim => ((Free, 0), (Held, 0)),
            Self::Complete => ((Held, 0), (Completed, 0)),
            Self::CompleteWith => ((Held, 0), (Completed, 1)),
            Self::Renew => ((Held, 0), (Renewed, 0)),
            Self::Release => ((Held, 0), (Free, 0)),
            Self::End | Self::Drop => ((Held, 0), (Ended, 0)),
            Self::Mark => ((Free, 0), (Completed, 0)),
            Self::Forget => ((Completed, 1), (Free, 1)),
            Self::Purge => ((Expired, 1), (Free, 1)),
            Self::Receipt | Self::Value | Self::List => ((Completed, 1), (Completed, 1)),
        }
    }

    /// Brings an empty store into the state before it; returns the lease that it is about, if it is about one.
    ///
    /// What is to be purged expires a millisecond later, by the store's clock.
    ///
    /// # Errors
    /// The store's own.
    pub async fn prepare<S: Store + 'static>(
        self,
        idem: &Idem<S>,
    ) -> Result<Option<Lease<S, u64>>, Error> {
        let mut request = request(NAME, "p");
        match self.states().0.0 {
            Phase::Held => return Ok(idem.claim(&request, LEASE).await?.lease()),
            Phase::Completed | Phase::Expired => {
                if self == Self::Purge {
                    request = request.retain(Duration::from_millis(1));
                }
                assert_eq!(execute(idem, &request).await?, Outcome::Created(1));
            }
            _ => {}
        }
        Ok(None)
    }

    /// Asks for it. What is answered without an error must be right.
    ///
    /// # Errors
    /// The store's own.
    pub async fn ask<S: Store + 'static>(
        self,
        idem: &Idem<S>,
        lease: Option<Lease<S, u64>>,
    ) -> Result<(), Error> {
        let request = request(NAME, "p");
        let key = request.key();
        match (self, lease) {
            (Self::Execute, _) => {
                let effect = |tx: &mut S::Transaction| {
                    tx.put(NAME.as_bytes(), b"1")?;
                    Ok(1)
                };
                assert_eq!(idem.execute(&request, effect).await?, Outcome::Created(1));
            }
            (Self::ExecuteReading, _) => {
                assert_eq!(execute(idem, &request).await?, Outcome::Created(1));
            }
            (Self::Claim, _) => match idem.claim::<u64>(&request, LEASE).await? {
                Claim::Acquired(lease) => {
                    assert_eq!(lease.took_over(), None);
                    lease.abandon();
                }
                refused => panic!("the key was free: {refused:?}"),
            },
            (Self::Complete, Some(lease)) => assert_eq!(kept(lease.complete(7).await)?, 7),
            (Self::CompleteWith, Some(lease)) => {
                assert_eq!(kept(lease.complete_with(|tx| add(tx, NAME)).await)?, 1);
            }
            (Self::Renew, Some(mut lease)) => {
                let renewed = lease.renew(2 * LEASE).await;
                lease.abandon();
                renewed?;
            }
            (Self::Release, Some(lease)) => kept(lease.release().await)?,
            (Self::End, Some(lease)) => kept(lease.end().await)?,
            (Self::Drop, Some(lease)) => {
                drop(lease);
                idem.close().await?;
            }
            (Self::Mark, _) => {
                assert_eq!(idem.mark_processed("north", NAME).await?, Marked::First);
            }
            (Self::Forget, _) => assert!(idem.forget(key).await?),
            (Self::Purge, _) => assert_eq!(idem.purge(10).await?.removed, 1),
            (Self::Receipt, _) => assert!(idem.receipt(key).await?.is_some()),
            (Self::Value, _) => {
                assert_eq!(
                    idem.value(&space(), NAME.as_bytes()).await?.as_deref(),
                    Some(&b"1"[..])
                );
            }
            (Self::List, _) => assert_eq!(idem.list(None, 10).await?.records.len(), 1),
            (_, None) => panic!("{self:?} is about a lease"),
        }
        Ok(())
    }

    /// Asserts that a store holds what it may after that answer: the state after the operation if it succeeded, the
    /// one before if nothing was done, either if that is unknown. An operation that goes on in the background says
    /// nothing by its answer.
    ///
    /// # Panics
    /// If it holds anything else.
    pub fn agrees(self, answer: &Result<(), Error>, seen: Seen) {
        let (before, after) = self.states();
        // A claim that nobody was told of is ended in the background.
        let ended = (Phase::Ended, 0);
        let may_be = match answer.as_ref().map_err(Error::certainty) {
            _ if self == Self::Drop => vec![before, after],
            Ok(()) | Err(Certainty::Done) => vec![after],
            Err(Certainty::NothingDone) => vec![before],
            Err(_) if self == Self::Claim => vec![before, after, ended],
            Err(_) => vec![before, after],
        };
        assert!(may_be.contains(&seen), "{self:?} left {seen:?} and answered {answer:?}");
    }

    /// Asks again for the key, which must be answered as what the store holds demands, with one effect at most.
    ///
    /// # Errors
    /// The store's own.
    pub async fn ask_again<S: Store + 'static>(
        self,
        idem: &Idem<S>,
        (phase, count): Seen,
    ) -> Result<(), Error> {
        if self == Self::Mark {
            let expected = if phase == Phase::Free { Marked::First } else { Marked::Again };
            assert_eq!(idem.mark_processed("north", NAME).await?, expected);
            assert!(idem.is_processed("north", NAME).await?);
            return Ok(());
        }
        let answer = execute(idem, &request(NAME, "p")).await?;
        let created = match phase {
            Phase::Free | Phase::Expired | Phase::Ended => {
                assert_eq!(answer, Outcome::Created(count + 1), "{self:?}, {phase:?}");
                1
            }
            Phase::Completed => {
                let result = if self == Self::Complete { 7 } else { count };
                assert_eq!(answer, Outcome::Replayed(result), "{self:?}, {phase:?}");
                0
            }
            Phase::Held | Phase::Renewed => {
                let is_held = matches!(answer, Outcome::InProgress { .. });
                assert!(is_held, "{self:?}, {phase:?}: {answer:?}");
                0
            }
        };
        assert_eq!(count_in(idem, &space(), NAME).await, count + created, "{self:?}, {phase:?}");
        Ok(())
    }
}

/// What a store holds for the one key, or event, which must be all that it holds.
///
/// # Errors
/// The store's own.
pub async fn seen<S: Store>(idem: &Idem<S>) -> Result<Seen, Error> {
    // What has expired, too.
    let page = idem.store().list(&Filter::all(), None, 10).await?;
    assert!(page.records.len() <= 1, "{:?}", page.records);
    let phase = match page.records.first().map(|(_, record)| (record, &record.state)) {
        None => Phase::Free,
        Some((_, State::Completed { expires_at, .. })) => match expires_at {
            Some(at) if *at <= page.now => Phase::Expired,
            _ => Phase::Completed,
        },
        Some((_, State::Claimed { until, is_ended, .. })) if *is_ended || *until <= page.now => {
            Phase::Ended
        }
        Some((record, State::Claimed { until, .. })) => {
            match until.since(record.created_at) > LEASE + LEASE / 2 {
                true => Phase::Renewed,
                false => Phase::Held,
            }
        }
    };
    Ok((phase, count_in(idem, &space(), NAME).await))
}

async fn execute<S: Store>(idem: &Idem<S>, request: &Request) -> Result<Outcome<u64>, Error> {
    idem.execute(request, |tx| add(tx, NAME)).await
}

/// The lease of an error is left as it is, so that nothing ends it in the background.
fn kept<S: Store + 'static, T, R>(answer: Result<R, LeaseError<S, T>>) -> Result<R, Error> {
    answer.map_err(|error| {
        let (error, lease) = error.into_parts();
        lease.abandon();
        error
    })
}

fn space() -> Space {
    Space::tenant("north").expect("a good tenant")
}
