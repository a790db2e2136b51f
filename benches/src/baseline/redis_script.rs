//! The least that one script on Redis can do, with nothing of idem in it: what is to be had of a store that commits an
//! effect and its receipt in one script, on the machine at hand.
//!
//! The script takes the server's time for the receipt's start, creates the receipt if the key is free, and only then
//! stores the order. There is no form to read back, no deadline, no comparison of what an effect read, no search for
//! a lost answer, and nobody goes together with others. Connection, timeouts and callers are those of the usual way.

use std::{path::Path, sync::Arc};

use idem_core::{BoxError, Outcome, consumer::Marked};
use redis::{Script, aio::MultiplexedConnection, pipe};
use tokio::runtime::Runtime;

use super::{
    receipt,
    redis::{DAY_MILLIS, ORDERED, connect, name, order_name},
};
use crate::{
    Load, Order, Placed, Sample, Side,
    redis_server::RedisServer,
    shop,
    side::Stored,
    tasks::{self, Caller},
};

/// Creates a receipt, and then the value that comes with it, if one does; or returns what is there.
const CREATE: &str = "
local time = redis.call('TIME')
local now = time[1] .. string.sub('00000' .. time[2], -6, -4)
if not redis.call('SET', KEYS[1], ARGV[1] .. now, 'NX', 'PX', ARGV[2]) then
  return redis.call('GET', KEYS[1])
end
if KEYS[2] then redis.call('SET', KEYS[2], ARGV[3]) end
return false
";

/// The digits of a time.
const TIME: usize = 13;

/// Each call is one round trip.
pub(crate) fn open(_: &Path) -> Result<Box<dyn Side>, BoxError> {
    open_on(RedisServer::start()?, false)
}

/// A create reads first: the receipt, and the server's time, by which it would be judged.
pub(crate) fn open_reading(_: &Path) -> Result<Box<dyn Side>, BoxError> {
    open_on(RedisServer::start()?, true)
}

/// As [`open`], on a slow network.
pub(crate) fn open_slow(_: &Path) -> Result<Box<dyn Side>, BoxError> {
    open_on(RedisServer::start_far()?, false)
}

fn open_on(server: RedisServer, reads: bool) -> Result<Box<dyn Side>, BoxError> {
    let runtime = Runtime::new()?;
    let connection = runtime.block_on(connect(&server))?;
    let calls = Calls { connection, create: Arc::new(Script::new(CREATE)), reads };
    Ok(Box::new(RedisScript { runtime, calls, server }))
}

struct RedisScript {
    runtime: Runtime,
    calls: Calls,
    server: RedisServer,
}

impl Side for RedisScript {
    fn run(&mut self, load: &Arc<Load>) -> Result<Sample, BoxError> {
        tasks::run(&self.runtime, load, 1, &self.calls)
    }

    fn stored(&mut self, _: &Load) -> Result<Stored, BoxError> {
        self.server.count("order:*", "receipt:*")
    }
}

#[derive(Clone)]
struct Calls {
    connection: MultiplexedConnection,
    create: Arc<Script>,
    reads: bool,
}

impl Caller for Calls {
    async fn place(&self, order: &Order) -> Result<Outcome<Placed>, BoxError> {
        let (mut connection, name) = (self.connection.clone(), name(order));
        if self.reads {
            // What has ended by the server's time is not there; here nothing ends.
            let (stored, _time): (Option<Vec<u8>>, (i64, i64)) =
                pipe().cmd("GET").arg(&name).cmd("TIME").query_async(&mut connection).await?;
            if let Some(stored) = stored {
                return answer(order, &stored);
            }
        }
        let placed = Placed { id: 0, number: order.number };
        let mut create = self.create.key(&name);
        create.key(order_name(order.number)).arg(receipt::completed(order, placed)?);
        create.arg(DAY_MILLIS).arg(ORDERED);
        let there: Option<Vec<u8>> = create.invoke_async(&mut connection).await?;
        there.map_or(Ok(Outcome::Created(placed)), |stored| answer(order, &stored))
    }

    async fn mark(&self, order: &Order) -> Result<Marked, BoxError> {
        let mut create = self.create.key(format!("receipt:{}:{}", shop::CONSUMER, order.event()));
        create.arg("").arg(DAY_MILLIS);
        let there: Option<Vec<u8>> = create.invoke_async(&mut self.connection.clone()).await?;
        Ok(if there.is_some() { Marked::Again } else { Marked::First })
    }
}

/// What a caller is told who finds this; there is no claim to be found.
fn answer(order: &Order, stored: &[u8]) -> Result<Outcome<Placed>, BoxError> {
    let receipt = &stored[..stored.len().saturating_sub(TIME)];
    receipt::answer(order, receipt)?.ok_or_else(|| "a receipt has a result".into())
}
