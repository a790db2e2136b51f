//! What all handles of a queue share.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use idem_core::locks::Mutex;

use super::receive::{Search, Waiting};
use crate::link::Link;

pub(super) struct Inner {
    /// For commands that do not wait on the server.
    pub(super) commands: Link,
    pub(super) waiting: Waiting,
    pub(super) stream: String,
    pub(super) group: String,
    pub(super) consumer: String,
    pub(super) dead_letters: String,
    pub(super) event_id_field: Option<String>,
    pub(super) visibility: Duration,
    pub(super) block: Duration,
    pub(super) horizon: Option<Duration>,
    pub(super) search: Mutex<Search>,
    pub(super) nonces: AtomicU64,
}

impl Inner {
    /// The number of a question, which its answer bears.
    pub(super) fn next_nonce(&self) -> u64 {
        self.nonces.fetch_add(1, Ordering::Relaxed)
    }
}
