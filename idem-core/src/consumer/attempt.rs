//! One delivery: look, run, mark.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    Handled, Handler,
    handler::{Inside, Mode},
    outside::Outside,
    patience::{Patience, Unhandled, ask},
    recorder::{self, Found},
};
use crate::{
    Error, ErrorKind, Request, Store, Timestamp, error::BoxError, protocol::Execute, trouble::Load,
};

impl<S: Store + 'static, M: Send + Sync + 'static> Handler<S, M> {
    /// Handles an event; `patience` says what becomes of a call of the store that fails.
    pub(super) async fn attempt<P: Patience>(
        &self,
        event_id: &str,
        message: M,
        patience: &mut P,
    ) -> Result<Handled, Unhandled> {
        let request = self.request(event_id, &message)?;
        match self.mode() {
            Mode::MarkAfter(work) => self.work_then_mark(work, &request, message, patience).await,
            Mode::Atomic(effect) => self.apply_and_mark(effect, &request, message, patience).await,
        }
    }

    /// What is known of an event, without handling it.
    pub(super) async fn found<P: Patience>(
        &self,
        event_id: &str,
        message: &M,
        patience: &mut P,
    ) -> Result<Found, Unhandled> {
        let request = self.request(event_id, message)?;
        Ok(self.look(&request, patience).await?.0)
    }

    async fn look<P: Patience>(
        &self,
        request: &Request,
        patience: &mut P,
    ) -> Result<(Found, Timestamp), Unhandled> {
        let store = self.idem().store();
        let look = || async move {
            let looked = recorder::look(store, request.key()).await?;
            Ok((recorder::found(&looked, request.fingerprint_value())?, looked.now))
        };
        ask(patience, Load::Nothing, request.key(), look).await
    }

    async fn work_then_mark<P: Patience>(
        &self,
        work: &Outside<M>,
        request: &Request,
        message: M,
        patience: &mut P,
    ) -> Result<Handled, Unhandled> {
        let store = self.idem().store();
        let retention = request.retention()?;
        let (found, now) = self.look(request, patience).await?;
        match found {
            Found::Marked => return Ok(Handled::Duplicate),
            Found::Other => return Ok(Handled::Conflict),
            Found::Free => {}
        }
        // A mark that cannot be made must stop the handler before it runs.
        retention.expires_at(now)?;
        if !patience.begin() {
            return Err(Unhandled::NotBegun);
        }
        let failed = |error: BoxError| Error::nothing_done(ErrorKind::Work).with_source(error);
        work(message).await.map_err(failed)?;
        // Whoever marked meanwhile ran the handler as well: to this caller it makes no difference.
        let mark = || recorder::mark(store, request);
        let marked = ask(patience, Load::Nothing, request.key(), mark).await;
        let _first_or_again = marked.map_err(Unhandled::after_the_work)?;
        Ok(Handled::Ran)
    }

    async fn apply_and_mark<P: Patience>(
        &self,
        effect: &Inside<S, M>,
        request: &Request,
        message: M,
        patience: &mut P,
    ) -> Result<Handled, Unhandled> {
        if !patience.begin() {
            return Err(Unhandled::NotBegun);
        }
        let message = Arc::new(message);
        let call = || {
            let (effect, message) = (Arc::clone(effect), Arc::clone(&message));
            let effect = move |tx: &mut S::Transaction| {
                effect(tx, &message)?;
                Ok(Bytes::new())
            };
            async move {
                let step = Execute::on_event(request, effect)?;
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
        ask(patience, Load::Effect, request.key(), call).await
    }
}
