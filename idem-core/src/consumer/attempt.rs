//! One delivery: look, run, mark.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    Handled, Handler,
    handler::{Inside, Mode},
    outside::Outside,
    patience::{Patience, ask},
    recorder::{self, Found},
};
use crate::{Error, ErrorKind, Request, Store, error::BoxError, protocol::Execute, trouble::Load};

impl<S: Store + 'static, M: Send + Sync + 'static> Handler<S, M> {
    /// Handles an event; `patience` says what becomes of a call of the store that fails.
    pub(super) async fn attempt<P: Patience>(
        &self,
        event_id: &str,
        message: M,
        patience: &mut P,
    ) -> Result<Handled, Error> {
        let request = self.request(event_id, &message)?;
        match self.mode() {
            Mode::MarkAfter(work) => self.work_then_mark(work, &request, message, patience).await,
            Mode::Atomic(effect) => self.apply_and_mark(effect, &request, message, patience).await,
        }
    }

    async fn work_then_mark<P: Patience>(
        &self,
        work: &Outside<M>,
        request: &Request,
        message: M,
        patience: &mut P,
    ) -> Result<Handled, Error> {
        let store = self.idem().store();
        let retention = request.retention()?;
        let look = || async move {
            let looked = recorder::look(store, request.key()).await?;
            Ok((recorder::found(&looked, request.fingerprint_value())?, looked.now))
        };
        let (found, now) = ask(patience, Load::Nothing, look).await?;
        match found {
            Found::Marked => return Ok(Handled::Duplicate),
            Found::Other => return Ok(Handled::Conflict),
            Found::Free => {}
        }
        // A mark that cannot be made must stop the handler before it runs.
        retention.expires_at(now)?;
        let failed = |error: BoxError| Error::nothing_done(ErrorKind::Work).with_source(error);
        work(message).await.map_err(failed)?;
        // Whoever marked meanwhile ran the handler as well: to this caller it makes no difference.
        let _first_or_again =
            ask(patience, Load::Nothing, || recorder::mark(store, request)).await?;
        Ok(Handled::Ran)
    }

    async fn apply_and_mark<P: Patience>(
        &self,
        effect: &Inside<S, M>,
        request: &Request,
        message: M,
        patience: &mut P,
    ) -> Result<Handled, Error> {
        let message = Arc::new(message);
        let call = || {
            let (effect, message) = (Arc::clone(effect), Arc::clone(&message));
            let effect = move |tx: &mut S::Transaction| {
                effect(tx, &message)?;
                Ok(Bytes::new())
            };
            async move {
                let step = Execute::new(request, 0, effect)?;
                let committed = self.idem().transact(request.key(), step).await?;
                if committed.ran {
                    return Ok(Handled::Ran);
                }
                match recorder::found(&committed, request.fingerprint_value())? {
                    Found::Marked => Ok(Handled::Duplicate),
                    Found::Other => Ok(Handled::Conflict),
                    Found::Free => Err(recorder::did_not_run()),
                }
            }
        };
        ask(patience, Load::Effect, call).await
    }
}
