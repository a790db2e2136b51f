//! Runs a side whose callers are threads.

use std::{sync::Barrier, thread};

use idem_core::{BoxError, Outcome, consumer::Marked};

use crate::{Load, Order, Placed, Sample, Workload, sample::Run, shop};

/// One caller of a hand-written implementation, with whatever it needs.
pub(crate) trait Caller: Send {
    /// Places an order once.
    fn place(&mut self, order: &Order) -> Result<Outcome<Placed>, BoxError>;

    /// Marks an order's event as processed.
    fn mark(&mut self, order: &Order) -> Result<Marked, BoxError>;
}

/// Makes all calls of a load.
pub(crate) fn run<C: Caller>(
    load: &Load,
    every: usize,
    mut caller: impl FnMut() -> Result<C, BoxError>,
) -> Result<Sample, BoxError> {
    let mut callers = (0..load.callers()).map(|_| caller()).collect::<Result<Vec<_>, _>>()?;
    if let (Some(order), Some(caller)) = (load.first(), callers.first_mut()) {
        // Its answer says nothing that the count afterwards does not.
        let _: Outcome<Placed> = caller.place(order)?;
    }
    let start = Barrier::new(callers.len());
    let runs = thread::scope(|scope| {
        let threads: Vec<_> = callers
            .into_iter()
            .map(|caller| scope.spawn(|| call(caller, load, &start, every)))
            .collect();
        let joined = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err("a caller of the baseline panicked".into()))
        });
        joined.collect::<Result<Vec<_>, _>>()
    })?;
    Ok(Sample::of(runs, load))
}

fn call(
    mut caller: impl Caller,
    load: &Load,
    start: &Barrier,
    every: usize,
) -> Result<Run, BoxError> {
    start.wait();
    let mut run = Run::start(every);
    for order in load.calls() {
        let start = run.call();
        let outcome = match load.workload() {
            Workload::Mark => shop::marked(order, caller.mark(order)?),
            _ => caller.place(order)?,
        };
        run.answered(start, order, outcome)?;
    }
    Ok(run.end())
}
