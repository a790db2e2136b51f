//! Waiting for whoever holds a key.

use std::{collections::HashMap, mem, sync::Arc, time::Duration};

use futures_util::future::{Either, select};

use crate::{
    Committed, Error, HomeProcess, Key, Request, State, Store, Token, Verdict,
    back_off::BackOff,
    judge,
    sync::{AtomicUsize, Event, EventListener, Mutex, MutexGuard, Ordering, PoisonError},
};

/// The pauses of a caller that nobody can wake.
const POLLS: BackOff =
    BackOff { first: Duration::from_millis(5), longest: Duration::from_millis(500) };

/// A clock counts no less, and a look that comes a little early must not be repeated at once.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// Who waits for which key, and which keys are held, through one [`Idem`] and its clones.
///
/// In a forked child nobody of its parent waits, and a lock may be held for ever: nothing is done there.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    pub(crate) home: HomeProcess,
    places: Mutex<HashMap<Key, Place>>,
    /// How many leases are being ended in the background.
    ending: AtomicUsize,
    ended: Event,
}

/// What is known here of one key. It stays as long as somebody waits for the key or holds it.
#[derive(Debug, Default)]
struct Place {
    held: Option<Token>,
    waiters: usize,
    let_go: Arc<Event>,
}

impl Waiting {
    /// Notes that the lease with that token is held here, so that who waits for it need not ask the store.
    pub(crate) fn hold(&self, key: &Key, token: Token) {
        self.places().entry(key.clone()).or_default().held = Some(token);
    }

    /// Notes that the lease is not held here any more, and wakes who waits for the key.
    pub(crate) fn let_go(&self, key: &Key, token: Token) {
        if !self.home.is_here() {
            return;
        }
        let mut places = self.places();
        let Some(place) = places.get_mut(key) else { return };
        // A successor may hold the key by now.
        place.held.take_if(|held| *held == token);
        let let_go = Arc::clone(&place.let_go);
        remove_unused(&mut places, key);
        drop(places);
        let_go.notify(usize::MAX);
    }

    /// Notes that what is known of the key has changed: who waits for it is to look again.
    pub(crate) fn changed(&self, key: &Key) {
        if !self.home.is_here() {
            return;
        }
        let let_go = self.places().get(key).map(|place| Arc::clone(&place.let_go));
        if let Some(let_go) = let_go {
            let_go.notify(usize::MAX);
        }
    }

    /// As [`Waiting::changed`], for all keys.
    pub(crate) fn all_changed(&self) {
        let all: Vec<_> = self.places().values().map(|place| Arc::clone(&place.let_go)).collect();
        for let_go in all {
            let_go.notify(usize::MAX);
        }
    }

    /// Notes that a lease is about to be ended in the background.
    pub(crate) fn begins_to_end(self: &Arc<Self>) -> Ending {
        self.ending.fetch_add(1, Ordering::SeqCst);
        Ending(Arc::clone(self))
    }

    /// Ends when no lease is being ended in the background.
    pub(crate) async fn all_ended(&self) {
        loop {
            // Listens before it looks, so that what ends in between is not missed.
            let ended = self.ended.listen();
            if self.ending.load(Ordering::SeqCst) == 0 {
                return;
            }
            ended.await;
        }
    }

    pub(crate) fn enter(&self, key: &Key) -> Waiter<'_> {
        let mut places = self.places();
        let place = places.entry(key.clone()).or_default();
        place.waiters += 1;
        Waiter { waiting: self, key: key.clone(), let_go: Arc::clone(&place.let_go) }
    }

    pub(crate) fn is_held_here(&self, key: &Key, token: Token) -> bool {
        self.places().get(key).is_some_and(|place| place.held == Some(token))
    }

    /// Whether nobody is known to wait for a key or to hold one.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.places().is_empty()
    }

    fn places(&self) -> MutexGuard<'_, HashMap<Key, Place>> {
        // No call panics between two changes that belong together.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.home.is_here() {
            // Another thread may have been changing them at the fork.
            let places = self.places.get_mut().unwrap_or_else(PoisonError::into_inner);
            mem::forget(mem::take(places));
        }
    }
}

/// A lease that is being ended in the background, until it is dropped.
pub(crate) struct Ending(Arc<Waiting>);

impl Drop for Ending {
    fn drop(&mut self) {
        if !self.0.home.is_here() {
            return;
        }
        self.0.ending.fetch_sub(1, Ordering::SeqCst);
        self.0.ended.notify(usize::MAX);
    }
}

fn remove_unused(places: &mut HashMap<Key, Place>, key: &Key) {
    if places.get(key).is_some_and(|place| place.waiters == 0 && place.held.is_none()) {
        places.remove(key);
    }
}

/// One who waits for a key.
pub(crate) struct Waiter<'w> {
    waiting: &'w Waiting,
    key: Key,
    let_go: Arc<Event>,
}

impl Waiter<'_> {
    /// Ends when a lease of the key is let go after this call.
    pub(crate) fn listen(&self) -> EventListener {
        self.let_go.listen()
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if !self.waiting.home.is_here() {
            return;
        }
        let mut places = self.waiting.places();
        if let Some(place) = places.get_mut(&self.key) {
            place.waiters -= 1;
        }
        remove_unused(&mut places, &self.key);
    }
}

/// A live lease that stands in the way.
pub(crate) struct Held {
    token: Token,
    pub(crate) left: Duration,
}

impl Held {
    pub(crate) fn by(committed: &Committed, request: &Request) -> Option<Self> {
        let record = committed.before.as_ref().filter(|_| !committed.ran)?;
        let Verdict::InProgress(until) =
            judge(Some(record), request.fingerprint_value(), committed.now)
        else {
            return None;
        };
        let State::Claimed { token, .. } = record.state else { return None };
        Some(Self { token, left: committed.retry_after(until) })
    }
}

/// Asks for the request's key again and again, as long as a live lease stands in the way and the request waits.
///
/// # Cancel safety
/// As far as `ask` is: whoever else waits goes on.
pub(crate) async fn ask_patiently<S, A, F>(
    store: &S,
    waiting: &Waiting,
    request: &Request,
    mut ask: A,
) -> Result<Committed, Error>
where
    S: Store,
    A: FnMut() -> F + Send,
    F: Future<Output = Result<Committed, Error>> + Send,
{
    let first = ask().await?;
    let Some(wait) = request.wait() else { return Ok(first) };
    if Held::by(&first, request).is_none() {
        return Ok(first);
    }
    let mut deadline = store.sleep(wait);
    let waiter = waiting.enter(request.key());
    for asked in 1.. {
        // Before the key is asked for, so that what is let go meanwhile is not missed.
        let let_go = waiter.listen();
        let committed = ask().await?;
        let Some(held) = Held::by(&committed, request) else { return Ok(committed) };
        let is_held_here = waiting.is_held_here(request.key(), held.token);
        let pause = if is_held_here { held.left } else { POLLS.pause(asked).min(held.left) };
        let pause = select(let_go, store.sleep(pause.max(SHORTEST_PAUSE)));
        if let Either::Right(_) = select(pause, &mut deadline).await {
            break;
        }
    }
    // At the deadline once more: what came meanwhile is not missed, and what is told is as of now.
    ask().await
}
