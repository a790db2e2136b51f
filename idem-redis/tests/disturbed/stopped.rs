//! A process that is stopped past its lease, and woken when another has the key: this test runs itself as a child.

use std::{env, time::Duration};

use idem_conformance::child::{Child, hear, say};
use idem_core::{Error, ErrorKind, Filter, LeaseError, Outcome, State, Store, Token};
use idem_redis::{RedisStore, testing::Server};

use crate::setup::*;

const URL: &str = "IDEM_REDIS_STOPPED_URL";
/// Short, since it is waited out by the server's clock.
const BRIEF: Duration = Duration::from_millis(500);

/// The child of the test below; nothing without it.
#[tokio::test]
async fn child() {
    let Ok(url) = env::var(URL) else { return };
    let idem = open(&url).await;
    let claim = idem.claim::<String>(&request("k", "p"), BRIEF).await.unwrap();
    let lease = claim.lease().unwrap();
    say(&format!("leased {}", lease.token()));
    hear();
    let token = lease.token();
    let lost = |what: &str, error: &Error| say(&format!("{what} {}", is_lost(error, token)));
    let lease = match lease.complete("stale".to_string()).await {
        Ok(_) => panic!("another has the key"),
        Err(error) => {
            lost("complete", error.error());
            let (_, mut lease) = error.into_parts();
            lost("renew", &lease.renew(BRIEF).await.unwrap_err());
            lease
        }
    };
    let released: LeaseError<RedisStore, String> = lease.release().await.unwrap_err();
    lost("release", released.error());
    // Dropping it does nothing to the other either.
    drop(released);
    idem.close().await.unwrap();
    say("ended");
}

fn is_lost(error: &Error, token: Token) -> bool {
    let nothing_done = error.certainty() == idem_core::Certainty::NothingDone;
    nothing_done && matches!(error.kind(), ErrorKind::LeaseLost { token: lost } if *lost == token)
}

#[tokio::test]
async fn who_was_stopped_past_its_lease_is_told_so_and_changes_nothing() {
    let server = Server::start().unwrap();
    let idem = open(&server.url()).await;
    let mut child = Child::start("stopped::child", [(URL, server.url())]);
    let token: u64 = child.said("leased ").parse().unwrap();
    child.signal("STOP");
    eventually("the child to stand still", || child.is_stopped()).await;
    child.go_on();

    let patient = request("k", "p").wait_for(Duration::from_secs(20));
    let claim = within("the end of the lease", idem.claim::<String>(&patient, LEASE)).await;
    let lease = claim.unwrap().lease().unwrap();
    assert_eq!(lease.took_over().map(Token::as_u64), Some(token));
    assert!(lease.token().as_u64() > token);
    assert_eq!(lease.complete("the other's".to_string()).await.unwrap(), "the other's");
    let record = idem.store().list(&Filter::all(), None, 10).await.unwrap().records;
    assert!(child.is_silent(), "it stands still");

    child.signal("CONT");
    for what in ["complete ", "renew ", "release "] {
        assert_eq!(child.said(what), "true", "{what} is refused as lost");
    }
    child.said("ended");
    assert_eq!(idem.store().list(&Filter::all(), None, 10).await.unwrap().records, record);
    assert!(
        matches!(record[..], [(_, ref record)] if matches!(record.state, State::Completed { .. }))
    );
    let replayed = idem.execute(&request("k", "p"), |_| Ok(String::new())).await.unwrap();
    assert_eq!(replayed, Outcome::Replayed("the other's".to_string()));
}
