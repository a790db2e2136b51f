//! A consumer of payments, for the cases of consumers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use idem_core::{
    EffectError, Idem, ManualClock, Space, Store, Transaction,
    consumer::{Consumed, Handler, Options, Recorder, drain},
    testing::MemoryQueue,
};
use tokio::sync::Semaphore;

use crate::{
    callers::{as_time_passes, within},
    setup::{Runs, count_in},
};

/// A payment; a broken one fails whoever handles it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Payment {
    pub(crate) amount: u64,
    pub(crate) is_broken: bool,
}

pub(crate) const fn pays(amount: u64) -> Payment {
    Payment { amount, is_broken: false }
}

pub(crate) const BROKEN: Payment = Payment { amount: 100, is_broken: true };

/// What a broken payment fails with.
#[derive(Debug)]
pub(crate) struct Broken;

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the payment is broken")
    }
}

impl std::error::Error for Broken {}

/// A handler of payments in one of its modes, and where their sum is.
pub(crate) struct Till<S: Store> {
    pub(crate) handler: Handler<S, Payment>,
    pub(crate) idem: Idem<S>,
    pub(crate) outside: Option<Arc<AtomicU64>>,
}

impl<S: Store + 'static> Till<S> {
    /// One whose sum is in the store, written with the mark.
    pub(crate) fn atomic(idem: &Idem<S>) -> Self {
        let handle = |tx: &mut S::Transaction, payment: &Payment| pay(tx, *payment);
        let handler = Handler::atomic(idem, "billing", handle).unwrap();
        Self { handler, idem: idem.clone(), outside: None }
    }

    /// One whose sum is outside the store; the mark follows.
    pub(crate) fn outside(idem: &Idem<S>) -> Self {
        let outside = Arc::new(AtomicU64::new(0));
        let sum = Arc::clone(&outside);
        let handle = move |payment: Payment| {
            let sum = Arc::clone(&sum);
            async move {
                if payment.is_broken {
                    return Err(Broken);
                }
                sum.fetch_add(payment.amount, Ordering::SeqCst);
                Ok(())
            }
        };
        let handler = Handler::outside(idem, "billing", handle).unwrap();
        Self { handler, idem: idem.clone(), outside: Some(outside) }
    }

    pub(crate) fn both(idem: &Idem<S>) -> [Self; 2] {
        [Self::atomic(idem), Self::outside(idem)]
    }

    pub(crate) async fn sum(&self) -> u64 {
        match &self.outside {
            Some(sum) => sum.load(Ordering::SeqCst),
            None => count_in(&self.idem, &Space::consumer("billing").unwrap(), "sum").await,
        }
    }
}

/// Adds a payment to the sum, then fails if it is broken.
pub(crate) fn pay<Tx: Transaction + ?Sized>(
    tx: &mut Tx,
    payment: Payment,
) -> Result<(), EffectError> {
    let sum = tx.get(b"sum")?.map_or("0".into(), |sum| String::from_utf8_lossy(&sum).into_owned());
    let sum = sum.parse::<u64>()? + payment.amount;
    tx.put(b"sum", sum.to_string().as_bytes())?;
    if payment.is_broken { Err(Broken.into()) } else { Ok(()) }
}

pub(crate) async fn is_marked<S: Store>(idem: &Idem<S>, event_id: &str) -> bool {
    idem.store().is_processed("billing", event_id).await.unwrap()
}

/// Where handlers outside the store are held until they are let go.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    inside: Runs,
    open: Arc<Semaphore>,
}

impl Gate {
    pub(crate) fn closed() -> Self {
        Self { inside: Runs::default(), open: Arc::new(Semaphore::new(0)) }
    }

    /// A handler that passes this gate.
    pub(crate) fn handler<S: Store + 'static>(&self, idem: &Idem<S>) -> Handler<S, Payment> {
        let gate = self.clone();
        let handle = move |_: Payment| {
            let gate = gate.clone();
            async move {
                gate.inside.bump();
                gate.open.acquire().await.map(|permit| permit.forget())
            }
        };
        Handler::outside(idem, "billing", handle).unwrap()
    }

    /// How many have come in, all told.
    pub(crate) fn inside(&self) -> usize {
        self.inside.get()
    }

    /// Lets so many go.
    pub(crate) fn open(&self, handlers: usize) {
        self.open.add_permits(handlers);
    }
}

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// How often a handler ran, found a duplicate, and failed.
pub(crate) fn counts(consumed: Consumed) -> [u64; 3] {
    [consumed.ran, consumed.duplicates, consumed.failed]
}

/// Until the queue has nothing to give.
pub(crate) async fn drained<S: Store + 'static>(
    queue: &MemoryQueue<Payment>,
    handler: &Handler<S, Payment>,
    options: &Options,
) -> Consumed {
    within("the queue to be empty", drain(queue, handler, options)).await.unwrap()
}

/// The same, with handlers that fail: time passes meanwhile, since after a failure the queue is left alone.
pub(crate) async fn drained_slowly<S: Store + 'static, M: Clone + Send + Sync + 'static>(
    clock: &ManualClock,
    queue: &MemoryQueue<M>,
    handler: &Handler<S, M>,
    options: &Options,
) -> Consumed {
    let draining = drain(queue, handler, options);
    as_time_passes("the queue to be empty", clock, SECOND, draining).await.unwrap()
}

/// Three of each, so that neither asking nor running is one by one.
pub(crate) fn few_at_a_time() -> Options {
    Options::new().concurrency(3).batch(3)
}
