//! A real fork, for tests of what a store does in a process that did not open it (feature `fork`).
//!
//! A test that forks has a process of its own: give it `harness = false`, or fork before any other thread is started.

use std::{
    io,
    os::unix::process::ExitStatusExt,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    process::{self, ExitStatus},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use fork::{Fork, ProcessId, Signal};
use idem_core::{
    Certainty, EffectError, Error, ErrorKind, Filter, Idem, Key, Lease, LeaseError, OnFailure,
    Purger, Request, Settlement, Store,
    consumer::{Handler, Options, Recorder, drain},
    testing::MemoryQueue,
};
use tokio::runtime::Builder;

/// How long a child may take: one that hangs is a failure.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often a child is looked at.
const LOOK: Duration = Duration::from_millis(2);

/// A child process that runs a part of a test. It ends with that part, and is killed after a minute.
#[derive(Debug)]
#[must_use = "a child that nobody waits for may fail unseen"]
pub struct Forked {
    id: i32,
    name: &'static str,
    deadline: Instant,
}

impl Forked {
    /// Forks, and runs `part` in the child alone, which ends with it.
    ///
    /// # Panics
    /// If the system forks no process.
    pub fn start(name: &'static str, part: impl FnOnce()) -> Self {
        match fork::fork().expect("the system forks a process") {
            Fork::Parent(id) => Self { id, name, deadline: Instant::now() + PATIENCE },
            Fork::Child => {
                let code = i32::from(catch_unwind(AssertUnwindSafe(part)).is_err());
                process::exit(code);
            }
        }
    }

    /// Waits for the child's end.
    ///
    /// # Panics
    /// If its part of the test failed, or hangs.
    pub fn wait(self) {
        let status = loop {
            if let Some(status) =
                fork::waitpid_nohang(self.id).expect("the child is this process's")
            {
                break ExitStatus::from_raw(status);
            }
            if Instant::now() >= self.deadline {
                self.kill().expect("the child can be killed");
                panic!("the child hangs: {}", self.name);
            }
            thread::sleep(LOOK);
        };
        assert!(status.success(), "the child failed: {}: {status}", self.name);
    }

    fn kill(&self) -> io::Result<()> {
        let process = ProcessId::new(self.id).expect("a child has an id");
        fork::signal_process(process, Signal::KILL)?;
        fork::waitpid(self.id).map(drop)
    }
}

/// Forks, runs `part` in the child, and waits for its end.
///
/// # Panics
/// As [`Forked::start`] and [`Forked::wait`].
pub fn in_child(name: &'static str, part: impl FnOnce()) {
    Forked::start(name, part).wait();
}

/// Runs tests one after the other, in a program that has no harness.
pub fn run(tests: &[(&str, fn())]) {
    for (name, test) in tests {
        test();
        println!("test {name} ... ok");
    }
}

/// How often a test forks while other threads are at work.
const FORKS: usize = 20;

/// Runs `fork` again and again, on this thread, while each of `writers` is called in turns on a thread of its own.
///
/// # Panics
/// If one of them does.
pub fn amid<W: FnMut(usize) + Send>(writers: impl Iterator<Item = W>, mut fork: impl FnMut(usize)) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for mut writer in writers {
            let is_over = &is_over;
            scope.spawn(move || {
                for round in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    writer(round);
                }
            });
        }
        // Also if it panics: the threads are waited for.
        let forked = catch_unwind(AssertUnwindSafe(|| (0..FORKS).for_each(&mut fork)));
        is_over.store(true, Ordering::Relaxed);
        forked.unwrap_or_else(|panic| resume_unwind(panic));
    });
}

/// Waits for a future on a runtime of this thread's own.
///
/// # Panics
/// If the system has none.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

/// What a child inherits of a store that its parent has open.
#[derive(Debug)]
pub struct Inherited<S: Store + 'static> {
    home: u32,
    idem: Idem<S>,
    leases: Vec<Lease<S, u64>>,
    purger: Purger,
}

/// How many leases a child asks for something, each for something else.
const LEASES: usize = 8;

const MINUTE: Duration = Duration::from_secs(60);

fn request(name: &str) -> Request {
    Request::new(Key::new("forked", "inherited", name).expect("a good key"))
}

impl<S: Store + 'static> Inherited<S> {
    /// Claims keys under `name`, and begins to purge, in the process that has the store open.
    ///
    /// # Panics
    /// If a claim fails.
    pub async fn of(idem: &Idem<S>, name: &str) -> Self {
        let mut leases = Vec::new();
        for number in 0..LEASES {
            let claim = idem.claim(&request(&format!("{name}-{number}")), MINUTE).await;
            leases.push(claim.expect("a claim").lease().expect("a key of its own"));
        }
        let purger = idem.spawn_purge(MINUTE, 100).expect("a purge");
        Self { home: process::id(), idem: idem.clone(), leases, purger }
    }

    /// In the child: each call fails as that of another process, or does nothing, and none hangs.
    ///
    /// # Panics
    /// If a call does something else.
    pub fn is_refused(self) {
        block_on(async move {
            self.calls_are_refused().await;
            self.consuming_is_refused().await;
            self.leases_and_drops_do_nothing().await;
        });
    }

    fn refused<T>(&self, call: &str, result: Result<T, Error>) {
        refused(self.home, call, result);
    }

    async fn calls_are_refused(&self) {
        let (idem, request) = (&self.idem, &request("new"));
        let (key, space) = (request.key(), request.key().space());
        let effect =
            |_: &mut S::Transaction| -> Result<u64, EffectError> { panic!("it must not run") };
        self.refused("execute", idem.execute(request, effect).await);
        let waiting = &request.clone().wait_for(MINUTE);
        self.refused("a patient execute", idem.execute(waiting, effect).await);
        self.refused("execute_bytes", idem.execute_bytes(request, |_| Ok(Bytes::new())).await);
        self.refused("claim", idem.claim::<u64>(request, MINUTE).await);
        self.refused("a patient claim", idem.claim::<u64>(waiting, MINUTE).await);
        let on_failure = |_: &io::Error| OnFailure::<u64>::End;
        let work = |_| async { panic!("it must not run") };
        self.refused("run_leased", idem.run_leased(request, MINUTE, on_failure, work).await);
        self.refused("receipt", idem.receipt(key).await);
        self.refused("forget", idem.forget(key).await);
        self.refused("settle", idem.settle(key, Settlement::NothingHappened).await);
        self.refused("end_held", idem.end_held(key).await);
        self.refused("list", idem.list(None, 10).await);
        self.refused("purge", idem.purge(10).await);
        self.refused("spawn_purge", idem.spawn_purge(MINUTE, 10));
        self.refused("value", idem.value(&space, b"name").await);
        self.refused("a mark", idem.mark_processed("billing", "event").await);
        self.refused("a look for a mark", idem.is_processed("billing", "event").await);
        // The store itself, which knows nothing of its front.
        let store = idem.store();
        self.refused("the store's mark", store.mark_processed("billing", "event").await);
        self.refused("the store's look", store.is_processed("billing", "event").await);
        self.refused("the store's list", store.list(&Filter::all(), None, 10).await);
        self.refused("the store's purge", store.purge(10).await);
        self.refused("the store's value", store.value(&space, b"name").await);
        self.refused("the store's close", store.close().await);
        self.refused("close", idem.close().await);
        self.refused("closing twice", idem.close().await);
        assert_eq!(idem.guarantees(), idem.clone().guarantees());
        drop(idem.clone());
    }

    async fn consuming_is_refused(&self) {
        let queue = MemoryQueue::new();
        queue.send("event", 7_u64);
        let effect = |_: &mut S::Transaction, _: &u64| panic!("it must not run");
        let atomic = Handler::atomic(&self.idem, "billing", effect).expect("a handler");
        self.refused("an atomic handler", atomic.handle("event", 7).await);
        let work = |_: u64| async { Err(io::Error::other("it must not run")) };
        let outside = Handler::outside(&self.idem, "billing", work).expect("a handler");
        self.refused("a handler outside", outside.handle("event", 7).await);
        self.refused("drain", drain(&queue, &atomic, &Options::new()).await);
        assert_eq!((queue.ready(), queue.dead_letters().len()), (1, 0), "it is given back");
    }

    async fn leases_and_drops_do_nothing(mut self) {
        let mut lease = || self.leases.pop().expect("one for each");
        let mut first = lease();
        refused(self.home, "renew", first.renew(MINUTE).await);
        let every = Duration::from_secs(1);
        refused(self.home, "keep_alive", first.keep_alive(every, MINUTE, async {}).await);
        drop(first);
        let failed = |failed: LeaseError<S, u64>| failed.into_parts().0;
        refused(self.home, "complete", lease().complete(7).await.map_err(failed));
        let completed = lease().complete_with(|_| Ok(7)).await;
        refused(self.home, "complete_with", completed.map_err(failed));
        refused(self.home, "release", lease().release().await.map_err(failed));
        refused(self.home, "end", lease().end().await.map_err(failed));
        lease().abandon();
        drop(lease());
        let last: Error = lease().complete(7).await.expect_err("as the others").into();
        refused(self.home, "complete, and drop the lease", Err::<(), _>(last));
        let told = self.purger.last_error().expect("it does not purge here");
        assert!(matches!(told.kind(), ErrorKind::OtherProcess { .. }), "{told:?}");
        assert_eq!((self.purger.removed(), self.purger.failures()), (0, 0));
        drop(self);
    }

    /// In the parent, after the child: its leases are held as before, and it goes on.
    ///
    /// # Panics
    /// If the child did something to them.
    pub async fn goes_on(self) {
        for (number, mut lease) in self.leases.into_iter().enumerate() {
            lease.renew(MINUTE).await.expect("the lease is held");
            let completed = lease.complete(number as u64).await;
            assert_eq!(completed.expect("the lease is held"), number as u64);
        }
        assert!(self.purger.last_error().is_none());
    }
}

fn refused<T>(home: u32, call: &str, result: Result<T, Error>) {
    let Err(error) = result else { panic!("{call} was not refused in another process") };
    let is_refusal =
        matches!(error.kind(), ErrorKind::OtherProcess { opened_in } if *opened_in == home);
    assert!(is_refusal, "{call}: {error:?}");
    assert_eq!(error.certainty(), Certainty::NothingDone, "{call}");
}
