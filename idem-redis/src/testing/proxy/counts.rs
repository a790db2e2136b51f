//! What has happened, so that a test can assert that its fault was hit.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a [`Proxy`](super::Proxy) has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that were accepted.
    pub connections: u64,
    /// Requests that were passed on, those of cut connections too.
    pub requests: u64,
    /// Replies that were passed on.
    pub replies: u64,
    /// Messages that were delayed or held.
    pub delayed: u64,
    /// Replies that were swallowed.
    pub swallowed: u64,
    /// Connections that were cut at a request.
    pub cut: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    connections: AtomicU64,
    requests: AtomicU64,
    replies: AtomicU64,
    delayed: AtomicU64,
    swallowed: AtomicU64,
    cut: AtomicU64,
}

impl Counters {
    pub(super) fn connection(&self) {
        one_more(&self.connections);
    }

    pub(super) fn request(&self) {
        one_more(&self.requests);
    }

    pub(super) fn reply(&self) {
        one_more(&self.replies);
    }

    pub(super) fn delayed(&self) {
        one_more(&self.delayed);
    }

    pub(super) fn swallowed(&self) {
        one_more(&self.swallowed);
    }

    pub(super) fn cut(&self) {
        one_more(&self.cut);
    }

    pub(super) fn read(&self) -> Counts {
        let of = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        Counts {
            connections: of(&self.connections),
            requests: of(&self.requests),
            replies: of(&self.replies),
            delayed: of(&self.delayed),
            swallowed: of(&self.swallowed),
            cut: of(&self.cut),
        }
    }
}

fn one_more(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::SeqCst);
}
