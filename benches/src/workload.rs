//! What callers ask for.

use std::{
    iter,
    sync::atomic::{AtomicUsize, Ordering},
};

use clap::ValueEnum;
use idem_core::{Error, Key};

use crate::{
    sample::Answers,
    shop::{CONSUMER, Order},
    side::Stored,
};

/// What callers ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// Every call brings a key of its own.
    Create,
    /// Every call asks for one completed key.
    Replay,
    /// Every call asks for one completed key, with other parameters.
    Conflict,
    /// All callers go through the same keys in the same order: one of them creates, the others replay.
    Contended,
    /// Every call marks an event of its own as processed by a consumer.
    Mark,
}

impl Workload {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Create, Self::Replay, Self::Conflict, Self::Contended, Self::Mark];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Replay => "replay",
            Self::Conflict => "conflict",
            Self::Contended => "contended",
            Self::Mark => "mark",
        }
    }

    /// How many callers are worth comparing, unless one is told.
    #[must_use]
    pub const fn callers(self) -> &'static [usize] {
        match self {
            Self::Create | Self::Mark => &[1, 8, 64],
            Self::Replay | Self::Conflict => &[1, 64],
            Self::Contended => &[8, 64],
        }
    }
}

/// The calls of one round, ready to be made, and what must come of them.
#[derive(Debug)]
pub struct Load {
    workload: Workload,
    callers: usize,
    /// Of each caller; where they share the calls, of all of them.
    calls: usize,
    first: Option<Order>,
    orders: Vec<Order>,
    next: AtomicUsize,
}

impl Load {
    /// About so many calls by so many callers; [`Load::operations`] tells how many.
    ///
    /// # Errors
    /// None that can happen: the keys are acceptable.
    pub fn new(workload: Workload, callers: usize, operations: usize) -> Result<Self, Error> {
        let each = operations.div_ceil(callers).max(1);
        let numbered =
            |count: usize| (0..count as u64).map(Order::new).collect::<Result<Vec<_>, _>>();
        let (calls, first, orders) = match workload {
            Workload::Create | Workload::Mark => (each * callers, None, numbered(each * callers)?),
            Workload::Replay => (each, Some(Order::new(0)?), numbered(1)?),
            Workload::Conflict => (each, Some(Order::new(0)?), vec![Order::changed(0)?]),
            Workload::Contended => (each, None, numbered(each)?),
        };
        Ok(Self { workload, callers, calls, first, orders, next: AtomicUsize::new(0) })
    }

    /// What callers ask for.
    #[must_use]
    pub fn workload(&self) -> Workload {
        self.workload
    }

    /// How many callers there are.
    #[must_use]
    pub fn callers(&self) -> usize {
        self.callers
    }

    /// How many calls there are in all.
    #[must_use]
    pub fn operations(&self) -> usize {
        match self.workload {
            Workload::Create | Workload::Mark => self.calls,
            _ => self.calls * self.callers,
        }
    }

    /// Whether the callers take their calls from one list.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        matches!(self.workload, Workload::Create | Workload::Mark)
    }

    /// What is completed before the round.
    #[must_use]
    pub fn first(&self) -> Option<&Order> {
        self.first.as_ref()
    }

    /// The calls of one caller, in order. Distinct keys are handed to whichever caller is free.
    pub fn calls(&self) -> impl Iterator<Item = &Order> + Send {
        let mut made = 0;
        iter::from_fn(move || {
            let order = match self.workload {
                Workload::Create | Workload::Mark => {
                    self.orders.get(self.next.fetch_add(1, Ordering::Relaxed))
                }
                Workload::Replay | Workload::Conflict => {
                    self.orders.first().filter(|_| made < self.calls)
                }
                Workload::Contended => self.orders.get(made),
            };
            made += 1;
            order
        })
    }

    /// Every order that must be stored, or marked, after the round.
    pub fn distinct(&self) -> impl Iterator<Item = &Order> {
        self.orders.iter()
    }

    /// Under which key an order's receipt is stored.
    ///
    /// # Errors
    /// None that can happen: the keys are acceptable.
    pub fn key(&self, order: &Order) -> Result<Key, Error> {
        match self.workload {
            Workload::Mark => Key::event(CONSUMER, order.event()),
            _ => Ok(order.request.key().clone()),
        }
    }

    /// What the callers must have been told.
    #[must_use]
    pub fn expected_answers(&self) -> Answers {
        let (none, all) = (Answers::default(), self.operations());
        match self.workload {
            Workload::Create | Workload::Mark => Answers { created: all, ..none },
            Workload::Replay => Answers { replayed: all, ..none },
            Workload::Conflict => Answers { conflicts: all, ..none },
            Workload::Contended => {
                let created = self.orders.len();
                Answers { created, replayed: all - created, ..none }
            }
        }
    }

    /// What must be stored.
    #[must_use]
    pub fn expected_stored(&self) -> Stored {
        let receipts = self.orders.len();
        let orders = if self.workload == Workload::Mark { 0 } else { receipts };
        Stored { orders, receipts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(workload: Workload) -> (usize, Vec<usize>, Answers) {
        let load = Load::new(workload, 3, 10).unwrap();
        let calls = (0..3).map(|_| load.calls().count()).collect();
        (load.operations(), calls, load.expected_answers())
    }

    #[test]
    fn every_call_is_made_once() {
        let answers = |created, replayed, conflicts| Answers { created, replayed, conflicts };
        // Called one after the other, the first takes all calls that they share.
        assert_eq!(counts(Workload::Create), (12, vec![12, 0, 0], answers(12, 0, 0)));
        assert_eq!(counts(Workload::Replay), (12, vec![4, 4, 4], answers(0, 12, 0)));
        assert_eq!(counts(Workload::Conflict), (12, vec![4, 4, 4], answers(0, 0, 12)));
        assert_eq!(counts(Workload::Contended), (12, vec![4, 4, 4], answers(4, 8, 0)));
        assert_eq!(counts(Workload::Mark), (12, vec![12, 0, 0], answers(12, 0, 0)));
    }
}
