//! By hand on Redis, in the usual way: three round trips, no script.
//!
//! The callers share one connection of the driver that idem has, with idem's timeouts and without Nagle's algorithm,
//! and are tasks as idem's are. `SET key pending NX PX` claims the key for half a minute; the effect is a `SET` of
//! the order; `SET key receipt PX` completes it for a day. If the key is taken, `GET` reads it: the fingerprint is
//! compared, and the result decoded from JSON; a pending one is read again after a millisecond. A mark is a bare
//! `SET key 1 NX`. A caller that dies in between leaves its effect without a receipt.

use std::{path::Path, sync::Arc, time::Duration};

use idem_core::{BoxError, Outcome, consumer::Marked};
use redis::{
    AsyncConnectionConfig, Client, Cmd, IntoConnectionInfo, RedisResult,
    aio::MultiplexedConnection, cmd, io::tcp::TcpSettings,
};
use tokio::{runtime::Runtime, time::sleep};

use super::receipt;
use crate::{
    Load, Order, Placed, Sample, Side,
    redis_server::RedisServer,
    shop,
    side::Stored,
    tasks::{self, Caller},
};

const TIMEOUT: Duration = Duration::from_secs(5);
const CLAIM_MILLIS: u64 = 30_000;
pub(super) const DAY_MILLIS: u64 = 24 * 60 * 60 * 1000;

/// What the effect writes.
pub(super) const ORDERED: &str = "three of them";

/// How long a caller waits before it reads a pending key again.
pub(super) const POLL: Duration = Duration::from_millis(1);

pub(crate) fn open(_: &Path) -> Result<Box<dyn Side>, BoxError> {
    open_on(RedisServer::start()?)
}

pub(crate) fn open_slow(_: &Path) -> Result<Box<dyn Side>, BoxError> {
    open_on(RedisServer::start_far()?)
}

fn open_on(server: RedisServer) -> Result<Box<dyn Side>, BoxError> {
    let runtime = Runtime::new()?;
    let calls = Calls(runtime.block_on(connect(&server))?);
    Ok(Box::new(Redis { runtime, calls, server }))
}

pub(super) async fn connect(server: &RedisServer) -> Result<MultiplexedConnection, BoxError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(TIMEOUT))
        .set_response_timeout(Some(TIMEOUT));
    Ok(client(server)?.get_multiplexed_async_connection_with_config(&config).await?)
}

pub(super) fn client(server: &RedisServer) -> RedisResult<Client> {
    let info = server.url().into_connection_info()?;
    Client::open(info.set_tcp_settings(TcpSettings::default().set_nodelay(true)))
}

/// The effect.
pub(super) fn set_order(number: u64) -> Cmd {
    let mut set = cmd("SET");
    set.arg(order_name(number)).arg(ORDERED);
    set
}

pub(super) fn order_name(number: u64) -> String {
    format!("order:{number}")
}

struct Redis {
    runtime: Runtime,
    calls: Calls,
    server: RedisServer,
}

impl Side for Redis {
    fn run(&mut self, load: &Arc<Load>) -> Result<Sample, BoxError> {
        tasks::run(&self.runtime, load, 1, &self.calls)
    }

    fn stored(&mut self, _: &Load) -> Result<Stored, BoxError> {
        self.server.count("order:*", "receipt:*")
    }
}

#[derive(Clone)]
struct Calls(MultiplexedConnection);

impl Caller for Calls {
    async fn place(&self, order: &Order) -> Result<Outcome<Placed>, BoxError> {
        let (mut connection, name) = (self.0.clone(), name(order));
        let pending = receipt::pending(order);
        loop {
            let mut claim = cmd("SET");
            claim.arg(&name).arg(&pending).arg("NX").arg("PX").arg(CLAIM_MILLIS);
            if claim.query_async(&mut connection).await? {
                return create(&mut connection, &name, order).await;
            }
            let stored: Option<Vec<u8>> =
                cmd("GET").arg(&name).query_async(&mut connection).await?;
            // Its claim may have ended meanwhile.
            if let Some(stored) = stored
                && let Some(outcome) = receipt::answer(order, &stored)?
            {
                return Ok(outcome);
            }
            sleep(POLL).await;
        }
    }

    async fn mark(&self, order: &Order) -> Result<Marked, BoxError> {
        let mut set = cmd("SET");
        set.arg(format!("receipt:{}:{}", shop::CONSUMER, order.event())).arg(1).arg("NX");
        let is_new = set.query_async(&mut self.0.clone()).await?;
        Ok(if is_new { Marked::First } else { Marked::Again })
    }
}

async fn create(
    connection: &mut MultiplexedConnection,
    name: &str,
    order: &Order,
) -> Result<Outcome<Placed>, BoxError> {
    set_order(order.number).exec_async(connection).await?;
    let placed = Placed { id: 0, number: order.number };
    let mut complete = cmd("SET");
    complete.arg(name).arg(receipt::completed(order, placed)?).arg("PX").arg(DAY_MILLIS);
    complete.exec_async(connection).await?;
    Ok(Outcome::Created(placed))
}

pub(super) fn name(order: &Order) -> String {
    let key = order.request.key();
    format!("receipt:{}:{}:{}", key.tenant(), key.operation(), key.request())
}
