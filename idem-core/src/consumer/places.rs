//! How many handlers are at it at a time.

use std::sync::atomic::{AtomicUsize, Ordering};

use event_listener::Event;

/// So many places; who finds none waits.
#[derive(Debug)]
pub(super) struct Places {
    free: AtomicUsize,
    freed: Event,
}

impl Places {
    pub(super) fn new(places: usize) -> Self {
        Self { free: AtomicUsize::new(places), freed: Event::new() }
    }

    /// A place, as soon as one is free.
    pub(super) async fn take(&self) -> Place<'_> {
        loop {
            // Listens before it looks, so that what is freed in between is not missed.
            let freed = self.freed.listen();
            let less = |free: usize| free.checked_sub(1);
            if self.free.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
                return Place(self);
            }
            freed.await;
        }
    }
}

/// One of the places; dropping it frees it.
#[derive(Debug)]
pub(super) struct Place<'p>(&'p Places);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.free.fetch_add(1, Ordering::SeqCst);
        self.0.freed.notify(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        pin::pin,
        task::{Context, Waker},
    };

    #[tokio::test]
    async fn who_finds_none_waits_until_one_is_free() {
        let places = Places::new(2);
        let (first, second) = (places.take().await, places.take().await);
        let (mut third, mut fourth) = (pin!(places.take()), pin!(places.take()));
        let mut context = Context::from_waker(Waker::noop());
        assert!(third.as_mut().poll(&mut context).is_pending());
        assert!(fourth.as_mut().poll(&mut context).is_pending());
        drop(first);
        let third = third.await;
        assert!(fourth.as_mut().poll(&mut context).is_pending());
        drop((second, third));
        drop(fourth.await);
        assert_eq!(places.free.load(Ordering::SeqCst), 2);
    }
}
