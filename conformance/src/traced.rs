//! What a case asked of its store, told when the case fails.

use std::{
    collections::VecDeque,
    fmt::Display,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use idem_core::{
    BoxFuture, BoxStep, Committed, Cursor, Error, Filter, Guarantees, Key, ManualClock, Page,
    Purged, Record, Space, State, Store, Timestamp,
};

use crate::{Fixture, HostileEffect, setup::START};

/// How many steps are told: the last ones.
const MOST: usize = 60;

/// A fixture's place, whose stores note what they are asked for.
#[doc(hidden)]
#[derive(Debug)]
pub struct Traced<F> {
    place: F,
    trace: Arc<Trace>,
}

#[async_trait]
impl<F: Fixture> Fixture for Traced<F> {
    type Store = TracedStore<F::Store>;

    async fn create() -> Self {
        Self { place: F::create().await, trace: Arc::default() }
    }

    async fn open(&self, clock: ManualClock) -> Self::Store {
        let store = self.place.open(clock).await;
        let handle = self.trace.handles.fetch_add(1, Ordering::Relaxed) + 1;
        TracedStore { store, handle, trace: Arc::clone(&self.trace) }
    }

    async fn refuse_receipts(&self, refuse: bool) {
        self.place.refuse_receipts(refuse).await;
    }

    fn hostile_effects(&self) -> Vec<(&'static str, HostileEffect<Self::Store>)> {
        self.place.hostile_effects()
    }
}

impl<F> Drop for Traced<F> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", self.trace.told());
        }
    }
}

/// The last steps of a place, in the order in which they were asked for.
#[derive(Debug, Default)]
struct Trace {
    handles: AtomicUsize,
    steps: Mutex<Steps>,
}

#[derive(Debug, Default)]
struct Steps {
    last: VecDeque<Asked>,
    /// How many there were before these.
    before: usize,
}

#[derive(Debug)]
struct Asked {
    what: String,
    answer: Option<String>,
}

impl Trace {
    fn steps(&self) -> MutexGuard<'_, Steps> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what is asked for, and returns its number.
    fn asked(&self, what: String) -> usize {
        let mut steps = self.steps();
        steps.last.push_back(Asked { what, answer: None });
        if steps.last.len() > MOST {
            steps.last.pop_front();
            steps.before += 1;
        }
        steps.before + steps.last.len() - 1
    }

    fn answered(&self, number: usize, answer: String) {
        let mut steps = self.steps();
        let before = steps.before;
        // One that was answered late may be told no more.
        let asked = number.checked_sub(before).and_then(|index| steps.last.get_mut(index));
        if let Some(asked) = asked {
            asked.answer = Some(answer);
        }
    }

    fn told(&self) -> String {
        let steps = self.steps();
        let mut told =
            "the steps, as they were asked for; times count from the case's start:".to_string();
        if steps.before > 0 {
            told += &format!("\n  .. {} earlier ones", steps.before);
        }
        for (index, asked) in steps.last.iter().enumerate() {
            let answer = asked.answer.as_deref().unwrap_or("no answer: dropped, or still waiting");
            told += &format!("\n  {}. {} -> {answer}", steps.before + index + 1, asked.what);
        }
        told
    }
}

/// A store that notes what it is asked for.
#[doc(hidden)]
#[derive(Debug)]
pub struct TracedStore<S> {
    store: S,
    handle: usize,
    trace: Arc<Trace>,
}

impl<S> TracedStore<S> {
    /// Waits for the answer to a call, and notes both.
    async fn noted<T>(
        &self,
        what: impl Display,
        call: impl Future<Output = Result<T, Error>>,
        say: impl FnOnce(&T) -> String,
    ) -> Result<T, Error> {
        let number = self.trace.asked(format!("handle {}: {what}", self.handle));
        let answer = call.await;
        let said = match &answer {
            Ok(answer) => say(answer),
            Err(error) => format!("error, {:?}: {error}", error.certainty()),
        };
        self.trace.answered(number, said);
        answer
    }
}

#[async_trait]
impl<S: Store> Store for TracedStore<S> {
    type Transaction = S::Transaction;

    async fn transact(
        &self,
        key: &Key,
        step: BoxStep<Self::Transaction>,
    ) -> Result<Committed, Error> {
        let what = format!("a step on {}", parts(key));
        self.noted(what, self.store.transact(key, step), committed).await
    }

    async fn purge(&self, limit: usize) -> Result<Purged, Error> {
        let what = format!("purge at most {limit}");
        self.noted(what, self.store.purge(limit), |purged| format!("{purged:?}")).await
    }

    async fn value(&self, space: &Space, name: &[u8]) -> Result<Option<Bytes>, Error> {
        let what = format!("the value {} of {:?}", text(name), space.owner());
        let say = |value: &Option<Bytes>| value.as_deref().map_or("nothing".to_string(), text);
        self.noted(what, self.store.value(space, name), say).await
    }

    async fn list(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, Error> {
        let what = if *filter == Filter::all() {
            format!("list at most {limit}")
        } else {
            format!("list at most {limit} of {filter:?}")
        };
        let say = |page: &Page| format!("{} records", page.records.len());
        self.noted(what, self.store.list(filter, after, limit), say).await
    }

    async fn close(&self) -> Result<(), Error> {
        self.noted("close", self.store.close(), |()| "closed".to_string()).await
    }

    fn guarantees(&self) -> Guarantees {
        self.store.guarantees()
    }

    fn detach(&self, task: BoxFuture<()>) {
        self.store.detach(task);
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        self.store.sleep(duration)
    }
}

fn parts(key: &Key) -> String {
    format!("{:?}/{:?}/{:?}", key.tenant(), key.operation(), key.request())
}

fn committed(committed: &Committed) -> String {
    let (now, before) = (time(committed.now), record(committed.before.as_ref()));
    if committed.ran {
        format!("at {now} it ran: {before} became {}", record(committed.after.as_ref()))
    } else {
        format!("at {now} it did not run: there is {before}")
    }
}

fn record(record: Option<&Record>) -> String {
    let Some(record) = record else { return "nothing".to_string() };
    let fingerprint = match &record.fingerprint {
        Some(fingerprint) => {
            let [a, b, ..] = fingerprint.digest();
            format!("fingerprint {a:02x}{b:02x}..")
        }
        None => "no fingerprint".to_string(),
    };
    let end = |end: Option<Timestamp>| {
        end.map_or("for ever".to_string(), |end| format!("until {}", time(end)))
    };
    match &record.state {
        State::Completed { result, expires_at } => {
            format!("a receipt ({fingerprint}, result {}, {})", text(result), end(*expires_at))
        }
        State::Claimed { token, until, is_ended, .. } => {
            let state = if *is_ended { "an ended claim" } else { "a claim" };
            format!("{state} ({fingerprint}, token {}, {})", token.as_u64(), end(Some(*until)))
        }
    }
}

fn time(time: Timestamp) -> String {
    format!("{:+} ms", i128::from(time.as_millis()) - i128::from(START.as_millis()))
}

/// The beginning of what may be text.
fn text(bytes: &[u8]) -> String {
    let shown = bytes.len().min(40);
    let more =
        if shown < bytes.len() { format!(".. {} bytes", bytes.len()) } else { String::new() };
    format!("{:?}{more}", String::from_utf8_lossy(&bytes[..shown]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::{Setup, request};
    use async_trait::async_trait;
    use idem_core::Outcome;
    use idem_memory::MemoryStore;

    struct Memory;

    #[async_trait]
    impl Fixture for Memory {
        type Store = MemoryStore;

        async fn create() -> Self {
            Self
        }

        async fn open(&self, clock: ManualClock) -> MemoryStore {
            MemoryStore::builder().clock(clock).build()
        }
    }

    #[tokio::test]
    async fn the_steps_are_told_with_what_they_found_and_left() {
        let setup = Setup::<Traced<Memory>>::new().await;
        assert_eq!(setup.add(&request("a", "p"), "count").await, Outcome::Created(1));
        setup.clock.advance(Duration::from_millis(7));
        assert_eq!(setup.add(&request("a", "q"), "count").await, Outcome::Conflict);
        assert_eq!(setup.count("north", "count").await, 1);
        let print = "fingerprint 7978..";
        let receipt = format!("a receipt ({print}, result \"1\", until +60000 ms)");
        let steps = [
            "the steps, as they were asked for; times count from the case's start:".to_string(),
            format!(
                "  1. handle 1: a step on \"north\"/\"order\"/\"a\" -> at +0 ms it ran: nothing became {receipt}"
            ),
            format!(
                "  2. handle 1: a step on \"north\"/\"order\"/\"a\" -> at +7 ms it did not run: there is {receipt}"
            ),
            "  3. handle 1: the value \"count\" of \"north\" -> \"1\"".to_string(),
        ];
        assert_eq!(setup.fixture.trace.told(), steps.join("\n"));
    }

    #[test]
    fn only_the_last_steps_are_told() {
        let trace = Trace::default();
        let first = trace.asked("first".to_string());
        for number in 0..MOST {
            let asked = trace.asked(format!("{number}"));
            trace.answered(asked, "done".to_string());
        }
        trace.answered(first, "too late".to_string());
        trace.asked("last".to_string());
        let told = trace.told();
        assert!(told.contains("\n  .. 2 earlier ones\n  3. 1 -> done\n"), "{told}");
        assert!(told.ends_with("\n  62. last -> no answer: dropped, or still waiting"), "{told}");
    }
}
