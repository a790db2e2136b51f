//! Idem on Redis, through one connection that all callers share.

use std::path::Path;

use idem_core::{BoxError, Idem};
use idem_redis::{RedisBuilder, RedisStore};
use tokio::runtime::Runtime;

use crate::{Side, idem_side::IdemSide, redis_server::RedisServer, shop};

pub(crate) fn open(_: &Path) -> Result<Box<dyn Side>, BoxError> {
    open_on(RedisServer::start()?, RedisStore::builder())
}

pub(crate) fn open_speculative(_: &Path) -> Result<Box<dyn Side>, BoxError> {
    open_on(RedisServer::start()?, RedisStore::builder().speculative(true))
}

pub(crate) fn open_slow(_: &Path) -> Result<Box<dyn Side>, BoxError> {
    open_on(RedisServer::start_far()?, RedisStore::builder().speculative(true))
}

fn open_on(server: RedisServer, builder: RedisBuilder) -> Result<Box<dyn Side>, BoxError> {
    let runtime = Runtime::new()?;
    Ok(Box::new(IdemSide {
        idem: Idem::new(runtime.block_on(builder.open(&server.url()))?),
        runtime,
        place: shop::put_order,
        count: Box::new(move |_, _, _| server.count("idem:{*}:v:*", "idem:{*}:r:*")),
        every: 1,
    }))
}
