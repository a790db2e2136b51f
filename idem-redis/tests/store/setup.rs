//! What the tests start from.

use std::time::{Duration, Instant};

use bytes::Bytes;
use idem_core::{
    Change, Committed, EffectError, Error, Fingerprint, Idem, Key, Outcome, Record, Request, Space,
    Span, State, Step, Store, Timestamp, Token, Transaction, judge,
};
use idem_redis::{
    RedisBuilder, RedisStore, RedisTransaction,
    testing::{Server, Value},
};
use uuid::Uuid;

pub(crate) use idem_conformance::{
    as_holder,
    callers::{joined, together, within},
    setup::{Runs, add, count_in, key, request},
};

/// How long a lease of [`claim`] is.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

pub(crate) type Front = Idem<RedisStore>;

/// Opens a store as it comes.
pub(crate) async fn open(url: &str) -> Front {
    open_with(RedisStore::builder(), url).await
}

pub(crate) async fn open_with(builder: RedisBuilder, url: &str) -> Front {
    Idem::new(builder.open(url).await.unwrap())
}

/// A builder whose stores wait so many milliseconds for an answer, and as long again for things to get better.
pub(crate) fn hasty(millis: u64) -> RedisBuilder {
    RedisStore::builder().response_timeout(Duration::from_millis(millis))
}

/// As [`hasty`], also where a connection is not answered.
pub(crate) fn hasty_to_connect(millis: u64) -> RedisBuilder {
    hasty(millis).connection_timeout(Duration::from_millis(millis))
}

/// Adds one to the count `name` under the key `name`.
pub(crate) async fn added(idem: &Front, name: &'static str) -> Result<Outcome<u64>, Error> {
    idem.execute(&request(name, "p"), move |tx| add(tx, name)).await
}

/// Writes under the key `name` without reading, so that a call is two commands.
pub(crate) async fn put(idem: &Front, name: &'static str) -> Result<Outcome<u8>, Error> {
    idem.execute(&request(name, "p"), move |tx| put_one(tx, name)).await
}

/// As [`put`], under a free key.
pub(crate) async fn put_first(idem: &Front, name: &'static str) {
    assert_eq!(put(idem, name).await.unwrap(), Outcome::Created(1));
}

pub(crate) fn put_one(tx: &mut RedisTransaction, name: &str) -> Result<u8, EffectError> {
    tx.put(name.as_bytes(), b"1")?;
    Ok(1)
}

/// The committed count under `name` in the tenant's space of [`key`].
pub(crate) async fn count(idem: &Front, name: &str) -> u64 {
    count_in(idem, &space(), name).await
}

pub(crate) fn space() -> Space {
    Space::tenant("north").unwrap()
}

/// The value under `name`, as the server has it.
pub(crate) fn value_of(server: &Server, name: &str) -> Option<String> {
    server.query(&["GET", &format!("idem:{{tnorth}}:v:{name}")]).unwrap()
}

/// The name of the record of [`key`].
pub(crate) fn record_name(name: &str) -> String {
    format!("idem:{{tnorth}}:r:5:order:{name}")
}

/// Whether the server has a record of [`key`].
pub(crate) fn has_record(server: &Server, name: &str) -> bool {
    server.query(&["EXISTS", &record_name(name)]).unwrap()
}

/// What the server says its time is.
pub(crate) fn server_time(server: &Server) -> i64 {
    let (seconds, micros): (i64, i64) = server.query(&["TIME"]).unwrap();
    seconds * 1000 + micros / 1000
}

/// Waits until `holds`, with a bound; `what` says what for.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub(crate) fn set(server: &Server, setting: &str, value: &str) -> Value {
    server.command(&["CONFIG", "SET", setting, value]).unwrap()
}

/// Asks for a change without an effect, on the record that it expects.
#[derive(Clone)]
pub(crate) struct Ask {
    /// The fingerprint of a step that wants a free key; none if it runs on what it expects alone.
    pub(crate) wanted: Option<Option<Fingerprint>>,
    pub(crate) expected: Option<Record>,
    pub(crate) change: Change,
}

impl<Tx: ?Sized> Step<Tx> for Ask {
    fn proceeds(&self, record: Option<&Record>, now: Timestamp) -> bool {
        match &self.wanted {
            Some(wanted) => judge(record, wanted.as_ref(), now).runs(),
            None => record == self.expected.as_ref(),
        }
    }

    fn effectless(&self) -> bool {
        true
    }

    fn expected(&self) -> Option<&Record> {
        self.expected.as_ref()
    }

    fn run(&mut self, _: &mut Tx, _: Option<&Record>, _: Timestamp) -> Result<Change, Error> {
        Ok(self.change.clone())
    }
}

pub(crate) fn lease(duration: Duration) -> Span {
    Span::new("lease", duration).unwrap()
}

/// A step that claims the key of a request.
pub(crate) fn claim_of(request: &Request) -> Ask {
    let fingerprint = request.fingerprint_value().copied();
    let change = Change::Claim {
        fingerprint,
        attempt: Uuid::new_v4(),
        took_over: None,
        lease: lease(LEASE),
        retention: request.retention().unwrap(),
    };
    Ask { wanted: Some(fingerprint), expected: None, change }
}

pub(crate) async fn transact(idem: &Front, key: &Key, ask: Ask) -> Result<Committed, Error> {
    idem.store().transact(key, Box::new(ask)).await
}

/// Claims the key `name`.
pub(crate) async fn claim(idem: &Front, name: &str) -> Result<Committed, Error> {
    let request = request(name, "p");
    transact(idem, request.key(), claim_of(&request)).await
}

/// Claims the key `name`, which must be free, and returns the record.
pub(crate) async fn claimed(idem: &Front, name: &str) -> Record {
    let committed = claim(idem, name).await.unwrap();
    assert!(committed.ran, "{name} must be free");
    committed.after.unwrap()
}

/// What a lease's holder does to its own claim of the key `name`.
pub(crate) async fn on_claim(
    idem: &Front,
    name: &str,
    claim: &Record,
    change: Change,
) -> Result<Committed, Error> {
    let ask = Ask { wanted: None, expected: Some(claim.clone()), change };
    transact(idem, &key(name), ask).await
}

/// The change that completes a claim with `result`.
pub(crate) fn completion(claim: &Record, result: &'static str) -> Change {
    Change::Complete {
        fingerprint: claim.fingerprint,
        attempt: Uuid::new_v4(),
        result: Bytes::from_static(result.as_bytes()),
        retention: idem_core::Retention::DEFAULT,
    }
}

pub(crate) fn token(record: Option<&Record>) -> Token {
    match record.map(|record| &record.state) {
        Some(State::Claimed { token, .. }) => *token,
        other => panic!("it must be a claim: {other:?}"),
    }
}

/// The URL that names all nodes of a cluster.
#[cfg(feature = "cluster")]
pub(crate) fn cluster_url(cluster: &idem_redis::testing::Cluster) -> String {
    let hosts: Vec<_> = cluster.nodes().iter().map(|node| node.address().to_string()).collect();
    format!("redis+cluster://{}", hosts.join(","))
}
