//! Operations in a group with neighbours that declined: a ROLLBACK, a savepoint that is rolled back to and released, one
//! that is kept, and all of them run again alone when the group is gone. A machine that is slow may close a group before
//! the operation has joined it: then that is alone.

use std::{future::poll_fn, pin::pin, task::Poll};

use idem_conformance::{callers::within, operations::Operation};
use idem_core::{
    Certainty, Change, Committed, Error, ErrorKind, Idem, Key, Record, Space, Step, Timestamp,
    Transaction,
};
use tokio::sync::oneshot;

use super::{Case, Fault, Kind, place::Place, try_all};
use crate::{
    SqliteStore, SqliteTransaction,
    countdown::Lasts,
    engine::Engine,
    group::{Turn, Wait, turn},
    job::{Job, StepJob},
    queue::Lead,
    writer::Writer,
};

/// Writes a value that is longer by one, and leaves no record.
struct Neighbour {
    declines: bool,
}

impl Step<SqliteTransaction> for Neighbour {
    fn proceeds(&self, _: Option<&Record>, _: Timestamp) -> bool {
        true
    }

    fn run(
        &mut self,
        tx: &mut SqliteTransaction,
        _: Option<&Record>,
        _: Timestamp,
    ) -> Result<Change, Error> {
        let value = tx.get(VALUE)?.unwrap_or_default();
        tx.put(VALUE, &[&value[..], b"x"].concat())?;
        match self.declines {
            true => Err(Error::nothing_done(ErrorKind::Effect)),
            false => Ok(Change::Keep),
        }
    }
}

/// Between them they run each statement that a step may run.
const OPERATIONS: [Operation; 4] =
    [Operation::ExecuteReading, Operation::Claim, Operation::Renew, Operation::Release];

const VALUE: &[u8] = b"value";
const TENANT: &str = "south";

type Answer = oneshot::Receiver<Result<Committed, Error>>;

fn job(declines: bool) -> (Job, Answer) {
    let (reply, answer) = oneshot::channel();
    let key = Key::new(TENANT, "order", "neighbour").unwrap();
    let step = Box::new(Neighbour { declines });
    (Job::Step(StepJob { key, step, reply, alone: false }), answer)
}

/// How often a neighbour's effect is there.
async fn effects(idem: &Idem<SqliteStore>) -> usize {
    let space = Space::tenant(TENANT).unwrap();
    idem.value(&space, VALUE).await.unwrap().map_or(0, |value| value.len())
}

/// The lead, as soon as nobody else has it.
async fn lead_with(engine: &Engine, mut job: Job) -> Lead<'_, Writer, Job> {
    loop {
        match engine.queue.lead_with(job) {
            Ok(lead) => return lead,
            Err(again) => job = again,
        }
        tokio::task::yield_now().await;
    }
}

/// Tries an operation in a group, with the fault of that number; whether it struck.
async fn fails_at(case: Case, number: usize) -> bool {
    let (place, lease) = Place::new(case, number).await;
    let engine = place.idem.store().engine();
    let [(first, declined_first), (good, kept), (second, declined)] = [true, false, true].map(job);
    let mut lead = within(&place.what, lead_with(engine, first)).await;
    for job in [good, second] {
        assert!(matches!(engine.queue.submit(job), Ok(None)));
    }
    let mut asked = pin!(case.operation.ask(&place.idem, lease));
    let polled = poll_fn(|context| Poll::Ready(asked.as_mut().poll(context))).await;
    while turn(&mut lead, Wait::Yes) != Turn::Idle {}
    drop(lead);
    let answer = match polled {
        Poll::Ready(answer) => answer,
        Poll::Pending => within(&place.what, asked).await,
    };
    for answer in [declined_first, declined] {
        let error = answer.await.unwrap().unwrap_err();
        assert_eq!(error.certainty(), Certainty::NothingDone, "{}: {error:?}", place.what);
    }
    let kept = kept.await.unwrap();
    let has_struck = place.calm();
    place.is_told(has_struck, &answer);
    place.is_told(has_struck, &kept);
    let effects = effects(&place.idem).await;
    let may_be = match kept.as_ref().map_err(Error::certainty) {
        Ok(_) => 1..=1,
        Err(Certainty::NothingDone) => 0..=0,
        Err(_) => 0..=1,
    };
    assert!(may_be.contains(&effects), "{}: {effects} effects, {kept:?}", place.what);
    place.settle(&answer).await;
    has_struck
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_is_interrupted_at_an_instruction_is_right_for_each_step() {
    let reading = [Operation::ExecuteReading];
    let cases = Case::of(&reading, Fault::Interrupt, Lasts::Once, Kind::File);
    try_all(cases, 1, fails_at).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_in_memory_that_is_interrupted_is_right_for_each_step() {
    for lasts in [Lasts::Once, Lasts::On] {
        let cases = Case::of(&OPERATIONS, Fault::Interrupt, lasts, Kind::Memory);
        try_all(cases, 5, fails_at).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_whose_statement_or_commit_fails_is_right_for_each_step() {
    for fault in [Fault::Statement, Fault::Commit { after: false }, Fault::Commit { after: true }] {
        for lasts in [Lasts::Once, Lasts::On] {
            try_all(Case::of(&OPERATIONS, fault, lasts, Kind::File), 1, fails_at).await;
        }
    }
}
