//! Callers that wait, meet and race.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{Arc, Condvar, Mutex, mpsc},
    task::Poll,
    thread,
    time::Duration,
};

use idem_core::{BoxFuture, Delays, EffectError, Idem, ManualClock, Outcome, Store};
use tokio::{
    runtime::Builder,
    sync::{Barrier, oneshot},
    task::JoinHandle,
};

use crate::setup::{PATIENCE, request};

/// Waits for `future` with the bound of [`PATIENCE`]; `what` names what is waited for.
///
/// # Panics
/// When the bound is reached.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let result = tokio::time::timeout(PATIENCE, future).await;
    result.unwrap_or_else(|_| panic!("waited {PATIENCE:?} in vain for {what}"))
}

/// Lets others go on until `holds`, within [`PATIENCE`]; `what` says what the case waits for.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waited = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    within(what, waited).await;
}

/// Waits for `future` while the clock moves on by `step` again and again, within [`PATIENCE`]: for what sleeps
/// on that clock. Both are driven by the caller's task.
pub async fn as_time_passes<T>(
    what: &str,
    clock: &ManualClock,
    step: Duration,
    future: impl Future<Output = T>,
) -> T {
    let passing = async {
        loop {
            clock.advance(step);
            give_way().await;
        }
    };
    let either = async {
        tokio::select! { done = future => done, never = passing => never }
    };
    within(what, either).await
}

/// Lets the other futures of this task, and the other tasks of this thread, go on for a while.
pub async fn give_way() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
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
#[derive(Debug)]
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
        let (ours, name) = (idem.clone(), name.into());
        Self::acting(idem, move |number| {
            let (idem, request) = (ours.clone(), request(&format!("{name}-{number}"), "p"));
            Box::pin(async move {
                let outcome = idem.execute(&request, effect).await.expect("a rival commits");
                assert_eq!(outcome, Outcome::Created(()), "a rival's key is fresh");
            })
        })
    }

    /// As [`Rival::new`], a rival that does `act` at each turn, which is told the turn's number, from 1.
    pub fn acting<S: Store>(
        idem: &Idem<S>,
        mut act: impl FnMut(u64) -> BoxFuture<()> + Send + 'static,
    ) -> (Self, impl Future<Output = u64> + Send + 'static) {
        let (turns, turn) = mpsc::channel();
        let (commit, commits) = mpsc::channel();
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
                act(number).await;
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
#[derive(Clone, Debug)]
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

/// When a caller is dropped that waits at an await point.
#[derive(Clone, Copy, Debug)]
pub enum Dropped {
    /// At once.
    Waiting,
    /// When what it waits for has come.
    Woken,
}

/// Polls `future` at most so many times, each but the first when it was woken, then drops it.
pub async fn cut_short<T>(
    future: impl Future<Output = T>,
    polls: usize,
    dropped: Dropped,
) -> Option<T> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 && matches!(dropped, Dropped::Waiting) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
