//! A process that is stopped past its lease, and woken.

use std::time::{Duration, Instant};

use idem_conformance::child::{Child, hear, say};
use idem_core::{Claim, Error, ErrorKind, Idem, Lease, Outcome};
use idem_sqlite::{SqliteStore, Synchronous};
use tempfile::TempDir;

use crate::{PATIENCE, opened, orders, request, variables};

const LEASE: Duration = Duration::from_millis(300);
const KEYS: [&str; 3] = ["complete", "renew", "release"];

/// Whether the lease was refused as lost, with its own token.
fn is_lost(error: &Error, token: &str) -> bool {
    matches!(error.kind(), ErrorKind::LeaseLost { token: lost } if lost.to_string() == token)
}

async fn claim(
    idem: &Idem<SqliteStore>,
    name: &str,
    wait: Duration,
    lease: Duration,
) -> Lease<SqliteStore, String> {
    match idem.claim(&request(name).wait_for(wait), lease).await.unwrap() {
        Claim::Acquired(lease) => lease,
        other => panic!("{name}: {other:?}"),
    }
}

/// The child of the test below; nothing without it.
#[tokio::test]
async fn child() {
    let Some((path, _)) = orders() else { return };
    let idem = opened(&path, Synchronous::Full).await;
    let complete = claim(&idem, "complete", Duration::ZERO, LEASE).await;
    let mut renew = claim(&idem, "renew", Duration::ZERO, LEASE).await;
    let release = claim(&idem, "release", Duration::ZERO, LEASE).await;
    let tokens = [&complete, &renew, &release].map(|lease| lease.token().to_string());
    say(&format!("holds {}", tokens.join(" ")));
    // It is stopped here, where it holds no lock of the file.
    hear();
    let refused = complete.complete("the child's".to_string()).await.unwrap_err();
    assert!(is_lost(refused.error(), &tokens[0]), "{refused:?}");
    let refused = renew.renew(Duration::from_secs(3600)).await.unwrap_err();
    assert!(is_lost(&refused, &tokens[1]), "{refused:?}");
    let refused = release.release().await.unwrap_err();
    assert!(is_lost(refused.error(), &tokens[2]), "{refused:?}");
    drop(renew);
    // Dropping a lease ends it in the background, and this waits for it.
    idem.close().await.unwrap();
    say("refused");
}

#[tokio::test]
async fn a_process_that_was_stopped_past_its_lease_is_refused_and_changes_nothing() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    let mut child = Child::start("stopped::child", variables(&path, ""));
    let tokens = child.said("holds");
    child.signal("STOP");
    let start = Instant::now();
    while !child.is_stopped() {
        assert!(start.elapsed() < PATIENCE, "the child does not stop");
        std::thread::yield_now();
    }
    let idem = opened(&path, Synchronous::Full).await;
    for (name, token) in KEYS.into_iter().zip(tokens.split(' ')) {
        let lease = claim(&idem, name, PATIENCE, Duration::from_secs(3600)).await;
        let before = lease.took_over().expect("it takes over");
        assert_eq!(before.to_string(), token);
        assert!(lease.token() > before);
        assert_eq!(lease.complete("the parent's".to_string()).await.unwrap(), "the parent's");
    }
    let before = idem.list(None, 10).await.unwrap().records;
    child.signal("CONT");
    child.go_on();
    child.said("refused");
    child.ends();
    assert_eq!(idem.list(None, 10).await.unwrap().records, before);
    for name in KEYS {
        let effect =
            |_: &mut _| -> Result<String, idem_core::EffectError> { panic!("it must not run") };
        let replayed = idem.execute(&request(name), effect).await.unwrap();
        assert_eq!(replayed, Outcome::Replayed("the parent's".to_string()));
    }
}
