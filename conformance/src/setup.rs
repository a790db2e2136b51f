//! What every case starts from.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use idem_core::{
    BoxFuture, Cursor, EffectError, Error, Filter, Fingerprint, Idem, Key, ManualClock, Outcome,
    Receipt, Record, Request, Space, State, Store, Timestamp, Transaction,
};
use tokio::sync::Barrier;

use crate::{
    Fixture,
    callers::{Meeting, at, joined},
    watched::{Steps, Watched},
};

/// When every case begins: an odd millisecond, so that what rounds to seconds shows.
pub const START: Timestamp = Timestamp::from_millis(1_700_000_000_123);

/// How long a case waits for a real event before it gives up.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The transaction of a fixture's store.
pub type Tx<F> = <<F as Fixture>::Store as Store>::Transaction;

/// A fresh place with a store open on it, and the clock of both.
#[derive(Debug)]
pub struct Setup<F: Fixture> {
    /// The place.
    pub fixture: F,
    /// The clock of every handle.
    pub clock: ManualClock,
    /// The first handle.
    pub idem: Idem<F::Store>,
}

impl<F: Fixture> Setup<F> {
    /// A fresh place whose clock stands at [`START`].
    pub async fn new() -> Self {
        Self::at(START).await
    }

    /// A fresh place whose clock stands at `now`.
    pub async fn at(now: Timestamp) -> Self {
        let clock = ManualClock::at(now);
        let fixture = F::create().await;
        let idem = Idem::new(fixture.open(clock.clone()).await);
        Self { fixture, clock, idem }
    }

    /// Another handle on the same data.
    pub async fn handle(&self) -> Idem<F::Store> {
        Idem::new(self.fixture.open(self.clock.clone()).await)
    }

    /// Another handle on the same data, whose steps are counted.
    pub(crate) async fn watched(&self) -> (Idem<Watched<F::Store>>, Steps) {
        let (store, steps) = Watched::new(self.fixture.open(self.clock.clone()).await);
        (Idem::new(store), steps)
    }

    /// The same place after its store was closed and opened again.
    pub async fn reopened(self) -> Self {
        let Self { fixture, clock, idem } = self;
        idem.close().await.expect("closing works");
        drop(idem);
        let idem = Idem::new(fixture.open(clock.clone()).await);
        Self { fixture, clock, idem }
    }

    /// Runs [`add`] under `request` and returns its outcome.
    pub async fn add(&self, request: &Request, name: &'static str) -> Outcome<u64> {
        self.idem.execute(request, move |tx| add(tx, name)).await.expect("nothing fails here")
    }

    /// A caller to spawn: runs [`add`] under `request`.
    pub fn adding(
        &self,
        request: Request,
        name: impl Into<String>,
    ) -> BoxFuture<Result<Outcome<u64>, Error>> {
        let (idem, name) = (self.idem.clone(), name.into());
        Box::pin(async move { idem.execute(&request, move |tx| add(tx, &name)).await })
    }

    /// As [`Setup::adding`], with an effect that meets those of the other callers.
    pub fn meeting(
        &self,
        meeting: &Meeting,
        request: Request,
        name: impl Into<String>,
    ) -> BoxFuture<Result<Outcome<u64>, Error>> {
        let (idem, meeting, name) = (self.idem.clone(), meeting.clone(), name.into());
        let effect = move |tx: &mut Tx<F>| {
            let count = add(tx, &name);
            meeting.wait();
            count
        };
        Box::pin(async move { idem.execute(&request, effect).await })
    }

    /// Runs `call` at one barrier with seven neighbours that add to one count, and returns its answer.
    ///
    /// The neighbours must notice nothing: each is created and counted.
    pub async fn among_neighbours<T: Send + 'static>(
        &self,
        name: &str,
        call: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let before = self.count("north", "neighbours").await;
        let barrier = Arc::new(Barrier::new(8));
        let call = at(&barrier, call);
        let neighbour = |number| {
            let request = request(&format!("{name}-neighbour-{number}"), "p");
            at(&barrier, self.adding(request, "neighbours"))
        };
        let neighbours: Vec<_> = (0..7).map(neighbour).collect();
        let answer = joined(name, call).await;
        let mut counts = Vec::new();
        for neighbour in neighbours {
            match joined("a neighbour", neighbour).await {
                Ok(Outcome::Created(count)) => counts.push(count),
                other => panic!("{name} must not disturb its neighbours: {other:?}"),
            }
        }
        counts.sort_unstable();
        let expected: Vec<_> = (before + 1..=before + 7).collect();
        assert_eq!(counts, expected, "{name} must not disturb what its neighbours count");
        assert_eq!(self.count("north", "neighbours").await, before + 7, "{name}");
        answer
    }

    /// The committed count under `name` in the tenant's space; 0 if there is none.
    pub async fn count(&self, tenant: &str, name: &str) -> u64 {
        let space = Space::tenant(tenant).expect("a good tenant");
        count_in(&self.idem, &space, name).await
    }

    /// The committed text under `name` in the space of the tenant `north`.
    pub async fn text(&self, name: &str) -> Option<String> {
        let space = Space::tenant("north").expect("a good tenant");
        let value = self.idem.value(&space, name.as_bytes()).await.expect("reading works");
        value.map(|value| String::from_utf8(value.to_vec()).expect("values are text"))
    }

    /// The live receipt of a key, which must be there.
    pub async fn receipt(&self, key: &Key) -> Receipt {
        let receipt = self.idem.receipt(key).await.expect("reading works");
        receipt.unwrap_or_else(|| panic!("{key:?} must have a receipt"))
    }

    /// How many live receipts there are in all.
    pub async fn receipts(&self) -> usize {
        receipts(&self.idem).await
    }
}

/// The committed count under `name` in `space`; 0 if there is none.
pub async fn count_in<S: Store>(idem: &Idem<S>, space: &Space, name: &str) -> u64 {
    let value = idem.value(space, name.as_bytes()).await.expect("reading works");
    value.map_or(0, |value| parse(&value))
}

/// How many live receipts a store holds.
pub async fn receipts<S: Store>(idem: &Idem<S>) -> usize {
    let (mut count, mut after) = (0, None);
    loop {
        let page = idem.list(after.as_ref(), 100).await.expect("listing works");
        let is_receipt = |state: &State| matches!(state, State::Completed { .. });
        count += page.records.iter().filter(|(_, record)| is_receipt(&record.state)).count();
        match page.next {
            Some(next) => after = Some(further(next, after)),
            None => return count,
        }
    }
}

/// Where a listing goes on, which must be further on than where it was.
fn further(next: Cursor, before: Option<Cursor>) -> Cursor {
    assert_ne!(Some(&next), before.as_ref(), "a page must go on after its cursor, not with it");
    next
}

/// All that a store keeps, expired or not, in pages of `limit`.
pub async fn kept<S: Store>(store: &S, limit: usize) -> Vec<(Key, Record)> {
    let (mut kept, mut after) = (Vec::new(), None);
    loop {
        let page = store.list(&Filter::all(), after.as_ref(), limit).await.expect("listing works");
        assert!(page.records.len() <= limit, "a page must not hold more than its limit");
        kept.extend(page.records);
        match page.next {
            Some(next) => after = Some(further(next, after)),
            None => return kept,
        }
    }
}

/// What a store keeps for `key`, expired or not.
pub async fn kept_for<S: Store>(store: &S, key: &Key) -> Option<Record> {
    let kept = kept(store, 100).await.into_iter();
    kept.filter(|(listed, _)| listed == key).map(|(_, record)| record).next()
}

/// The effect that most cases run: adds one to the count under `name`, and returns the new count.
///
/// # Errors
/// The transaction's own.
pub fn add<Tx: Transaction + ?Sized>(tx: &mut Tx, name: &str) -> Result<u64, EffectError> {
    let count = tx.get(name.as_bytes())?.map_or(0, |value| parse(&value)) + 1;
    tx.put(name.as_bytes(), count.to_string().as_bytes())?;
    Ok(count)
}

/// The instant so many milliseconds after [`START`].
#[must_use]
pub const fn start_plus(millis: i64) -> Timestamp {
    Timestamp::from_millis(START.as_millis() + millis)
}

fn parse(value: &[u8]) -> u64 {
    let text = std::str::from_utf8(value).expect("counts are text");
    text.parse().expect("counts are numbers")
}

/// The key `name` of the tenant `north` and the operation `order`.
pub fn key(name: &str) -> Key {
    Key::new("north", "order", name).expect("a good key")
}

/// A request for [`key`] with the fingerprint of `parameters`, retained for a minute.
pub fn request(name: &str, parameters: &str) -> Request {
    request_for(key(name), parameters)
}

/// A request for a key with the fingerprint of `parameters`, retained for a minute.
pub fn request_for(key: Key, parameters: &str) -> Request {
    let fingerprint = Fingerprint::of(parameters).expect("text has a fingerprint");
    Request::new(key).with_fingerprint(fingerprint).retain(Duration::from_secs(60))
}

/// Counts what an effect cannot roll back: how often it ran.
#[derive(Clone, Default, Debug)]
pub struct Runs(Arc<AtomicUsize>);

impl Runs {
    /// Counts one more.
    pub fn bump(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// How many there were.
    #[must_use]
    pub fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}
