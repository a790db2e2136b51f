//! Runs a side whose callers are tasks: on tokio's multi-thread runtime as it is by default, which is what a
//! service has. A single caller is one task of it.

use std::sync::Arc;

use idem_core::{BoxError, Outcome, consumer::Marked};
use tokio::{runtime::Runtime, sync::Barrier};

use crate::{Load, Order, Placed, Sample, Workload, sample::Run, shop};

/// What callers call; a clone serves another caller.
pub(crate) trait Caller: Clone + Send + Sync + 'static {
    /// Places an order once.
    fn place(
        &self,
        order: &Order,
    ) -> impl Future<Output = Result<Outcome<Placed>, BoxError>> + Send;

    /// Marks an order's event as processed.
    fn mark(&self, order: &Order) -> impl Future<Output = Result<Marked, BoxError>> + Send;
}

/// Makes all calls of a load, and times one in `every`.
pub(crate) fn run(
    runtime: &Runtime,
    load: &Arc<Load>,
    every: usize,
    caller: &impl Caller,
) -> Result<Sample, BoxError> {
    if let Some(order) = load.first() {
        // Its answer says nothing that the count afterwards does not.
        let _: Outcome<Placed> = runtime.block_on(caller.place(order))?;
    }
    let start = Arc::new(Barrier::new(load.callers()));
    let callers: Vec<_> = (0..load.callers())
        .map(|_| runtime.spawn(call(caller.clone(), Arc::clone(load), Arc::clone(&start), every)))
        .collect();
    let runs = runtime.block_on(async {
        let mut runs = Vec::new();
        for caller in callers {
            runs.push(caller.await??);
        }
        Ok::<_, BoxError>(runs)
    })?;
    Ok(Sample::of(runs, load))
}

/// One caller.
async fn call(
    caller: impl Caller,
    load: Arc<Load>,
    start: Arc<Barrier>,
    every: usize,
) -> Result<Run, BoxError> {
    start.wait().await;
    let mut run = Run::start(every);
    for order in load.calls() {
        let start = run.call();
        let outcome = match load.workload() {
            Workload::Mark => shop::marked(order, caller.mark(order).await?),
            _ => caller.place(order).await?,
        };
        run.answered(start, order, outcome)?;
    }
    Ok(run.end())
}
