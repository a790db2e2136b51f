//! The queue of commits under a scheduler that tries interleavings at random. No wait that has begun is cut by time
//! here: who is not woken waits for ever, and that is a failure. `IDEM_ROUNDS` says how many interleavings; a failure prints the
//! schedule that [`shuttle::replay`] takes.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]
// The library's own source, with the scheduler's locks in the place of its own.
#![allow(dead_code, missing_docs, unreachable_pub)]

#[path = "../src/queue.rs"]
mod queue;

/// The interface of `parking_lot` over the scheduler's locks.
mod sync {
    use std::{
        ops::{Deref, DerefMut},
        time::Instant,
    };

    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    /// There but while it waits.
    pub(crate) struct MutexGuard<'m, T>(Option<shuttle::sync::MutexGuard<'m, T>>);

    pub(crate) struct Condvar(shuttle::sync::Condvar);

    pub(crate) struct Waited(bool);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().unwrap()))
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.0.as_ref().unwrap()
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().unwrap()
        }
    }

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self(shuttle::sync::Condvar::new())
        }

        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            guard.0 = guard.0.take().map(|held| self.0.wait(held).unwrap());
        }

        pub(crate) fn wait_until<T>(
            &self,
            guard: &mut MutexGuard<'_, T>,
            deadline: Instant,
        ) -> Waited {
            if deadline <= Instant::now() {
                return Waited(true);
            }
            self.wait(guard);
            Waited(false)
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    impl Waited {
        pub(crate) fn timed_out(&self) -> bool {
            self.0
        }
    }
}

use std::{sync::Arc, time::Duration};

use idem_conformance::chance::rounds;

use queue::{Lead, Queue};
use shuttle::{
    sync::{Condvar, Mutex},
    thread::{self, JoinHandle},
};

/// Tries interleavings of what the threads of `test` do.
fn explore(test: impl Fn() + Send + Sync + 'static) {
    shuttle::check_random(test, rounds(500));
}

/// Says when the queue has let it go.
struct Writer(Arc<Mutex<u32>>);

impl Drop for Writer {
    fn drop(&mut self) {
        *self.0.lock().unwrap() += 1;
    }
}

/// A queue of numbers, what was done of them, and how often its writer was let go.
#[derive(Clone)]
struct Bench {
    queue: Arc<Queue<Writer, u32>>,
    done: Arc<Mutex<Vec<u32>>>,
    more: Arc<Condvar>,
    let_go: Arc<Mutex<u32>>,
}

impl Bench {
    fn new(dedicated: bool) -> Self {
        let let_go = Arc::<Mutex<u32>>::default();
        let queue = Arc::new(Queue::new(Writer(Arc::clone(&let_go)), dedicated));
        Self { queue, done: Arc::default(), more: Arc::default(), let_go }
    }

    /// Does at most so many jobs, and hands on.
    fn work(&self, mut lead: Lead<'_, Writer, u32>, most: usize) {
        for _ in 0..most {
            let Some((_, job)) = lead.next() else { break };
            self.does(job);
        }
    }

    fn does(&self, job: u32) {
        self.done.lock().unwrap().push(job);
        self.more.notify_all();
    }

    /// Waits until so many jobs are done, though nobody closes.
    fn until_done(&self, count: usize) {
        let mut done = self.done.lock().unwrap();
        while done.len() < count {
            done = self.more.wait(done).unwrap();
        }
    }

    /// A caller with a job, who leads if the writer is free.
    fn caller(&self, job: u32, most: usize) -> JoinHandle<bool> {
        let bench = self.clone();
        thread::spawn(move || match bench.queue.submit(job) {
            Err(_) => false,
            Ok(lead) => {
                if let Some(lead) = lead {
                    bench.work(lead, most);
                }
                true
            }
        })
    }

    /// The thread that takes over what the callers leave.
    fn writer_thread(&self, most: usize) -> JoinHandle<()> {
        let bench = self.clone();
        thread::spawn(move || {
            while let Some(lead) = bench.queue.lead() {
                bench.work(lead, most);
            }
        })
    }

    /// The thread that takes out what has waited too long: here that is whatever waits.
    fn watching_thread(&self) -> JoinHandle<Vec<u32>> {
        let bench = self.clone();
        thread::spawn(move || std::iter::from_fn(|| bench.queue.overdue(Duration::ZERO)).collect())
    }

    /// What was done, in order of the numbers.
    fn done(&self) -> Vec<u32> {
        let mut done = self.done.lock().unwrap().clone();
        done.sort_unstable();
        done
    }
}

#[test]
fn every_job_is_done_once_whoever_leads() {
    explore(|| {
        let bench = Bench::new(false);
        let thread = bench.writer_thread(1);
        let callers = [1, 2, 3].map(|job| bench.caller(job, 1));
        assert!(callers.into_iter().all(|caller| caller.join().unwrap()));
        bench.until_done(3);
        assert_eq!(bench.queue.close(None), Ok(()));
        thread.join().unwrap();
        assert_eq!((bench.done(), *bench.let_go.lock().unwrap()), (vec![1, 2, 3], 1));
    });
}

#[test]
fn what_was_taken_on_before_the_closing_is_done_and_nothing_after() {
    explore(|| {
        let bench = Bench::new(false);
        let thread = bench.writer_thread(2);
        let callers = [1, 2].map(|job| bench.caller(job, 2));
        let other = bench.clone();
        let closer = thread::spawn(move || other.queue.close(None));
        assert_eq!(bench.queue.close(None), Ok(()));
        assert_eq!(*bench.let_go.lock().unwrap(), 1, "who closes second waits as well");
        assert_eq!(closer.join().unwrap(), Ok(()));
        thread.join().unwrap();
        let taken = callers.into_iter().map(|caller| caller.join().unwrap());
        let taken: Vec<_> = [1, 2].into_iter().zip(taken).filter(|(_, taken)| *taken).collect();
        let taken: Vec<_> = taken.into_iter().map(|(job, _)| job).collect();
        assert_eq!(bench.done(), taken);
        assert!(bench.queue.submit(3).is_err());
    });
}

#[test]
fn a_job_is_done_or_overdue_and_never_both() {
    explore(|| {
        let bench = Bench::new(true);
        let (thread, watching) = (bench.writer_thread(1), bench.watching_thread());
        let callers = [1, 2].map(|job| bench.caller(job, 1));
        assert!(callers.into_iter().all(|caller| caller.join().unwrap()));
        assert_eq!(bench.queue.close(None), Ok(()));
        thread.join().unwrap();
        let mut all = [bench.done(), watching.join().unwrap()].concat();
        all.sort_unstable();
        assert_eq!(all, [1, 2]);
    });
}

#[test]
fn what_waits_too_long_is_taken_out_though_nobody_writes() {
    explore(|| {
        let bench = Bench::new(true);
        let watching = bench.clone();
        let overdue = move || watching.queue.overdue(Duration::ZERO);
        let watching = thread::spawn(move || [overdue(), overdue()]);
        assert!(bench.caller(1, 1).join().unwrap());
        assert!(bench.caller(2, 1).join().unwrap());
        assert_eq!(watching.join().unwrap(), [Some(1), Some(2)]);
    });
}

/// A leader that finds the file busy, and is back with its job: the thread is to do it. Whether it was taken on.
fn puts_back(bench: &Bench) -> JoinHandle<bool> {
    let bench = bench.clone();
    thread::spawn(move || match bench.queue.submit(1) {
        Err(_) => false,
        Ok(None) => true,
        Ok(Some(mut lead)) => {
            let (since, job) = lead.next().unwrap();
            lead.put_back(since, job);
            true
        }
    })
}

#[test]
fn what_a_leader_puts_back_is_taken_up_again() {
    explore(|| {
        let bench = Bench::new(false);
        let thread = bench.writer_thread(4);
        let (leader, caller) = (puts_back(&bench), bench.caller(2, 4));
        bench.until_done(2);
        assert!(leader.join().unwrap() && caller.join().unwrap());
        assert_eq!(bench.queue.close(None), Ok(()));
        thread.join().unwrap();
        assert_eq!((bench.done(), *bench.let_go.lock().unwrap()), (vec![1, 2], 1));
    });
}

#[test]
fn what_a_leader_puts_back_at_the_closing_is_taken_up_as_well() {
    explore(|| {
        let bench = Bench::new(false);
        let thread = bench.writer_thread(4);
        let leader = puts_back(&bench);
        assert_eq!(bench.queue.close(None), Ok(()));
        thread.join().unwrap();
        let expected = if leader.join().unwrap() { vec![1] } else { vec![] };
        assert_eq!(bench.done(), expected);
    });
}

#[test]
fn the_threads_end_though_the_closing_gave_up_waiting() {
    explore(|| {
        let bench = Bench::new(false);
        let (thread, watching) = (bench.writer_thread(1), bench.watching_thread());
        let caller = bench.caller(1, 1);
        let _ = bench.queue.close(Some(Duration::ZERO));
        thread.join().unwrap();
        let overdue = watching.join().unwrap();
        let expected = if caller.join().unwrap() { vec![1] } else { vec![] };
        assert_eq!([bench.done(), overdue].concat(), expected);
        assert!(bench.queue.is_closed());
    });
}

#[test]
fn who_leads_with_a_job_of_his_own_loses_nobody_elses() {
    explore(|| {
        let bench = Bench::new(false);
        let thread = bench.writer_thread(1);
        let leader = bench.clone();
        let leader = thread::spawn(move || match leader.queue.lead_with(1) {
            Ok(lead) => leader.work(lead, 1),
            Err(job) => leader.does(job),
        });
        let caller = bench.caller(2, 1);
        leader.join().unwrap();
        assert!(caller.join().unwrap());
        assert_eq!(bench.queue.close(None), Ok(()));
        thread.join().unwrap();
        assert_eq!(bench.done(), [1, 2]);
    });
}
