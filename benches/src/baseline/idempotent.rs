//! By the crate `idempotent` on Redis, as its docs say: `try_insert` claims the key, by a script; the effect is
//! a `SET` of the order, on a connection beside the crate's; `complete` stores the result, by another script.
//!
//! All callers share one store, whose connection is without Nagle's algorithm, as idem's is. If the key is taken, the entry's fingerprint is compared, and the result of a
//! completed one decoded from JSON; one in processing is asked for again after a millisecond, since the crate
//! leaves waiting to its caller. It has no marks.

use std::{path::Path, sync::Arc, time::Duration};

use idem_core::{BoxError, Outcome, consumer::Marked};
use idempotent::{
    CachedResponse, Fingerprint, IdempotencyEntry, IdempotencyKey, Metadata,
    entry::{ExistingEntry, FencingToken, Processing},
    fingerprint::{DefaultFingerprintStrategy, FingerprintStrategy},
    store::{IdempotencyStore, InsertResult, valkey::ValkeyStore},
};
use redis::aio::MultiplexedConnection;
use tokio::{runtime::Runtime, time::sleep};

use super::redis::{POLL, client, connect, set_order};
use crate::{
    Load, Order, Placed, Sample, Side,
    redis_server::RedisServer,
    side::Stored,
    tasks::{self, Caller},
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

pub(crate) fn open(_: &Path) -> Result<Box<dyn Side>, BoxError> {
    let (runtime, server) = (Runtime::new()?, RedisServer::start()?);
    let store = runtime.block_on(ValkeyStore::with_prefix(client(&server)?, Some("receipt")))?;
    let connection = runtime.block_on(connect(&server))?;
    let calls = Calls { store: Arc::new(store), connection };
    Ok(Box::new(Idempotent { runtime, calls, server }))
}

struct Idempotent {
    runtime: Runtime,
    calls: Calls,
    server: RedisServer,
}

impl Side for Idempotent {
    fn run(&mut self, load: &Arc<Load>) -> Result<Sample, BoxError> {
        tasks::run(&self.runtime, load, 1, &self.calls)
    }

    fn stored(&mut self, _: &Load) -> Result<Stored, BoxError> {
        self.server.count("order:*", "receipt-*")
    }
}

#[derive(Clone)]
struct Calls {
    store: Arc<ValkeyStore>,
    /// For the effect.
    connection: MultiplexedConnection,
}

impl Caller for Calls {
    async fn place(&self, order: &Order) -> Result<Outcome<Placed>, BoxError> {
        let (key, fingerprint) = (key(order)?, fingerprint(order));
        loop {
            let entry = IdempotencyEntry::new(fingerprint, DAY);
            match self.store.try_insert(&key, entry.clone()).await? {
                InsertResult::Claimed { fencing_token } => {
                    return self.create(&key, entry, fencing_token, order).await;
                }
                InsertResult::Exists(existing) => {
                    if let Some(outcome) = answer(fingerprint, &existing)? {
                        return Ok(outcome);
                    }
                }
            }
            sleep(POLL).await;
        }
    }

    async fn mark(&self, _: &Order) -> Result<Marked, BoxError> {
        Err("the crate has no marks".into())
    }
}

impl Calls {
    async fn create(
        &self,
        key: &IdempotencyKey,
        entry: IdempotencyEntry<Processing>,
        fencing_token: FencingToken,
        order: &Order,
    ) -> Result<Outcome<Placed>, BoxError> {
        set_order(order.number).exec_async(&mut self.connection.clone()).await?;
        let placed = Placed { id: 0, number: order.number };
        let body = serde_json::to_vec(&placed)?.into();
        let response = CachedResponse { status_code: 200, metadata: Metadata::default(), body };
        self.store.complete(key, entry.complete(response), fencing_token).await?;
        Ok(Outcome::Created(placed))
    }
}

/// What a caller is told who finds this; none while somebody is at it.
fn answer(
    fingerprint: Fingerprint,
    existing: &ExistingEntry,
) -> Result<Option<Outcome<Placed>>, BoxError> {
    let (matches, response) = match existing {
        ExistingEntry::Processing(entry) => (entry.fingerprint_matches(fingerprint), None),
        ExistingEntry::Completed(entry) => {
            (entry.fingerprint_matches(fingerprint), Some(entry.response()))
        }
    };
    if !matches {
        return Ok(Some(Outcome::Conflict));
    }
    let Some(response) = response else { return Ok(None) };
    Ok(Some(Outcome::Replayed(serde_json::from_slice(&response.body)?)))
}

fn key(order: &Order) -> Result<IdempotencyKey, BoxError> {
    let key = order.request.key();
    Ok(IdempotencyKey::new(format!("{}:{}:{}", key.tenant(), key.operation(), key.request()))?)
}

fn fingerprint(order: &Order) -> Fingerprint {
    let parameters = order.request.fingerprint_value().map(|fingerprint| fingerprint.to_bytes());
    let parameters = parameters.as_ref().map_or(&[][..], |bytes| &bytes[..]);
    DefaultFingerprintStrategy.compute(order.request.key().operation(), parameters)
}
