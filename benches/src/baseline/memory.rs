//! By hand in memory: maps in 64 shards, each behind a lock of its own, hashed as the standard library does.
//!
//! A call locks the key's shard for reading, looks the key up, compares the fingerprint, clones the stored
//! result (shared bytes) and decodes it from JSON. If there is none it locks the shard for writing, looks
//! again, writes the order into such maps as well, and stores the result as JSON. There is no expiry, no
//! clock, no rollback and no list. A mark goes into such maps too.

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hash, RandomState},
    path::Path,
    sync::{Arc, PoisonError, RwLock},
};

use bytes::Bytes;
use idem_core::{BoxError, Fingerprint, Key, Outcome, consumer::Marked};

use crate::{
    Load, Order, Placed, Sample, Side,
    backend::EVERY,
    shop,
    side::Stored,
    threads::{self, Caller},
};

const SHARDS: usize = 64;

pub(crate) fn open(_: &Path) -> Result<Box<dyn Side>, BoxError> {
    Ok(Box::new(Memory::default()))
}

#[derive(Clone, Default)]
struct Memory {
    receipts: Arc<Sharded<Key, Receipt>>,
    orders: Arc<Sharded<u64, Bytes>>,
    marks: Arc<Sharded<String, ()>>,
}

#[derive(Clone)]
struct Receipt {
    fingerprint: Option<Fingerprint>,
    result: Bytes,
}

struct Sharded<K, V> {
    hasher: RandomState,
    shards: Vec<RwLock<HashMap<K, V>>>,
}

impl<K, V> Default for Sharded<K, V> {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| RwLock::default()).collect();
        Self { hasher: RandomState::new(), shards }
    }
}

impl<K: Hash + Eq, V: Clone> Sharded<K, V> {
    fn of(&self, key: &K) -> &RwLock<HashMap<K, V>> {
        &self.shards[self.hasher.hash_one(key) as usize % SHARDS]
    }

    fn get(&self, key: &K) -> Option<V> {
        self.of(key).read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    fn len(&self) -> usize {
        let len = |shard: &RwLock<HashMap<K, V>>| {
            shard.read().unwrap_or_else(PoisonError::into_inner).len()
        };
        self.shards.iter().map(len).sum()
    }
}

impl Caller for Memory {
    fn place(&mut self, order: &Order) -> Result<Outcome<Placed>, BoxError> {
        let key = order.request.key();
        if let Some(receipt) = self.receipts.get(key) {
            return answer(order, &receipt);
        }
        let mut receipts = self.receipts.of(key).write().unwrap_or_else(PoisonError::into_inner);
        if let Some(receipt) = receipts.get(key) {
            return answer(order, receipt);
        }
        let placed = Placed { id: 0, number: order.number };
        let result = serde_json::to_vec(&placed)?.into();
        let mut orders =
            self.orders.of(&order.number).write().unwrap_or_else(PoisonError::into_inner);
        orders.insert(order.number, Bytes::from_static(b"three of them"));
        let fingerprint = order.request.fingerprint_value().copied();
        receipts.insert(key.clone(), Receipt { fingerprint, result });
        Ok(Outcome::Created(placed))
    }

    fn mark(&mut self, order: &Order) -> Result<Marked, BoxError> {
        let event = format!("{}:{}", shop::CONSUMER, order.event());
        if self.marks.get(&event).is_some() {
            return Ok(Marked::Again);
        }
        let mut marks = self.marks.of(&event).write().unwrap_or_else(PoisonError::into_inner);
        Ok(if marks.insert(event, ()).is_none() { Marked::First } else { Marked::Again })
    }
}

fn answer(order: &Order, receipt: &Receipt) -> Result<Outcome<Placed>, BoxError> {
    if receipt.fingerprint.as_ref() != order.request.fingerprint_value() {
        return Ok(Outcome::Conflict);
    }
    Ok(Outcome::Replayed(serde_json::from_slice(&receipt.result)?))
}

impl Side for Memory {
    fn run(&mut self, load: &Arc<Load>) -> Result<Sample, BoxError> {
        threads::run(load, EVERY, || Ok(self.clone()))
    }

    fn stored(&mut self, _: &Load) -> Result<Stored, BoxError> {
        Ok(Stored { orders: self.orders.len(), receipts: self.receipts.len() + self.marks.len() })
    }
}
