//! One server.

use std::{
    env, io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
};

use redis::{Client, ErrorKind, FromRedisValue, RedisResult, ServerErrorKind, Value};
use tempfile::TempDir;

use super::{
    Builder,
    log::Log,
    ports::{self, Port},
    process::Process,
    shared::Shared,
    wait::{BOUND, until},
};

/// How many ports are tried before starting fails: others may take each first.
const TRIES: usize = 20;

/// A Redis server of one's own, on the loopback interface and on a Unix socket.
///
/// It keeps nothing on disk unless told so by [`Builder::arg`]. Dropping it kills it and removes its folder.
#[derive(Debug)]
pub struct Server {
    program: String,
    builder: Builder,
    port: Port,
    /// The port where the nodes of a cluster talk.
    bus: Port,
    /// Before the folder, so that it is dropped first.
    process: Option<Process>,
    folder: TempDir,
    log: Log,
}

impl Server {
    /// Starts a server with the settings of a [`Server::builder`] that was told nothing.
    ///
    /// # Errors
    ///
    /// As [`Builder::start`].
    pub fn start() -> io::Result<Self> {
        Self::builder().start()
    }

    /// For a server with other settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The server that the tests of a program share. It ends when the last test that holds it does.
    ///
    /// Tests run at the same time: each should use keys of its own, and none may disturb the server.
    ///
    /// # Errors
    ///
    /// As [`Builder::start`].
    pub fn shared() -> io::Result<Arc<Self>> {
        static SHARED: Shared<Server> = Shared::new();
        SHARED.get(Self::start)
    }

    pub(crate) fn start_with(builder: Builder) -> io::Result<Self> {
        let program = env::var("IDEM_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_string());
        Self::start_program(&program, builder)
    }

    fn start_program(program: &str, builder: Builder) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("idem-redis-").tempdir()?;
        let log = Log::new(folder.path());
        let program = program.to_string();
        let (port, bus) = (ports::free()?, ports::free()?);
        let mut server = Self { program, builder, port, bus, process: None, folder, log };
        let mut tries = TRIES;
        loop {
            tries -= 1;
            match server.launch() {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries > 0 => {}
                result => return result.map(|()| server),
            }
            server.port = ports::free()?;
            server.bus = ports::free()?;
        }
    }

    /// The URL of the loopback address, for clients.
    pub fn url(&self) -> String {
        self.url_at(self.port.number())
    }

    /// The URL, if it had another port.
    pub(crate) fn url_at(&self, port: u16) -> String {
        let password = self.password().map(|password| format!(":{password}@"));
        let password = password.unwrap_or_default();
        // A certificate is for a name.
        let is_tls = self.builder.certificates.is_some();
        let (scheme, host) = if is_tls { ("rediss", "localhost") } else { ("redis", "127.0.0.1") };
        format!("{scheme}://{password}{host}:{port}")
    }

    /// The URL of the Unix socket, for clients.
    pub fn unix_url(&self) -> String {
        let password = self.password().map(|password| format!("?pass={password}"));
        format!("redis+unix://{}{}", self.socket().display(), password.unwrap_or_default())
    }

    /// The loopback address: the same after a restart.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port.number()).into()
    }

    pub(crate) fn bus(&self) -> u16 {
        self.bus.number()
    }

    pub(crate) fn password(&self) -> Option<&str> {
        self.builder.password.as_deref()
    }

    /// The Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// The folder that holds all the files of the server.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What the server printed since its latest start.
    pub fn log(&self) -> String {
        self.log.text()
    }

    /// The process, while the server runs.
    pub fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// Sends one command and returns the reply. Each has a connection of its own, on the Unix socket.
    ///
    /// # Errors
    ///
    /// The server's, or that of a connection that fails or has no reply in 20 seconds.
    pub fn command(&self, parts: &[&str]) -> RedisResult<Value> {
        self.query(parts)
    }

    /// Like [`Server::command`], with the reply as the type that is asked for.
    ///
    /// # Errors
    ///
    /// As [`Server::command`], and if the reply is of another type.
    pub fn query<T: FromRedisValue>(&self, parts: &[&str]) -> RedisResult<T> {
        let mut connection = Client::open(self.unix_url())?.get_connection()?;
        connection.set_read_timeout(Some(BOUND))?;
        let mut command = redis::Cmd::new();
        for part in parts {
            command.arg(*part);
        }
        command.query(&mut connection)
    }

    /// Sends a command that must succeed.
    pub(crate) fn tell(&self, parts: &[&str]) -> io::Result<()> {
        self.command(parts).map(drop).map_err(io::Error::other)
    }

    /// Asks the server to end, as a system that shuts down does, and returns when it is gone.
    ///
    /// # Errors
    ///
    /// If it does not end in 20 seconds: it is then killed.
    pub fn stop(&mut self) -> io::Result<()> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        process.signal("TERM")?;
        until("the server to end", || process.ended()).map(drop)
    }

    /// Kills the server, as a crash would, and returns when it is gone.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn kill(&mut self) -> io::Result<()> {
        self.process.take().map_or(Ok(()), |mut process| process.kill())
    }

    /// Starts the server anew, at the same address and on the same files, after killing it if it runs. It has
    /// the data again that it had been told to keep on disk.
    ///
    /// # Errors
    ///
    /// As [`Builder::start`], and `AddrInUse` if another has taken the port.
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill()?;
        self.launch()
    }

    /// Makes the server stand still: it accepts connections and answers nothing.
    ///
    /// # Errors
    ///
    /// If the server does not run.
    pub fn pause(&self) -> io::Result<()> {
        self.signal("STOP")
    }

    /// Ends [`Server::pause`].
    ///
    /// # Errors
    ///
    /// If the server does not run.
    pub fn resume(&self) -> io::Result<()> {
        self.signal("CONT")
    }

    fn signal(&self, name: &str) -> io::Result<()> {
        let process = self.process.as_ref();
        process.ok_or_else(|| io::Error::other("the server does not run"))?.signal(name)
    }

    /// Starts the process and returns when it answers.
    fn launch(&mut self) -> io::Result<()> {
        let folder = self.folder.path();
        let log = self.log.create()?;
        let mut process = Process::start(&self.program, &self.args()?, folder, &log)?;
        let answers = || {
            if let Some(status) = process.ended()? {
                return Err(self.log.explain(&self.program, status.code()));
            }
            self.answers()
        };
        let started = until("the server to answer", answers);
        started.map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => io::Error::other(format!("{error}:\n{}", self.log())),
            _ => error,
        })?;
        self.process = Some(process);
        Ok(())
    }

    /// Whether it answers by now. The Unix socket is nobody else's, unlike the port.
    fn answers(&self) -> io::Result<Option<()>> {
        match self.command(&["PING"]) {
            Ok(_) => Ok(Some(())),
            Err(error) if error.is_io_error() => Ok(None),
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::BusyLoading) => {
                Ok(None)
            }
            Err(error) => Err(io::Error::other(error)),
        }
    }

    fn args(&self) -> io::Result<Vec<String>> {
        let (port, bus) = (self.port.number().to_string(), self.bus().to_string());
        let folder = self.folder().display().to_string();
        let socket = self.socket().display().to_string();
        let builder = &self.builder;
        let mut args = vec!["--dir", &folder, "--bind", "127.0.0.1", "--unixsocket", &socket];
        args.extend([
            "--daemonize",
            "no",
            "--protected-mode",
            "no",
            "--save",
            "",
            "--appendonly",
            "no",
        ]);
        // A replica is served at once: it does not wait for others to come.
        args.extend(["--repl-diskless-sync-delay", "0"]);
        match &builder.certificates {
            None => args.extend(["--port", &port]),
            Some(certificates) => {
                args.extend(["--port", "0", "--tls-port", &port]);
                args.extend(certificates.write(self.folder())?);
            }
        }
        if let Some(password) = &builder.password {
            args.extend(["--requirepass", password]);
        }
        if builder.is_cluster {
            args.extend(["--cluster-enabled", "yes", "--cluster-port", &bus]);
            args.extend(["--cluster-announce-ip", "127.0.0.1"]);
        }
        Ok(args.into_iter().map(String::from).chain(builder.args.iter().cloned()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_an_error_that_says_what_to_do() {
        let error = Server::start_program("no-such-redis-server", Builder::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let message = error.to_string();
        assert!(message.contains("apt-get install redis-server"), "{message}");
        assert!(message.contains("IDEM_REDIS_SERVER"), "{message}");
    }
}
