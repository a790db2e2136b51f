//! What every case starts from.

use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use idem_core::{
    BoxFuture, Delays, EffectError, Error, Fingerprint, Idem, Key, ManualClock, Outcome, Receipt,
    Request, Space, State, Store, Timestamp, Transaction,
};
use tokio::{
    runtime::Builder,
    sync::{Barrier, oneshot},
    task::JoinHandle,
};

use crate::Fixture;

/// When every case begins: an odd millisecond, so that what rounds to seconds shows.
pub const START: Timestamp = Timestamp::from_millis(1_700_000_000_123);

/// How long a case waits for a real event before it gives up.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The transaction of a fixture's store.
pub type Tx<F> = <<F as Fixture>::Store as Store>::Transaction;

/// A fresh place with a store open on it, and the clock of both.
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
        let clock = ManualClock::at(START);
        let fixture = F::create().await;
        let idem = Idem::new(fixture.open(clock.clone()).await);
        Self { fixture, clock, idem }
    }

    /// Another handle on the same data.
    pub async fn handle(&self) -> Idem<F::Store> {
        Idem::new(self.fixture.open(self.clock.clone()).await)
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
            Some(next) => after = Some(next),
            None => return count,
        }
    }
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
#[derive(Clone, Default)]
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

/// Waits for `future` with the bound of [`PATIENCE`]; `what` names what is waited for.
///
/// # Panics
/// When the bound is reached.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let result = tokio::time::timeout(PATIENCE, future).await;
    result.unwrap_or_else(|_| panic!("waited {PATIENCE:?} in vain for {what}"))
}

/// Waits for a task with the bound of [`PATIENCE`].
///
/// # Panics
/// When the bound is reached, or if the task panicked.
pub async fn joined<T>(what: &str, task: JoinHandle<T>) -> T {
    within(what, task).await.unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// Spawns `future` as one of those who meet at `barrier`.
pub fn at<T: Send + 'static>(
    barrier: &Arc<Barrier>,
    future: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    let barrier = Arc::clone(barrier);
    tokio::spawn(async move {
        barrier.wait().await;
        future.await
    })
}

/// Runs the callers as tasks that start together at a barrier, and returns their answers in order.
pub async fn together<T: Send + 'static>(
    callers: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let callers: Vec<_> = callers.into_iter().collect();
    let barrier = Arc::new(Barrier::new(callers.len()));
    let tasks: Vec<_> = callers.into_iter().map(|caller| at(&barrier, caller)).collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(joined("a caller that started at the barrier", task).await);
    }
    answers
}

/// Runs `future` on a thread and a runtime of its own, so that it goes on while the case's is blocked, and
/// so that it blocks nobody else.
pub fn aside<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> impl Future<Output = T> + Send + 'static {
    let (sender, receiver) = oneshot::channel();
    thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        // Nobody listens any more if the case has failed meanwhile.
        let _ = sender.send(runtime.block_on(future));
    });
    async move { receiver.await.expect("what runs aside must not panic") }
}

/// Another caller, on a thread of its own, that commits when an effect asks for it.
pub struct Rival {
    turns: mpsc::Sender<()>,
    commits: mpsc::Receiver<()>,
    patience: Duration,
}

impl Rival {
    /// A rival that commits `effect` under a fresh key at each turn, and a future of how often it did; that
    /// one ends after the rival is dropped.
    pub fn new<S: Store + 'static>(
        idem: &Idem<S>,
        name: impl Into<String>,
        effect: fn(&mut S::Transaction) -> Result<(), EffectError>,
    ) -> (Self, impl Future<Output = u64> + Send + 'static) {
        let (turns, turn) = mpsc::channel();
        let (commit, commits) = mpsc::channel();
        let (idem, name) = (idem.clone(), name.into());
        // Where nothing delays the rival, only a loaded machine can: then it may take its time. Elsewhere
        // every wait is in vain.
        let patience = match idem.guarantees().delays {
            Delays::Nothing => Duration::from_secs(3),
            _ => Duration::from_millis(300),
        };
        let ended = aside(async move {
            let mut number = 0;
            while turn.recv().is_ok() {
                number += 1;
                let request = request(&format!("{name}-{number}"), "p");
                let outcome = idem.execute(&request, effect).await.expect("a rival commits");
                assert_eq!(outcome, Outcome::Created(()), "a rival's key is fresh");
                // The effect that asked may have stopped waiting.
                let _ = commit.send(());
            }
            number
        });
        (Self { turns, commits, patience }, ended)
    }

    /// Lets the rival commit, and waits for that a while: in vain if effects run under a lock of the store.
    ///
    /// To be called by an effect.
    pub fn commits_meanwhile(&self) -> bool {
        self.turns.send(()).expect("the rival listens");
        self.commits.recv_timeout(self.patience).is_ok()
    }
}

/// Where the effects of several callers wait for each other, so that callers really overlap.
#[derive(Clone)]
pub struct Meeting {
    effects: Arc<(Mutex<usize>, Condvar)>,
    patience: Duration,
}

impl Meeting {
    /// A meeting of effects in this store.
    pub fn new<S: Store>(idem: &Idem<S>) -> Self {
        // Under a lock of the store effects never meet, and each first one waits in vain.
        let patience = match idem.guarantees().delays {
            Delays::Nothing => Duration::from_millis(300),
            _ => Duration::from_millis(20),
        };
        Self { effects: Arc::default(), patience }
    }

    /// Waits a while for a second effect; whoever comes later goes on at once. To be called by effects.
    pub fn wait(&self) {
        let (count, changed) = &*self.effects;
        let mut count = count.lock().expect("nobody panics here");
        *count += 1;
        changed.notify_all();
        let wait = changed.wait_timeout_while(count, self.patience, |count| *count < 2);
        drop(wait.expect("nobody panics here"));
    }
}
