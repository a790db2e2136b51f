//! A network that fails as a test wants it to.

mod connection;
mod counts;
mod door;
mod mode;
mod pump;

use std::{
    io,
    net::{SocketAddr, TcpStream},
    sync::{Arc, Weak},
    thread,
};

use idem_core::locks::Mutex;

use self::{
    connection::Connection,
    counts::Counters,
    door::{Accept, Door},
};
pub use self::{
    counts::Counts,
    mode::{Mode, Moment},
};
use super::{
    Server,
    ports::{self, Port},
};

/// Stands between clients and a [`Server`], and does to their messages what its [`Mode`] says.
///
/// A message is what one read brings: a command or a pipeline, unless it is long. What clients send first on
/// a connection to introduce themselves is a message too.
///
/// Dropping it cuts all connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    url: String,
    line: Arc<Line>,
    door: Mutex<Option<Door>>,
    /// Also while the door is closed.
    _port: Port,
}

/// What all connections share.
#[derive(Debug)]
struct Line {
    server: SocketAddr,
    mode: Mutex<Mode>,
    counters: Counters,
    connections: Mutex<Vec<Weak<Connection>>>,
}

impl Proxy {
    /// A proxy that passes everything on to the server's loopback address, also after a restart of the server.
    ///
    /// # Errors
    ///
    /// If there is no free port.
    pub fn before(server: &Server) -> io::Result<Self> {
        let (listener, port) = ports::listen()?;
        let address = listener.local_addr()?;
        let line = Arc::new(Line {
            server: server.address(),
            mode: Mutex::new(Mode::Pass),
            counters: Counters::default(),
            connections: Mutex::default(),
        });
        let door = Mutex::new(Some(Door::open(listener, line.clone())?));
        Ok(Self { address, url: server.url_at(address.port()), line, door, _port: port })
    }

    /// The URL of the server by way of the proxy.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// The address of the proxy.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on, on connections old and new. Messages that already wait for their time keep it.
    pub fn set(&self, mode: Mode) {
        *self.line.mode.lock() = mode;
    }

    /// The mode: [`Mode::CutAfterRequest`] and [`Mode::CutAt`] change by themselves.
    pub fn mode(&self) -> Mode {
        *self.line.mode.lock()
    }

    /// What has happened since the start.
    pub fn counts(&self) -> Counts {
        self.line.counters.read()
    }

    /// Cuts the connections of all clients. What they have sent still reaches the server.
    pub fn disconnect(&self) {
        self.line.each(Connection::cut_client);
    }

    /// Refuses connections from now on. Those that exist stay.
    pub fn close(&self) {
        drop(self.door.lock().take());
    }

    /// Accepts connections again, at the same address.
    ///
    /// # Errors
    ///
    /// If another program has taken the port.
    pub fn open(&self) -> io::Result<()> {
        let mut door = self.door.lock();
        if door.is_none() {
            let listener = std::net::TcpListener::bind(self.address)?;
            *door = Some(Door::open(listener, self.line.clone())?);
        }
        Ok(())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.close();
        self.line.each(Connection::cut);
    }
}

impl Line {
    fn each(&self, act: impl Fn(&Connection)) {
        let mut connections = self.connections.lock();
        connections.retain(|connection| connection.strong_count() > 0);
        connections.iter().filter_map(Weak::upgrade).for_each(|connection| act(&connection));
    }

    fn connect(self: &Arc<Self>, client: TcpStream) -> io::Result<()> {
        let server = TcpStream::connect(self.server)?;
        let connection = Arc::new(Connection::new(client, server)?);
        self.connections.lock().push(Arc::downgrade(&connection));
        for run in [Connection::requests, Connection::replies] {
            let (line, connection) = (self.clone(), connection.clone());
            thread::spawn(move || run(&connection, &line));
        }
        Ok(())
    }
}

impl Accept for Arc<Line> {
    fn accept(&self, client: TcpStream) {
        self.counters.connection();
        // A server that is down: the client is dropped, and finds its connection closed.
        let _ = self.connect(client);
    }
}
