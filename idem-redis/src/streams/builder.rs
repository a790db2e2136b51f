//! How a queue is opened.

use std::{fmt, sync::atomic::AtomicU64, time::Duration};

use idem_core::locks::Mutex;
use idem_core::{Error, ErrorKind, Span};
use uuid::Uuid;

use super::{
    GIVEN_BACK, StreamQueue,
    inner::Inner,
    receive::{Search, Waiting},
};
use crate::{
    builder::timeout,
    link::{Link, Timeouts},
    server,
    target::{Options, Target},
};

/// Options for a [`StreamQueue`]. Made by [`StreamQueue::builder`].
#[must_use = "options do nothing until a queue is opened"]
pub struct StreamBuilder {
    stream: String,
    group: String,
    consumer: Option<String>,
    dead_letters: Option<String>,
    event_id_field: Option<String>,
    visibility: Duration,
    block: Duration,
    horizon: Option<Duration>,
    connection_timeout: Duration,
    response_timeout: Duration,
    #[cfg(feature = "tls")]
    root_certificates: Option<Vec<u8>>,
}

impl fmt::Debug for StreamBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamBuilder")
            .field("stream", &self.stream)
            .field("group", &self.group)
            .field("consumer", &self.consumer)
            .field("dead_letters", &self.dead_letters)
            .field("event_id_field", &self.event_id_field)
            .field("visibility", &self.visibility)
            .field("block", &self.block)
            .field("horizon", &self.horizon)
            .finish_non_exhaustive()
    }
}

impl StreamBuilder {
    pub(super) fn new(stream: String, group: String) -> Self {
        Self {
            stream,
            group,
            consumer: None,
            dead_letters: None,
            event_id_field: None,
            visibility: Duration::from_secs(30),
            block: Duration::from_secs(1),
            horizon: None,
            connection_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(5),
            #[cfg(feature = "tls")]
            root_certificates: None,
        }
    }

    /// The name of this consumer in its group. A fresh UUID unless told.
    ///
    /// No two queues of one group may have the same at the same time: each would settle what the other has in
    /// flight.
    pub fn consumer(mut self, name: impl Into<String>) -> Self {
        self.consumer = Some(name.into());
        self
    }

    /// The key of the stream that takes what is set aside. The stream's own with `:dead` behind it unless told.
    pub fn dead_letters(mut self, stream: impl Into<String>) -> Self {
        self.dead_letters = Some(stream.into());
        self
    }

    /// The field of an entry that holds the id of its event. Unless told, each entry is an event of its own, and its
    /// id the event's.
    ///
    /// A producer that sends an event again makes another entry: only a field tells that they are one event. An
    /// entry without the field, or whose field is no UTF-8, is delivered with an empty event id, which no handler
    /// takes: each of its deliveries fails with [`ErrorKind::InvalidKey`], until it is set aside. The same
    /// goes for an id that is too long for a [key](idem_core::Key) or holds a control character.
    pub fn event_id_field(mut self, name: impl Into<String>) -> Self {
        self.event_id_field = Some(name.into());
        self
    }

    /// How long a delivery stays in flight unless it is settled or extended; then it is delivered again, to whichever
    /// consumer asks first. 30 s unless told, in milliseconds: what is not a whole one is rounded up.
    ///
    /// Each consumer goes by its own: give all of a group the same.
    pub fn visibility(mut self, visibility: Duration) -> Self {
        self.visibility = visibility;
        self
    }

    /// How long a receive waits for an entry. A second unless told; a millisecond to a day.
    pub fn block(mut self, block: Duration) -> Self {
        self.block = block;
        self
    }

    /// How long after its first delivery an entry, or another of the same event, may be delivered again; no such bound
    /// unless told. It is what you know of your producers and your operation, not what this queue does: see
    /// [the module](super#how-long-marks-must-live).
    pub fn horizon(mut self, horizon: Duration) -> Self {
        self.horizon = Some(horizon);
        self
    }

    /// How long opening a connection may take, a handshake included. 5 s unless told.
    pub fn connection_timeout(mut self, timeout: Duration) -> Self {
        self.connection_timeout = timeout;
        self
    }

    /// How long the server may take to answer one command, a receive's wait not counted. 5 s unless told.
    ///
    /// A call that fails in a way that may pass tries again for as long as this after the first failure.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// Root certificates in PEM that the server's certificate may be signed by, instead of the system's.
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    pub fn root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.root_certificates = Some(pem.into());
        self
    }

    /// Opens the queue on the server that a URL names, as
    /// [`RedisBuilder::open`](crate::RedisBuilder::open) understands it, but no cluster; and makes the stream and the
    /// group, from the stream's start, unless they are there.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSetting`] for a URL or a name that is not acceptable, [`ErrorKind::InvalidDuration`] for a
    /// time; [`ErrorKind::Damaged`] if the stream's key holds something else; [`ErrorKind::Denied`],
    /// [`ErrorKind::Unreachable`] and the like for a server that does not let us in;
    /// [`ErrorKind::CannotOpen`] for one older than Redis 7. No error shows the URL, which may hold a password.
    ///
    /// # Cancel safety
    /// If the future is dropped the group may be made.
    pub async fn open(self, url: &str) -> Result<StreamQueue, Error> {
        let inner = self.into_inner(url)?;
        server::check_version(&inner.commands).await?;
        let mut patience = inner.commands.patience();
        while let Err(failure) = inner.create_group(&inner.commands).await {
            patience.bear(failure).await?;
        }
        Ok(StreamQueue::new(inner))
    }

    fn into_inner(self, url: &str) -> Result<Inner, Error> {
        if url.split_once("://").is_some_and(|(scheme, _)| scheme.ends_with("+cluster")) {
            return Err(invalid("URL", "a stream is read from one server: name no cluster"));
        }
        let timeouts = Timeouts {
            connection: timeout("connection timeout", self.connection_timeout)?,
            response: timeout("response timeout", self.response_timeout)?,
        };
        let block = timeout("block", self.block)?;
        let options = |timeouts| Options {
            timeouts,
            #[cfg(feature = "tls")]
            root_certificates: self.root_certificates.clone(),
        };
        let patient = Timeouts { response: timeouts.response + block, ..timeouts };
        let commands = Link::new(Target::of(url, &options(timeouts))?, timeouts);
        let waiting = Waiting::new(Target::of(url, &options(patient))?, timeouts);
        let consumer = self.consumer.unwrap_or_else(|| Uuid::new_v4().to_string());
        if consumer == GIVEN_BACK {
            return Err(invalid("consumer", "this is the name for what was given back"));
        }
        let dead_letters = self.dead_letters.unwrap_or_else(|| format!("{}:dead", self.stream));
        if dead_letters == self.stream {
            return Err(invalid("dead letters", "they must not come back: name another stream"));
        }
        if let Some(field) = self.event_id_field.as_deref() {
            given("event id field", field)?;
        }
        Ok(Inner {
            commands,
            waiting,
            stream: given("stream", self.stream)?,
            group: given("group", self.group)?,
            consumer: given("consumer", consumer)?,
            dead_letters: given("dead letters", dead_letters)?,
            event_id_field: self.event_id_field,
            visibility: whole("visibility", self.visibility)?,
            block,
            horizon: self.horizon.map(|horizon| whole("horizon", horizon)).transpose()?,
            search: Mutex::new(Search::default()),
            nonces: AtomicU64::new(0),
        })
    }
}

/// A name that is not empty.
fn given<N: AsRef<str>>(field: &'static str, name: N) -> Result<N, Error> {
    if name.as_ref().is_empty() {
        return Err(invalid(field, "it is empty: give it a name"));
    }
    Ok(name)
}

/// Rounded up to whole milliseconds.
fn whole(field: &'static str, duration: Duration) -> Result<Duration, Error> {
    let millis = Span::new(field, duration)?.as_millis();
    Ok(Duration::from_millis(millis.unsigned_abs()))
}

fn invalid(field: &'static str, problem: &str) -> Error {
    let kind = ErrorKind::InvalidSetting { field, problem: problem.to_string() };
    Error::nothing_done(kind)
}
