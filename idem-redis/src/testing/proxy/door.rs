//! Where clients come in.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

pub(super) trait Accept: Send + 'static {
    fn accept(&self, client: TcpStream);
}

/// Accepts connections until it is dropped: then the system refuses them.
#[derive(Debug)]
pub(super) struct Door {
    address: SocketAddr,
    closing: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Door {
    pub(super) fn open(listener: TcpListener, inside: impl Accept) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let closing = Arc::new(AtomicBool::new(false));
        let is_closing = closing.clone();
        let thread = thread::Builder::new().name("proxy".to_string()).spawn(move || {
            for client in listener.incoming() {
                if is_closing.load(Ordering::SeqCst) {
                    return;
                }
                // One that fails is gone before it was accepted.
                let _ = client.map(|client| inside.accept(client));
            }
        })?;
        Ok(Self { address, closing, thread: Some(thread) })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::SeqCst);
        // Wakes the thread. If this is refused, the thread had another reason to wake.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            // A panic there was reported there.
            let _ = thread.join();
        }
    }
}
