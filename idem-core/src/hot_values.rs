//! Turns for the callers of one process that race for one value.
//!
//! A store that commits by compare-and-set lets one of them win, and all others run again. With many callers nearly
//! all runs are in vain. Here the losers line up: one tries at a time, and the next one begins when it is done.
//!
//! A turn is advice and no lock: a commit holds or fails by what it compares, whoever has a turn. So nobody has to
//! wait for long: a caller that sees the line stand still for some milliseconds takes the turn over, wherever it stands
//! in the line. It does so by itself, because those before it may never be polled: their thread may run the very effect
//! that waits for this caller. A caller has one turn at most, so that two never wait for each other.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    future::poll_fn,
    hash::{BuildHasher, Hash, RandomState},
    mem,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures_util::future::{Either, select};

use crate::{
    SystemClock,
    optimistic::yield_turns,
    runtime,
    sync::{AtomicUsize, Mutex, MutexGuard, Ordering, PoisonError},
};

/// How long a line may stand still before the first who waits in it takes the turn over.
///
/// It is many times what a look, a run and a commit take, and hardly felt behind a slow effect.
const PATIENCE: Duration = Duration::from_millis(5);

/// How much longer others wait, for each caller before them: about two turns, so that in a line that moves nobody looks
/// again before its turn comes.
const SHARE: Duration = Duration::from_micros(500);

/// The values that callers of one store race for, and who is next for each.
///
/// Values are told apart by their hashes: two of one hash would share their turns, which only costs time.
#[derive(Default)]
pub struct HotValues {
    lines: Mutex<Lines>,
    /// How many lines there are: without one nobody has to lock.
    count: AtomicUsize,
    hasher: RandomState,
}

/// The lines, by the hash of their values. A line is there as long as somebody has its turn.
#[derive(Default)]
struct Lines {
    last: u64,
    of: HashMap<u64, Line>,
}

struct Line {
    /// The ticket of the caller whose turn it is.
    holder: u64,
    /// How often the turn has changed hands.
    moves: u64,
    waiting: VecDeque<Waiter>,
}

struct Waiter {
    ticket: u64,
    waker: Waker,
}

/// What one sees who waits.
struct Waits {
    /// How many come before.
    ahead: u32,
    moves: u64,
}

impl Line {
    fn leave(&mut self, ticket: u64) {
        self.waiting.retain(|waiter| waiter.ticket != ticket);
    }
}

impl fmt::Debug for HotValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HotValues").field("count", &self.count).finish_non_exhaustive()
    }
}

impl HotValues {
    /// Whether callers take turns for any value now.
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    fn hash(&self, value: &impl Hash) -> u64 {
        self.hasher.hash_one(value)
    }

    fn has_line(&self, value: u64) -> bool {
        self.lines().of.contains_key(&value)
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        // No call panics between two changes that belong together.
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn, which lasts until it is dropped or somebody has taken it over.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the line.
    async fn turn(self: &Arc<Self>, value: u64) -> Turn {
        let ticket = poll_fn(|context| Poll::Ready(self.line_up(value, context.waker()))).await;
        let turn = Turn { values: Arc::clone(self), value, ticket };
        while let Some(Waits { ahead, moves }) = turn.waits() {
            let patience = runtime::sleep(&SystemClock, PATIENCE + SHARE * ahead);
            let comes = poll_fn(|context| turn.poll_comes(context));
            match select(comes, patience).await {
                Either::Left(_) => break,
                Either::Right(_) => turn.take_over(moves),
            }
        }
        turn
    }

    fn line_up(&self, value: u64, waker: &Waker) -> u64 {
        let mut lines = self.lines();
        lines.last += 1;
        let ticket = lines.last;
        match lines.of.get_mut(&value) {
            Some(line) => line.waiting.push_back(Waiter { ticket, waker: waker.clone() }),
            None => {
                let line = Line { holder: ticket, moves: 0, waiting: VecDeque::new() };
                lines.of.insert(value, line);
                self.count.store(lines.of.len(), Ordering::Release);
            }
        }
        ticket
    }
}

/// A place in a line, or the turn. Dropped, it passes the turn on, or leaves the line.
#[derive(Debug)]
pub struct Turn {
    values: Arc<HotValues>,
    value: u64,
    ticket: u64,
}

impl Turn {
    /// What this caller sees of the line, if it still waits in it.
    ///
    /// It does not if its turn has come, also if somebody has taken it over before this caller could begin.
    fn waits(&self) -> Option<Waits> {
        let lines = self.values.lines();
        let line = lines.of.get(&self.value)?;
        let ahead = line.waiting.iter().position(|waiter| waiter.ticket == self.ticket)?;
        Some(Waits { ahead: u32::try_from(ahead).unwrap_or(u32::MAX), moves: line.moves })
    }

    fn is_held(&self) -> bool {
        let lines = self.values.lines();
        lines.of.get(&self.value).is_some_and(|line| line.holder == self.ticket)
    }

    fn poll_comes(&self, context: &Context<'_>) -> Poll<()> {
        let mut lines = self.values.lines();
        let waiting = lines.of.get_mut(&self.value).map(|line| &mut line.waiting);
        let own = waiting.and_then(|all| all.iter_mut().find(|one| one.ticket == self.ticket));
        match own {
            Some(own) => {
                own.waker.clone_from(context.waker());
                Poll::Pending
            }
            None => Poll::Ready(()),
        }
    }

    /// Takes the turn, unless it has changed hands since it was looked at.
    fn take_over(&self, moves: u64) {
        let mut lines = self.values.lines();
        let Some(line) = lines.of.get_mut(&self.value) else { return };
        if line.moves == moves {
            line.leave(self.ticket);
            line.holder = self.ticket;
            line.moves += 1;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut lines = self.values.lines();
        let Some(line) = lines.of.get_mut(&self.value) else { return };
        if line.holder != self.ticket {
            line.leave(self.ticket);
            return;
        }
        if let Some(next) = line.waiting.pop_front() {
            line.holder = next.ticket;
            line.moves += 1;
            drop(lines);
            next.waker.wake();
        } else {
            lines.of.remove(&self.value);
            self.values.count.store(lines.of.len(), Ordering::Release);
        }
    }
}

/// What one call knows of the values that it races for: a part of what a store gives to
/// [`optimistic`](crate::optimistic).
#[derive(Debug)]
pub struct Contender<'v> {
    values: &'v Arc<HotValues>,
    place: Mutex<Place>,
}

#[derive(Debug, Default)]
enum Place {
    /// It has no turn and wants none.
    #[default]
    Outside,
    /// It is to wait for its turn for that value.
    Wants(u64),
    /// It has its turn, unless somebody has taken it over.
    Has(Turn),
    /// It has its turn, and is to have one for that value.
    Again(Turn, u64),
}

impl<'v> Contender<'v> {
    /// A call that has not lost yet.
    pub fn new(values: &'v Arc<HotValues>) -> Self {
        Self { values, place: Mutex::default() }
    }

    /// Notes that the call has lost its race for `value`.
    pub fn lost(&self, value: &impl Hash) {
        let value = self.values.hash(value);
        let mut place = self.place();
        *place = match mem::take(&mut *place) {
            Place::Has(turn) | Place::Again(turn, _) => Place::Again(turn, value),
            Place::Outside | Place::Wants(_) => Place::Wants(value),
        };
    }

    /// Whether the call had better [wait](Self::wait) than try, because others take turns for one of `values`.
    ///
    /// Not for a call that has had its turn: it goes on, also if somebody has taken the turn over.
    pub fn must_wait<V: Hash, I: IntoIterator<Item = V>>(
        &self,
        values: impl FnOnce() -> I,
    ) -> bool {
        if !self.values.any() {
            return false;
        }
        let mut place = self.place();
        if !matches!(*place, Place::Outside) {
            return matches!(*place, Place::Wants(_));
        }
        let mut hashes = values().into_iter().map(|value| self.values.hash(&value));
        let hot = hashes.find(|value| self.values.has_line(*value));
        if let Some(value) = hot {
            *place = Place::Wants(value);
        }
        hot.is_some()
    }

    /// Waits for the turn that the call needs after what it [lost](Self::lost) or [must wait](Self::must_wait) for;
    /// whether it needs one.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the line; others go on.
    pub async fn wait(&self) -> bool {
        let place = mem::take(&mut *self.place());
        let turn = match place {
            Place::Outside => return false,
            Place::Wants(value) => self.values.turn(value).await,
            Place::Has(turn) => turn,
            Place::Again(turn, value) if turn.value == value && turn.is_held() => turn,
            Place::Again(turn, value) => {
                // Passed on before another is waited for.
                drop(turn);
                self.values.turn(value).await
            }
        };
        *self.place() = Place::Has(turn);
        true
    }

    /// [Waits](Self::wait) for its turn, or lets others go first as [`Optimistic::back_off`](crate::Optimistic::back_off)
    /// does by default, after the attempt of that number has lost its race.
    ///
    /// # Cancel safety
    /// As [`Contender::wait`].
    pub async fn back_off(&self, attempt: u32) {
        if !self.wait().await {
            yield_turns(attempt).await;
        }
    }

    /// Gives the call's turn away, so that whoever finishes the call's commit passes the turn on.
    pub fn give_turn(&self) -> Option<Turn> {
        match mem::take(&mut *self.place()) {
            Place::Has(turn) | Place::Again(turn, _) => Some(turn),
            Place::Outside | Place::Wants(_) => None,
        }
    }

    /// Whether it is this call's turn.
    #[cfg(test)]
    pub(crate) fn has_turn(&self) -> bool {
        matches!(&*self.place(), Place::Has(turn) if turn.is_held())
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
