//! The library's own thread, which all timers run on.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

use std::{sync::mpsc, time::Duration};

use idem_core::{Idem, Key, Request, Store, runtime};
use idem_sqlite::SqliteStore;

/// A step that is asked for there may find the writer free, and others' effects queued behind it.
#[tokio::test]
async fn no_effect_runs_on_the_thread_of_the_timers() {
    let folder = tempfile::tempdir().unwrap();
    let idem = Idem::new(SqliteStore::open(folder.path().join("shop.db")).await.unwrap());
    // New keys go to the writer without a look, others after one.
    for round in 0..20 {
        let (told, ran_there) = mpsc::channel();
        let detached = idem.clone();
        idem.store().detach(Box::pin(async move {
            let request = Request::new(Key::new("north", "order", format!("{round}")).unwrap());
            let effect = move |_: &mut _| {
                told.send(runtime::is_background()).unwrap();
                Ok(1)
            };
            drop(detached.execute(&request, effect).await);
        }));
        let ran_there = ran_there.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(!ran_there, "round {round}");
    }
}
