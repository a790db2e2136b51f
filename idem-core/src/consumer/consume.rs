//! The loop between a queue and a handler.

use super::{Handled, Handler, Queue};
use crate::{ErrorKind, Store, error::BoxError};

/// What a run of [`consume`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Consumed {
    /// Deliveries whose handler ran and succeeded.
    pub ran: u64,
    /// Deliveries of events that were handled before.
    pub duplicates: u64,
    /// Deliveries that failed and were given back.
    pub failed: u64,
}

/// Handles deliveries one after the other until the queue has none to give.
///
/// A delivery is acked only after the commit of its mark; a duplicate is acked without running; a failure
/// is given back with its reason, for the queue to deliver again. What cannot be acked stays in flight, and
/// comes again as a duplicate.
///
/// A message that always fails comes again for as long as the queue delivers it: let the queue hold it back
/// for a while, or set it aside after some deliveries, in [`Queue::nack`].
///
/// # Errors
/// The queue's own, also when it does not take an ack: the run ends there, and its counts are lost; [`ErrorKind::Closed`] if the store was closed, after the delivery was given back. What was
/// handled until then stays handled.
///
/// # Cancel safety
/// The delivery that was being handled stays in flight; see [`Handler::handle`].
pub fn consume<Q, S, M>(
    queue: &Q,
    handler: &Handler<S, M>,
) -> impl Future<Output = Result<Consumed, BoxError>> + Send
where
    Q: Queue<Message = M>,
    S: Store + 'static,
    M: Send + 'static,
{
    // Said to be Send here, where the store is any store: see `Idem::execute`.
    async move { run(queue, handler).await }
}

async fn run<Q, S, M>(queue: &Q, handler: &Handler<S, M>) -> Result<Consumed, BoxError>
where
    Q: Queue<Message = M>,
    S: Store + 'static,
    M: Send + 'static,
{
    let mut consumed = Consumed::default();
    while let Some(delivery) = queue.receive(1).await?.pop() {
        match handler.handle(&delivery.event_id, delivery.message).await {
            Ok(handled) => {
                queue.ack(&delivery.tag).await?;
                match handled {
                    Handled::Ran => consumed.ran += 1,
                    Handled::Duplicate => consumed.duplicates += 1,
                }
            }
            Err(error) => {
                queue.nack(&delivery.tag, &error).await?;
                if matches!(error.kind(), ErrorKind::Closed) {
                    return Err(error.into());
                }
                consumed.failed += 1;
            }
        }
    }
    Ok(consumed)
}
