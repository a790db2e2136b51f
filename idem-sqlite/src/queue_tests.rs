//! The queue on threads of the system. Apart from it, so that the tests of interleavings can take it as it is.

use std::{sync::Arc, thread, time::Duration};

use crate::queue::{Queue, Waited};

#[test]
fn whoever_finds_the_writer_free_leads_and_the_others_queue() {
    let queue = Queue::new("writer", false);
    let mut lead = queue.submit(1).unwrap().expect("the writer is free");
    assert!(queue.submit(2).unwrap().is_none());
    assert!(queue.submit(3).unwrap().is_none());
    let jobs: Vec<_> = std::iter::from_fn(|| lead.next()).map(|(_, job)| job).collect();
    assert_eq!(jobs, [1, 2, 3]);
    drop(lead);
    assert!(queue.submit(4).unwrap().is_some());
}

#[test]
fn what_a_leader_leaves_goes_to_the_thread_in_order() {
    let queue = Arc::new(Queue::new("writer", false));
    let mut lead = queue.submit(1).unwrap().unwrap();
    assert!(queue.submit(2).unwrap().is_none());
    let (since, job) = lead.next().unwrap();
    lead.put_back(since, job);
    let thread = {
        let queue = Arc::clone(&queue);
        thread::spawn(move || {
            let mut lead = queue.lead().unwrap();
            [lead.next().unwrap().1, lead.next().unwrap().1]
        })
    };
    drop(lead);
    assert_eq!(thread.join().unwrap(), [1, 2]);
}

#[test]
fn closing_is_not_kept_waiting_by_a_job_that_is_taken_out_as_overdue() {
    let queue = Arc::new(Queue::new("writer", true));
    assert!(queue.submit(1).unwrap().is_none());
    let closing = {
        let queue = Arc::clone(&queue);
        thread::spawn(move || queue.close(None))
    };
    while !queue.is_closed() {
        thread::yield_now();
    }
    assert_eq!(queue.overdue(Duration::ZERO), Some(1));
    assert_eq!(closing.join().unwrap(), Ok(()));
    assert!(queue.lead().is_none());
    assert_eq!(queue.overdue(Duration::ZERO), None);
    assert!(queue.submit(2).is_err());
}

#[test]
fn closing_waits_for_the_leader_and_for_what_is_queued() {
    let queue = Arc::new(Queue::new("writer", false));
    let mut lead = queue.submit(1).unwrap().unwrap();
    assert!(queue.submit(2).unwrap().is_none());
    let closing = {
        let queue = Arc::clone(&queue);
        thread::spawn(move || queue.close(None))
    };
    while !queue.is_closed() {
        thread::yield_now();
    }
    assert!(!closing.is_finished());
    lead.next().unwrap();
    drop(lead);
    let mut lead = queue.lead().expect("the second job is the thread's");
    assert_eq!(lead.next().unwrap().1, 2);
    assert!(!closing.is_finished());
    drop(lead);
    assert_eq!(closing.join().unwrap(), Ok(()));
    assert_eq!(queue.close(None), Ok(()));
}

#[test]
fn what_a_leader_puts_back_after_the_closing_is_still_done() {
    let queue = Arc::new(Queue::new("writer", false));
    let mut lead = queue.submit(1).unwrap().unwrap();
    let (since, job) = lead.next().unwrap();
    let working = {
        let queue = Arc::clone(&queue);
        thread::spawn(move || queue.lead().map(|mut lead| lead.next().map(|(_, job)| job)))
    };
    let closing = {
        let queue = Arc::clone(&queue);
        thread::spawn(move || queue.close(None))
    };
    while !queue.is_closed() {
        thread::yield_now();
    }
    lead.put_back(since, job);
    drop(lead);
    assert_eq!(working.join().unwrap(), Some(Some(1)));
    assert_eq!(closing.join().unwrap(), Ok(()));
}

#[test]
fn whoever_closes_second_waits_until_the_writer_is_let_go() {
    /// A writer that takes as long to let go as the test says.
    struct Slow(std::sync::mpsc::Receiver<()>);
    impl Drop for Slow {
        fn drop(&mut self) {
            self.0.recv().expect("the test says when");
        }
    }
    let (let_go, waits) = std::sync::mpsc::channel();
    let queue: Arc<Queue<_, ()>> = Arc::new(Queue::new(Slow(waits), false));
    let closing = {
        let queue = Arc::clone(&queue);
        thread::spawn(move || queue.close(None))
    };
    while !queue.is_closed() {
        thread::yield_now();
    }
    assert_eq!(queue.close(Some(Duration::from_millis(50))), Err(Waited));
    let_go.send(()).unwrap();
    assert_eq!(closing.join().unwrap(), Ok(()));
    assert_eq!(queue.close(None), Ok(()));
}

#[test]
fn closing_gives_up_when_told_to_and_stays_closed() {
    let queue = Queue::new("writer", false);
    let lead = queue.submit(1).unwrap().unwrap();
    assert_eq!(queue.close(Some(Duration::from_millis(1))), Err(Waited));
    assert!(queue.is_closed() && queue.submit(2).is_err());
    let mut lead = lead;
    lead.next().unwrap();
    drop(lead);
    assert_eq!(queue.close(Some(Duration::from_millis(1))), Ok(()));
}

#[test]
fn only_what_has_waited_long_enough_is_overdue_also_after_it_was_put_back() {
    let queue = Arc::new(Queue::new("writer", true));
    let patience = Duration::from_millis(30);
    let watching = {
        let queue = Arc::clone(&queue);
        thread::spawn(move || queue.overdue(patience))
    };
    assert!(queue.submit(1).unwrap().is_none());
    let mut lead = queue.lead().unwrap();
    let (since, job) = lead.next().unwrap();
    lead.put_back(since, job);
    assert_eq!(watching.join().unwrap(), Some(1));
    assert!(since.elapsed() >= patience);
}
