//! Tests that hold the disk back: what others see of a batch that is not durable yet, or never will be.

use std::{
    io,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use idem_core::{
    Certainty, EffectError, Error, ErrorKind, Idem, Key, Outcome, Request, Space, Transaction,
};
use tempfile::TempDir;
use tokio::task::yield_now;

use crate::{
    SledBuilder, SledStore, SledTransaction, database::Database, disk::Disk, failure::Trouble,
    opening,
};

const PATIENCE: Duration = Duration::from_secs(20);

/// What becomes of a batch that waits at the gate.
enum Fate {
    Durable,
    Lost,
}

/// Between the store and its disk: each batch says that it has come, and waits for its fate.
struct Gate {
    disk: Box<dyn Disk>,
    comes: Sender<()>,
    fates: Receiver<Fate>,
}

impl Disk for Gate {
    fn make_durable(&mut self, database: &Database) -> Result<(), Trouble> {
        // Once the test has ended all may pass.
        self.comes.send(()).ok();
        match self.fates.recv() {
            Ok(Fate::Lost) => Err(io::Error::from(io::ErrorKind::StorageFull).into()),
            Ok(Fate::Durable) | Err(_) => self.disk.make_durable(database),
        }
    }

    fn sync(&mut self, database: &Database) -> Result<(), Trouble> {
        self.make_durable(database)
    }
}

/// A store whose batches wait at a gate.
struct Gated {
    folder: TempDir,
    idem: Idem<SledStore>,
    come: Receiver<()>,
    fates: Sender<Fate>,
}

impl Gated {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let options = SledBuilder::default();
        let opened = opening::open(&options, folder.path()).unwrap();
        let ((comes, come), (fates, fated)) = (mpsc::channel(), mpsc::channel());
        let gate = |disk| Box::new(Gate { disk, comes, fates: fated }) as Box<dyn Disk>;
        let store = SledStore::start_with(&options, opened, gate).unwrap();
        Self { folder, idem: Idem::new(store), come, fates }
    }

    fn arrival(&self) {
        self.come.recv_timeout(PATIENCE).expect("a batch must come to the gate");
    }

    fn pass(&self, fate: Fate) {
        self.fates.send(fate).unwrap();
    }

    /// A commit that is durable.
    async fn done(&self, name: &str) {
        self.pass(Fate::Durable);
        assert_eq!(self.put(name).await.unwrap(), Outcome::Created(()));
        self.arrival();
    }

    fn put(&self, name: &str) -> impl Future<Output = Result<Outcome<()>, Error>> + use<> {
        let (idem, name) = (self.idem.clone(), name.to_string());
        async move {
            let request = request(&name);
            idem.execute(&request, move |tx| Ok(tx.put(name.as_bytes(), b"v")?)).await
        }
    }

    async fn value(&self, name: &str) -> Result<bool, Error> {
        let space = Space::tenant("north").unwrap();
        Ok(self.idem.value(&space, name.as_bytes()).await?.is_some())
    }
}

fn request(name: &str) -> Request {
    Request::new(Key::new("north", "order", name).unwrap())
}

/// Adds one to the count under `n`.
fn add(tx: &mut SledTransaction) -> Result<u8, EffectError> {
    let count = tx.get(b"n")?.map_or(0, |value| value[0]) + 1;
    tx.put(b"n", &[count])?;
    Ok(count)
}

fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// What a future gives that has nothing to wait for.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match poll(pin!(future)) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("this must not wait"),
    }
}

fn is_unknown<T: std::fmt::Debug>(answer: Result<T, Error>) -> bool {
    let error = answer.expect_err("it is not known to be durable");
    matches!(error.kind(), ErrorKind::Full) && error.certainty() == Certainty::Unknown
}

#[tokio::test]
async fn what_is_not_durable_yet_is_shown_to_nobody_and_the_rest_at_once() {
    let gated = Gated::new();
    gated.done("old").await;
    let mut first = pin!(gated.put("new"));
    assert!(poll(first.as_mut()).is_pending());
    gated.arrival();
    // It is applied, and waits at the gate.
    let mut replay = pin!(gated.put("new"));
    let request = request("new");
    let mut receipt = pin!(gated.idem.receipt(request.key()));
    let mut value = pin!(gated.value("new"));
    let mut list = pin!(gated.idem.list(None, 10));
    assert!(poll(replay.as_mut()).is_pending());
    assert!(poll(receipt.as_mut()).is_pending());
    assert!(poll(value.as_mut()).is_pending());
    assert!(poll(list.as_mut()).is_pending());
    assert_eq!(at_once(gated.put("old")).unwrap(), Outcome::Replayed(()));
    assert!(at_once(gated.value("old")).unwrap());
    assert!(!at_once(gated.value("other")).unwrap());
    gated.pass(Fate::Durable);
    assert_eq!(first.await.unwrap(), Outcome::Created(()));
    assert_eq!(replay.await.unwrap(), Outcome::Replayed(()));
    assert!(receipt.await.unwrap().is_some());
    assert!(value.await.unwrap());
    assert_eq!(list.await.unwrap().records.len(), 2);
}

#[tokio::test]
async fn a_removal_is_not_shown_either_before_it_is_durable() {
    let gated = Gated::new();
    gated.done("a").await;
    let request = request("a");
    let mut forget = pin!(gated.idem.forget(request.key()));
    assert!(poll(forget.as_mut()).is_pending());
    gated.arrival();
    let mut receipt = pin!(gated.idem.receipt(request.key()));
    assert!(poll(receipt.as_mut()).is_pending());
    gated.pass(Fate::Durable);
    assert!(forget.await.unwrap());
    assert_eq!(receipt.await.unwrap(), None);
}

#[tokio::test]
async fn what_failed_to_become_durable_is_unknown_and_never_replayed() {
    let gated = Gated::new();
    gated.done("old").await;
    let mut first = pin!(gated.put("new"));
    assert!(poll(first.as_mut()).is_pending());
    gated.arrival();
    let mut replay = pin!(gated.put("new"));
    let mut queued = pin!(gated.put("queued"));
    assert!(poll(replay.as_mut()).is_pending());
    assert!(poll(queued.as_mut()).is_pending());
    gated.pass(Fate::Lost);
    assert!(is_unknown(first.await));
    assert!(is_unknown(replay.await));
    assert!(is_unknown(gated.put("new").await));
    assert!(is_unknown(gated.idem.receipt(request("new").key()).await));
    assert!(is_unknown(gated.value("new").await));
    assert!(is_unknown(gated.idem.list(None, 10).await));
    // Nothing more is committed, and what is durable is still replayed.
    for refused in [queued.await, gated.put("later").await] {
        let error = refused.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Full), "{error:?}");
        assert_eq!(error.certainty(), Certainty::NothingDone);
    }
    assert_eq!(gated.put("old").await.unwrap(), Outcome::Replayed(()));
    assert!(gated.idem.purge(10).await.is_err());
    // Opened again the same key can tell.
    let Gated { folder, idem, .. } = gated;
    assert!(matches!(idem.close().await.unwrap_err().kind(), ErrorKind::Full));
    let idem = Idem::new(SledStore::open(folder.path()).await.unwrap());
    assert_eq!(idem.execute(&request("old"), |_| Ok(())).await.unwrap(), Outcome::Replayed(()));
    assert!(idem.execute(&request("new"), |_| Ok(())).await.is_ok());
    assert_eq!(idem.execute(&request("later"), |_| Ok(())).await.unwrap(), Outcome::Created(()));
}

#[tokio::test]
async fn of_a_batch_each_commit_holds_or_fails_alone() {
    let gated = Gated::new();
    let mut leader = pin!(gated.put("leader"));
    assert!(poll(leader.as_mut()).is_pending());
    gated.arrival();
    // While it is at the gate: two who read the same count, one who fails to be stamped, and a bystander.
    let (a, b, c) = (request("a"), request("b"), request("c"));
    let mut winner = pin!(gated.idem.execute(&a, add));
    let mut loser = pin!(gated.idem.execute(&b, add));
    let mut bystander = pin!(gated.idem.execute(&c, |_| Ok(7)));
    let twice = c.clone().with_fingerprint(idem_core::Fingerprint::of_bytes("other"));
    let mut conflict = pin!(gated.idem.execute(&twice, |_| Ok(8)));
    assert!(poll(winner.as_mut()).is_pending());
    assert!(poll(loser.as_mut()).is_pending());
    assert!(poll(bystander.as_mut()).is_pending());
    assert!(poll(conflict.as_mut()).is_pending());
    gated.pass(Fate::Durable);
    assert_eq!(leader.await.unwrap(), Outcome::Created(()));
    gated.arrival();
    gated.pass(Fate::Durable);
    assert_eq!(winner.await.unwrap(), Outcome::Created(1));
    assert_eq!(bystander.await.unwrap(), Outcome::Created(7));
    assert_eq!(conflict.await.unwrap(), Outcome::Conflict);
    gated.pass(Fate::Durable);
    assert_eq!(loser.await.unwrap(), Outcome::Created(2));
    gated.arrival();
}

#[tokio::test]
async fn who_lost_a_race_runs_again_on_what_is_applied_and_waits_for_the_disk_only_to_be_answered()
{
    let gated = Gated::new();
    let runs = Arc::new(AtomicU32::new(0));
    let (a, b) = (request("a"), request("b"));
    let counted = Arc::clone(&runs);
    let counting = move |tx: &mut SledTransaction| {
        counted.fetch_add(1, Ordering::SeqCst);
        add(tx)
    };
    let mut leader = pin!(gated.put("leader"));
    assert!(poll(leader.as_mut()).is_pending());
    gated.arrival();
    let mut winner = pin!(gated.idem.execute(&a, add));
    let mut loser = pin!(gated.idem.execute(&b, counting));
    assert!(poll(winner.as_mut()).is_pending());
    assert!(poll(loser.as_mut()).is_pending());
    gated.pass(Fate::Durable);
    gated.arrival();
    // The winner's count waits at the gate.
    assert!(poll(winner.as_mut()).is_pending());
    while runs.load(Ordering::SeqCst) == 1 {
        assert!(poll(loser.as_mut()).is_pending());
        yield_now().await;
    }
    assert!(poll(loser.as_mut()).is_pending());
    assert!(poll(winner.as_mut()).is_pending());
    gated.pass(Fate::Durable);
    gated.pass(Fate::Durable);
    assert_eq!(winner.await.unwrap(), Outcome::Created(1));
    assert_eq!(loser.await.unwrap(), Outcome::Created(2));
    assert_eq!((leader.await.unwrap(), runs.load(Ordering::SeqCst)), (Outcome::Created(()), 2));
}

#[tokio::test]
async fn a_caller_that_is_gone_leaves_its_key_untouched_or_committed() {
    let gated = Gated::new();
    let mut committed = Box::pin(gated.put("committed"));
    assert!(poll(committed.as_mut()).is_pending());
    gated.arrival();
    let mut queued = Box::pin(gated.put("queued"));
    assert!(poll(queued.as_mut()).is_pending());
    drop(queued);
    drop(committed);
    gated.pass(Fate::Durable);
    assert_eq!(gated.put("committed").await.unwrap(), Outcome::Replayed(()));
    gated.pass(Fate::Durable);
    assert_eq!(gated.put("queued").await.unwrap(), Outcome::Created(()));
}

#[tokio::test]
async fn closing_waits_for_what_is_queued() {
    let gated = Gated::new();
    let mut first = pin!(gated.put("first"));
    assert!(poll(first.as_mut()).is_pending());
    gated.arrival();
    let mut second = pin!(gated.put("second"));
    assert!(poll(second.as_mut()).is_pending());
    let mut close = pin!(gated.idem.close());
    assert!(poll(close.as_mut()).is_pending());
    for _ in 0..3 {
        gated.pass(Fate::Durable);
    }
    close.await.unwrap();
    assert_eq!(at_once(first).unwrap(), Outcome::Created(()));
    assert_eq!(at_once(second).unwrap(), Outcome::Created(()));
    let error = gated.put("third").await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Closed), "{error:?}");
    let idem = Idem::new(SledStore::open(gated.folder.path()).await.unwrap());
    assert_eq!(idem.execute(&request("second"), |_| Ok(())).await.unwrap(), Outcome::Replayed(()));
}

#[tokio::test]
async fn a_batch_of_nothing_makes_no_later_one_durable() {
    let gated = Gated::new();
    let failing = request("failing");
    let failed: Result<Outcome<()>, _> =
        gated.idem.execute(&failing, |_| Err("declined".into())).await;
    assert!(failed.is_err());
    let mut first = pin!(gated.put("new"));
    assert!(poll(first.as_mut()).is_pending());
    gated.arrival();
    let mut replay = pin!(gated.put("new"));
    assert!(poll(replay.as_mut()).is_pending(), "its receipt is not durable yet");
    gated.pass(Fate::Lost);
    for put in [first.await, replay.await, gated.put("new").await] {
        assert_eq!(put.unwrap_err().certainty(), Certainty::Unknown);
    }
}
