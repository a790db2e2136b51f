//! One client's connection.

use std::{
    io::{self, Write},
    net::{Shutdown, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use super::{
    Line,
    mode::{Mode, Moment},
    pump::pump,
};

#[derive(Debug)]
pub(super) struct Connection {
    client: TcpStream,
    server: TcpStream,
    /// Set before a request that no reply may follow.
    silent: AtomicBool,
    /// Set before a request whose reply is to be cut in half.
    halved: AtomicBool,
}

impl Connection {
    pub(super) fn new(client: TcpStream, server: TcpStream) -> io::Result<Self> {
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        Ok(Self { client, server, silent: AtomicBool::new(false), halved: AtomicBool::new(false) })
    }

    /// Passes requests on until the client has gone and none is left.
    pub(super) fn requests(&self, line: &Line) {
        let delay = || line.delay(Mode::delay_of_requests);
        pump(&self.client, delay, |message| self.request(line, message));
        // The server has all of it, and ends the connection when it has worked on it.
        let _ = self.server.shutdown(Shutdown::Write);
    }

    /// Passes replies on until the server has gone and none is left.
    pub(super) fn replies(&self, line: &Line) {
        let delay = || line.delay(Mode::delay_of_replies);
        pump(&self.server, delay, |message| self.reply(line, message));
        self.cut_client();
    }

    fn request(&self, line: &Line, message: &[u8]) -> io::Result<()> {
        let moment = line.mode.lock().take_cut(message);
        match moment {
            Some(Moment::BeforeRequest) => {
                self.silent.store(true, Ordering::SeqCst);
                line.counters.cut();
                self.cut_client();
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            Some(Moment::AfterRequest) => self.silent.store(true, Ordering::SeqCst),
            Some(Moment::WithinReply) => self.halved.store(true, Ordering::SeqCst),
            None => {}
        }
        // Before it can be seen, so that a client that has its reply finds it counted.
        line.counters.request();
        (&self.server).write_all(message)?;
        if moment == Some(Moment::AfterRequest) {
            line.counters.cut();
            self.cut_client();
        }
        Ok(())
    }

    fn reply(&self, line: &Line, message: &[u8]) -> io::Result<()> {
        if self.silent.load(Ordering::SeqCst) {
            return Ok(());
        }
        if *line.mode.lock() == Mode::SwallowReplies {
            line.counters.swallowed();
            return Ok(());
        }
        if self.halved.load(Ordering::SeqCst) {
            (&self.client).write_all(&message[..message.len() / 2])?;
            self.silent.store(true, Ordering::SeqCst);
            line.counters.cut();
            self.cut_client();
            return Ok(());
        }
        line.counters.reply();
        (&self.client).write_all(message)
    }

    pub(super) fn cut_client(&self) {
        // It fails if the client has gone already.
        let _ = self.client.shutdown(Shutdown::Both);
    }

    pub(super) fn cut(&self) {
        self.cut_client();
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

impl Line {
    /// How long a message that comes now has to wait.
    fn delay(&self, of: impl Fn(Mode) -> Duration) -> Duration {
        let delay = of(*self.mode.lock());
        if !delay.is_zero() {
            self.counters.delayed();
        }
        delay
    }
}
