//! One connection, shared by all callers, and another one after it breaks.

use std::{
    hash::{BuildHasher, RandomState},
    io, mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use idem_core::locks::RwLock;
use idem_core::{Certainty, Error, HomeProcess};
use redis::{
    Cmd, ErrorKind as DriverKind, Pipeline, RedisError, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};
use tokio::{
    runtime::Handle,
    sync::Mutex,
    time::{sleep, timeout},
};

use crate::{
    create::Sent,
    failure::{Failure, Meaning},
    glance::Glance,
    script::Script,
    target::Target,
    together::Company,
};

/// How long a call waits for what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// For a connection.
    pub(crate) connection: Duration,
    /// For the answer to one command; and, after a first failure, for things to get better.
    pub(crate) response: Duration,
}

/// A connection that is opened again when it breaks. A clone is the same.
#[derive(Clone)]
pub(crate) struct Link {
    shared: Arc<Shared>,
    timeouts: Timeouts,
}

/// What opens a connection, also if the caller who asked for it goes away.
struct Shared {
    home: HomeProcess,
    target: Target,
    current: RwLock<Option<Connection>>,
    /// How often a connection was tried to be opened.
    tries: AtomicU64,
    /// Why the last try failed. Locked while one is under way, so that one caller tries for all that wait.
    last: Mutex<Option<Failure>>,
}

/// A connection, and what its callers share. A clone is the same.
#[derive(Clone)]
pub(crate) struct Connection {
    number: u64,
    wire: Wire,
    /// The runtime that drives it.
    pub(crate) home: Handle,
    pub(crate) creates: Arc<Company<Sent>>,
    pub(crate) glances: Arc<Company<Glance>>,
}

/// A connection of the driver's; a clone shares it.
#[derive(Clone)]
pub(crate) enum Wire {
    Single(MultiplexedConnection),
    #[cfg(feature = "cluster")]
    Cluster(redis::cluster_async::ClusterConnection),
}

impl Wire {
    async fn send(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        match self {
            Self::Single(connection) => connection.req_packed_command(command).await,
            #[cfg(feature = "cluster")]
            Self::Cluster(connection) => connection.req_packed_command(command).await,
        }
    }

    async fn send_all(&mut self, commands: &Pipeline) -> Result<Vec<Value>, RedisError> {
        let count = commands.len();
        match self {
            Self::Single(connection) => connection.req_packed_commands(commands, 0, count).await,
            #[cfg(feature = "cluster")]
            Self::Cluster(connection) => connection.req_packed_commands(commands, 0, count).await,
        }
    }

    /// To one server of a cluster.
    async fn send_to(self, host: &str, port: u16, command: &Cmd) -> Result<Value, RedisError> {
        match self {
            #[cfg(feature = "cluster")]
            Self::Cluster(mut connection) => {
                use redis::cluster_routing::{RoutingInfo, SingleNodeRoutingInfo};
                let node = SingleNodeRoutingInfo::ByAddress { host: host.to_string(), port };
                let routing = RoutingInfo::SingleNode(node);
                connection.route_command(command.clone(), routing).await
            }
            mut single => {
                let _ = (host, port);
                single.send(command).await
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !self.home.is_here() {
            // The socket is the parent's, and so is the runtime that would be told.
            mem::forget(self.current.get_mut().take());
        }
    }
}

impl Shared {
    async fn open(&self, patience: Duration) -> Result<Connection, Failure> {
        let before = self.tries.load(Ordering::Acquire);
        // Another's try may be in a runtime that nobody drives any more.
        let Ok(mut last) = timeout(patience, self.last.lock()).await else {
            return Err(Failure::no_connection());
        };
        if let Some(current) = &*self.current.read() {
            return Ok(current.clone());
        }
        if let Some(failure) = &*last
            && self.tries.load(Ordering::Acquire) != before
        {
            // It was tried while this caller waited: trying anew for each would take each one's timeout.
            return Err(failure.clone());
        }
        let opened = self.target.connect().await.map_err(Failure::to_connect);
        let number = self.tries.fetch_add(1, Ordering::AcqRel) + 1;
        *last = opened.as_ref().err().cloned();
        let current = Connection {
            number,
            wire: opened?,
            home: Handle::current(),
            creates: Arc::default(),
            glances: Arc::default(),
        };
        *self.current.write() = Some(current.clone());
        Ok(current)
    }
}

impl Link {
    pub(crate) fn new(target: Target, timeouts: Timeouts) -> Self {
        let shared = Shared {
            home: HomeProcess::here(),
            target,
            current: RwLock::new(None),
            tries: AtomicU64::new(0),
            last: Mutex::new(None),
        };
        Self { shared: Arc::new(shared), timeouts }
    }

    /// Refuses a call in a forked child: on the parent's socket their replies would be mixed.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        self.shared.home.check()
    }

    pub(crate) fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    /// The host that the URL of a cluster names first.
    pub(crate) fn first_host(&self) -> &str {
        self.shared.target.first_host()
    }

    /// How often a connection was tried to be opened.
    pub(crate) fn tries(&self) -> u64 {
        self.shared.tries.load(Ordering::Acquire)
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.shared.target.is_cluster()
    }

    /// Sends a command, once, and waits for its answer.
    ///
    /// # Cancel safety
    /// The command may run; its answer goes to nobody.
    pub(crate) async fn send(&self, command: &Cmd) -> Result<Value, Failure> {
        self.send_by(&mut self.connected().await?, command).await
    }

    async fn send_by(&self, connection: &mut Connection, command: &Cmd) -> Result<Value, Failure> {
        let answer = connection.wire.send(command).await.and_then(Value::extract_error);
        answer.map_err(|cause| self.failed(connection.number, cause))
    }

    /// Sends commands by that connection, once, and waits for the answers to all. Each may be an error.
    pub(crate) async fn send_all(
        &self,
        connection: &mut Connection,
        commands: &Pipeline,
    ) -> Result<Vec<Value>, Failure> {
        let answers = connection.wire.send_all(commands).await;
        answers.map_err(|cause| self.failed(connection.number, cause))
    }

    /// What it means that the server refused a part of what was sent by that connection.
    pub(crate) fn refused(&self, connection: &Connection, cause: RedisError) -> Failure {
        self.failed(connection.number, cause)
    }

    /// Sends a command by that connection, once: its answer as a whole is no error, a part of it may be one.
    pub(crate) async fn send_whole(
        &self,
        connection: &mut Connection,
        command: &Cmd,
    ) -> Result<Value, Failure> {
        let answer = match connection.wire.send(command).await {
            Ok(Value::ServerError(error)) => Err(error.into()),
            answer => answer,
        };
        answer.map_err(|cause| self.failed(connection.number, cause))
    }

    /// Lets go of a connection by which an answer did not come in time.
    pub(crate) fn unanswered(&self, connection: &Connection) -> Failure {
        let cause = io::Error::from(io::ErrorKind::TimedOut);
        self.failed(connection.number, cause.into())
    }

    /// Runs a script, by its digest where the server knows it.
    pub(crate) async fn eval(
        &self,
        script: &Script,
        fill: impl Fn(&mut Cmd),
    ) -> Result<Value, Failure> {
        self.eval_by(&mut self.connected().await?, script, fill).await
    }

    /// As [`Link::eval`], by that connection.
    pub(crate) async fn eval_by(
        &self,
        connection: &mut Connection,
        script: &Script,
        fill: impl Fn(&mut Cmd),
    ) -> Result<Value, Failure> {
        let mut command = Cmd::with_capacity(24, 512);
        fill(command.arg("EVALSHA").arg(script.digest()));
        match self.send_by(connection, &command).await {
            Err(failure) if failure.meaning == Meaning::NoScript => {
                let mut command = redis::cmd("EVAL");
                fill(command.arg(script.source()));
                self.send_by(connection, &command).await
            }
            answer => answer,
        }
    }

    /// Sends a command, once, to one server of a cluster.
    pub(crate) async fn send_to(
        &self,
        host: &str,
        port: u16,
        command: &Cmd,
    ) -> Result<Value, Failure> {
        let Connection { number, wire, .. } = self.connected().await?;
        let answer = wire.send_to(host, port, command).await;
        answer.and_then(Value::extract_error).map_err(|cause| self.failed(number, cause))
    }

    /// How long an argument of a command may be, if the server tells.
    pub(crate) async fn longest_argument(&self) -> Option<usize> {
        let answer = self.send(redis::cmd("CONFIG").arg("GET").arg("proto-max-bulk-len")).await;
        let pair: (String, usize) = redis::from_redis_value(answer.ok()?).ok()?;
        Some(pair.1)
    }

    /// Lets go of the connection; the next command opens another.
    pub(crate) fn disconnect(&self) {
        *self.shared.current.write() = None;
    }

    /// Lets go of a connection that hands answers to the wrong commands.
    pub(crate) fn misunderstood(&self) -> Failure {
        self.disconnect();
        Failure::misunderstood()
    }

    fn failed(&self, number: u64, cause: RedisError) -> Failure {
        let mut failure = Failure::of_command(cause);
        if self.is_cluster() && failure.is_redirect() {
            // The driver asks now where slots are.
            failure.meaning = Meaning::Wait;
        }
        // After a lost answer a connection may hand its answers to the wrong commands, and one to a server
        // that takes no writes leads nowhere; one that was sent too much is ended.
        let leads_on = !matches!(failure.meaning, Meaning::Lost | Meaning::ReadOnly);
        if !leads_on || failure.is_too_large() {
            let mut current = self.shared.current.write();
            if current.as_ref().is_some_and(|current| current.number == number) {
                *current = None;
            }
        }
        failure
    }

    pub(crate) async fn connected(&self) -> Result<Connection, Failure> {
        // The driver would panic.
        if Handle::try_current().is_err() {
            let cause = (DriverKind::InvalidClientConfig, "call it within a tokio runtime");
            return Err(Failure::to_connect(cause.into()));
        }
        if let Some(current) = &*self.shared.current.read() {
            return Ok(current.clone());
        }
        let (shared, patience) = (Arc::clone(&self.shared), self.timeouts.connection);
        // In a task of its own: a caller who is not polled any more must not stop the others.
        let opening = tokio::spawn(async move { shared.open(patience).await });
        opening.await.unwrap_or_else(|_| Err(Failure::no_connection()))
    }

    /// How a call that has just begun bears failures.
    pub(crate) fn patience(&self) -> Patience {
        Patience {
            started: Instant::now(),
            give_up: None,
            delay: Duration::from_millis(4),
            response: self.timeouts.response,
        }
    }
}

/// How a call bears failures that may pass: it waits between tries, longer each time, and gives up when a
/// response timeout has passed since the first.
#[derive(Debug)]
pub(crate) struct Patience {
    started: Instant,
    give_up: Option<Instant>,
    delay: Duration,
    response: Duration,
}

impl Patience {
    const LONGEST: Duration = Duration::from_millis(250);

    /// Waits a little, or says that there is no use in it.
    pub(crate) async fn bear(&mut self, failure: Failure) -> Result<(), Error> {
        let now = Instant::now();
        let give_up = *self.give_up.get_or_insert(now + self.response);
        if !failure.may_pass() || now >= give_up {
            return Err(failure.into_error(self.started.elapsed()));
        }
        sleep(self.next_delay().min(give_up - now)).await;
        Ok(())
    }

    /// As [`Patience::bear`], for a command that does nothing, whether it ran or not.
    pub(crate) async fn bear_reading(&mut self, failure: Failure) -> Result<(), Error> {
        let nothing_done = |error: Error| error.with_certainty(Certainty::NothingDone);
        self.bear(failure).await.map_err(nothing_done)
    }

    /// How long the call has taken.
    #[cfg(feature = "streams")]
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Half of the delay, and a random part of the other half, so that callers do not come in step.
    fn next_delay(&mut self) -> Duration {
        let delay = self.delay;
        self.delay = (2 * delay).min(Self::LONGEST);
        let share = RandomState::new().hash_one(()) % 1000;
        delay / 2 + delay.mul_f64(share as f64 / 2000.0)
    }
}
