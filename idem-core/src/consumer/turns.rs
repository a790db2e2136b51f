//! Deliveries of one event, one after the other.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::signal::Signal;

/// Who is at it, or waits to be, for each event in flight.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<BTreeMap<String, Arc<Signal>>>);

impl Turns {
    /// A place behind all who lined up for the event before.
    pub(super) fn line_up(&self, event_id: &str) -> Turn<'_> {
        let done = Arc::new(Signal::default());
        let before = self.last().insert(event_id.to_string(), Arc::clone(&done));
        Turn { turns: self, event_id: event_id.to_string(), before, done }
    }

    fn last(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Signal>>> {
        // No call panics between two changes that belong together.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in an event's line; dropping it lets the next one go on.
#[derive(Debug)]
pub(super) struct Turn<'t> {
    turns: &'t Turns,
    event_id: String,
    before: Option<Arc<Signal>>,
    done: Arc<Signal>,
}

impl Turn<'_> {
    /// Ends when all who lined up for the event before are done.
    pub(super) async fn comes(&self) {
        if let Some(before) = &self.before {
            before.raised().await;
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut last = self.turns.last();
        if last.get(&self.event_id).is_some_and(|last| Arc::ptr_eq(last, &self.done)) {
            last.remove(&self.event_id);
        }
        drop(last);
        self.done.raise();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_event_waits_and_another_does_not() {
        let turns = Turns::default();
        let first = turns.line_up("a");
        let second = turns.line_up("a");
        let other = turns.line_up("b");
        first.comes().await;
        other.comes().await;
        let is_waiting = || second.before.as_ref().is_some_and(|before| !before.is_raised());
        assert!(is_waiting());
        drop(other);
        assert!(is_waiting());
        drop(first);
        second.comes().await;
        let third = turns.line_up("a");
        drop(second);
        third.comes().await;
        drop(third);
        assert!(turns.last().is_empty(), "what is over must be forgotten: {turns:?}");
    }
}
