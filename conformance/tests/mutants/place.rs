//! The fixture: a place whose store has the fault of the thread that made it.

use std::{
    cell::Cell,
    sync::{Arc, Mutex, atomic::Ordering},
};

use async_trait::async_trait;
use idem_conformance::{Fixture, HostileEffect};
use idem_core::{ManualClock, Transaction};

use crate::{
    engine::{Disk, Engine, lock},
    faults::Fault,
    reference::Reference,
    transaction::Tx,
};

thread_local! {
    static FAULT: Cell<Option<Fault>> = const { Cell::new(None) };
}

/// From now on what this thread makes has this fault.
pub(crate) fn set_fault(fault: Fault) {
    FAULT.set(Some(fault));
}

/// A place in memory that outlives the closing of its store.
pub(crate) struct Place {
    fault: Option<Fault>,
    disk: Arc<Mutex<Disk>>,
    open: Mutex<Option<Arc<Engine>>>,
}

#[async_trait]
impl Fixture for Place {
    type Store = Reference;

    async fn create() -> Self {
        Self { fault: FAULT.get(), disk: Arc::default(), open: Mutex::new(None) }
    }

    async fn open(&self, clock: ManualClock) -> Reference {
        let mut open = lock(&self.open);
        let still_open = open.take().filter(|engine| !engine.closed.load(Ordering::SeqCst));
        let engine = still_open
            .unwrap_or_else(|| Arc::new(Engine::open(Arc::clone(&self.disk), clock, self.fault)));
        Reference::new(Arc::clone(open.insert(engine)))
    }

    async fn refuse_receipts(&self, refuse: bool) {
        lock(&self.disk).refuses_receipts = refuse;
    }

    fn hostile_effects(&self) -> Vec<(&'static str, HostileEffect<Reference>)> {
        let commits: HostileEffect<Reference> = |tx: &mut Tx| {
            tx.put(b"hostile", b"1")?;
            tx.commit();
            Ok(())
        };
        vec![("a commit of its own", commits)]
    }
}
