//! What a call reports, and what is left of one that failed.

use std::{sync::atomic::Ordering, time::Duration};

use bytes::Bytes;
use idem_core::{Committed, Error, ErrorKind, Key, Look, Record, Retention, Span, State, Token};
use uuid::Uuid;

use crate::{engine::lock, faults::Fault, reference::Reference, transaction::Tx};

impl Reference {
    /// The report of a step that has nothing to write.
    pub(crate) fn kept(&self, key: &Key, seen: Look) -> Committed {
        let minute = Duration::from_secs(60);
        if self.has(Fault::ReplayExtends)
            && let Some((_, record)) = self.engine.disk().records.get_mut(&self.engine.scope(key))
            && let State::Completed { expires_at: Some(expires_at), .. } = &mut record.state
            && let Some(until) = Span::new("retention", minute).ok().and_then(|m| seen.now.after(m))
        {
            *expires_at = until.max(*expires_at);
        }
        let mut committed = Committed::kept(seen.record, seen.now);
        match self.engine.fault {
            Some(Fault::ReadsByTheTimeOfOpening) => committed.now = self.engine.opened_at,
            Some(Fault::AlwaysSaysItRan) => committed.ran = true,
            Some(Fault::KeptShowsNothing) => committed.before = None,
            Some(Fault::KeptLeavesNothing) => committed.after = None,
            _ => {}
        }
        committed
    }

    /// The report of a step that ran.
    pub(crate) fn ran(&self, seen: Look, after: Option<Record>) -> Committed {
        let mut committed = Committed::ran(seen.record, after, seen.now);
        match self.engine.fault {
            Some(Fault::NeverSaysItRan) => committed.ran = false,
            Some(Fault::BeforeIsAfter) => committed.before = committed.after.clone(),
            Some(Fault::BeforeNotRead) => committed.before = None,
            Some(Fault::AfterIsBefore) => committed.after = committed.before.clone(),
            Some(Fault::RanAtTheTimeOfOpening) => committed.now = self.engine.opened_at,
            _ => {}
        }
        committed
    }

    /// Whether the store's own look at a record keeps a step from running.
    pub(crate) fn stands_in_the_way(&self, seen: &Look) -> bool {
        let end = match seen.record.as_ref().map(|record| &record.state) {
            Some(State::Completed { expires_at, .. }) if self.has(Fault::ExpiresLate) => {
                *expires_at
            }
            Some(State::Claimed { until, .. }) if self.has(Fault::LeaseEndsLate) => Some(*until),
            _ => None,
        };
        end == Some(seen.now)
    }

    /// Writes a claim before the effect runs, as who keeps others out by a row that is committed first.
    pub(crate) fn hold_place(&self, key: &Key, seen: &mut Look) {
        let lease = Span::new("lease", Duration::from_secs(30)).unwrap();
        let Some(until) = seen.now.after(lease) else { return };
        let (token, keep) = (Token::MAX, Retention::For(lease));
        let state = State::Claimed { token, took_over: None, until, is_ended: false, keep };
        let (attempt, created_at) = (Uuid::new_v4(), seen.now);
        let record = Record { fingerprint: None, attempt, created_at, state };
        seen.record = Some(record.clone());
        self.engine.disk().records.insert(self.engine.scope(key), (key.clone(), record));
    }

    /// Marks an event that somebody only looks at, as who notes down first what is about to be handled.
    pub(crate) fn mark(&self, key: &Key, seen: &Look) {
        let state = State::Completed { result: Bytes::from_static(b"null"), expires_at: None };
        let (attempt, created_at) = (Uuid::new_v4(), seen.now);
        let record = Record { fingerprint: None, attempt, created_at, state };
        self.engine.disk().records.insert(self.engine.scope(key), (key.clone(), record));
    }

    /// What is left of a step that failed: nothing.
    pub(crate) fn roll_back(&self, key: &Key, tx: &Tx, error: &Error, seen: &Look) {
        let is_panic = matches!(error.kind(), ErrorKind::Panicked(_));
        match self.engine.fault {
            Some(Fault::ErrorNotRolledBack) if !is_panic => {
                self.engine.disk().apply(tx.space(), tx.overlay.writes());
            }
            Some(Fault::PanicNotRolledBack) if is_panic => {
                self.engine.disk().apply(tx.space(), tx.overlay.writes());
            }
            Some(Fault::PanicPoisons) if is_panic => {
                self.engine.poisoned.store(true, Ordering::SeqCst);
            }
            Some(Fault::FailedWritesLeak) => lock(&self.engine.leaked).extend(tx.written()),
            Some(Fault::FailureLeavesReceipt) => {
                let state = State::Completed { result: Bytes::from_static(b"0"), expires_at: None };
                let (attempt, created_at) = (Uuid::new_v4(), seen.now);
                let record = Record { fingerprint: None, attempt, created_at, state };
                self.engine.disk().records.insert(self.engine.scope(key), (key.clone(), record));
            }
            _ => {}
        }
    }
}
