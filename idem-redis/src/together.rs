//! Callers who are at the same at the same time go to the server together, in one command or one pipeline.
//!
//! Nobody waits for an answer to somebody else: a caller who is not the only one lets the tasks that are ready run
//! first, and then sends what has come together. Whoever is alone sends at once. Each errand holds or fails alone,
//! and where all are refused as a whole each goes anew by itself. A task sends, so that a caller who goes away takes
//! nobody along.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use idem_core::locks::Mutex;
use tokio::{sync::oneshot, task::yield_now, time::timeout};

use crate::{
    failure::{Failure, Meaning},
    link::{Connection, Link},
};

/// So many go at once: the server is at them while others come together.
const MOST: usize = 16;

/// What a caller wants of the server, with everything that it takes.
pub(crate) trait Errand: Send + Sync + Sized + 'static {
    /// What comes of it.
    type Outcome: Send + 'static;

    /// Does all of them at once, one or more, by that connection, and tells what became of each.
    fn all(
        link: &Link,
        connection: &mut Connection,
        errands: &[Self],
    ) -> impl Future<Output = Result<Vec<Result<Self::Outcome, Failure>>, Failure>> + Send;
}

/// The callers of a connection who have errands of a kind.
pub(crate) struct Company<E: Errand> {
    callers: AtomicUsize,
    waiting: Mutex<Vec<Waiting<E>>>,
}

impl<E: Errand> Default for Company<E> {
    fn default() -> Self {
        Self { callers: AtomicUsize::new(0), waiting: Mutex::default() }
    }
}

struct Waiting<E: Errand> {
    nonce: u64,
    errand: E,
    told: oneshot::Sender<Told<E>>,
}

/// What a caller is told who waits.
enum Told<E: Errand> {
    Became(Result<E::Outcome, Failure>),
    /// Nothing was done: it is to go alone.
    Alone,
}

/// A caller, as long as it is at it.
pub(crate) struct Caller<E: Errand> {
    company: Arc<Company<E>>,
    /// Whether there was nobody else.
    was_first: bool,
}

impl<E: Errand> Drop for Caller<E> {
    fn drop(&mut self) {
        self.company.callers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<E: Errand> Caller<E> {
    /// Enters the company.
    pub(crate) fn enters(company: &Arc<Company<E>>) -> Self {
        let was_first = company.callers.fetch_add(1, Ordering::Relaxed) == 0;
        Self { company: Arc::clone(company), was_first }
    }

    /// Goes together with others, if there are any: none if it is to go alone. The nonce is this caller's.
    pub(crate) async fn joins(
        &self,
        link: &Link,
        connection: &Connection,
        nonce: u64,
        errand: impl FnOnce() -> E,
    ) -> Option<Result<E::Outcome, Failure>> {
        if self.was_first {
            return None;
        }
        let (told, answer) = oneshot::channel();
        if !self.company.is_full_with(Waiting { nonce, errand: errand(), told }) {
            yield_now().await;
        }
        let all = self.company.take(nonce);
        if all.len() == 1 {
            return None;
        }
        if !all.is_empty() {
            // Where the connection is driven.
            connection.home.spawn(send(link.clone(), connection.clone(), all));
        }
        match timeout(link.timeouts().response, answer).await {
            Ok(Ok(Told::Became(became))) => Some(became),
            Ok(Ok(Told::Alone)) => None,
            Ok(Err(_)) | Err(_) => Some(Err(link.unanswered(connection))),
        }
    }
}

impl<E: Errand> Company<E> {
    /// Adds one; whether there are enough.
    fn is_full_with(&self, one: Waiting<E>) -> bool {
        let mut waiting = self.waiting.lock();
        waiting.push(one);
        waiting.len() >= MOST
    }

    /// All who wait; nobody if the caller of that nonce is under way already.
    fn take(&self, nonce: u64) -> Vec<Waiting<E>> {
        let mut waiting = self.waiting.lock();
        if waiting.iter().any(|one| one.nonce == nonce) {
            std::mem::take(&mut *waiting)
        } else {
            Vec::new()
        }
    }
}

/// Sends for all who still wait, once, and tells everybody.
async fn send<E: Errand>(link: Link, mut connection: Connection, all: Vec<Waiting<E>>) {
    let (mut errands, mut callers) = (Vec::new(), Vec::new());
    for one in all.into_iter().filter(|one| !one.told.is_closed()) {
        errands.push(one.errand);
        callers.push(one.told);
    }
    if errands.is_empty() {
        return;
    }
    // Who does not wait any more does not mind.
    match E::all(&link, &mut connection, &errands).await {
        Ok(each) => {
            for (caller, became) in callers.into_iter().zip(each) {
                let _ = caller.send(Told::Became(became));
            }
        }
        Err(failure) => {
            for caller in callers {
                let _ = caller.send(match failure.meaning {
                    Meaning::Lost => Told::Became(Err(failure.clone())),
                    // It did nothing, because of any one of them perhaps.
                    _ => Told::Alone,
                });
            }
        }
    }
}
