//! Users that may not do all that the store does: they are told so, and nothing is done by halves.

use std::time::Duration;

use idem_core::{
    Certainty, Error, ErrorKind, Key, ManualClock, Outcome, Purged, Request, Timestamp,
    Transaction, consumer::Recorder,
};
use idem_redis::{RedisBuilder, RedisStore, RedisTransaction, testing::Server};

use crate::setup::*;

#[tokio::test]
async fn a_wrong_password_is_denied_when_opening() {
    let server = Server::builder().password("secret").start().unwrap();
    for user in ["", ":wrong@", "nobody:secret@"] {
        let error =
            hasty(300).open(&format!("redis://{user}{}", server.address())).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Denied), "{user}: {error:?}");
        assert_eq!(error.certainty(), Certainty::NothingDone);
    }
    put_first(&open(&server.url()).await, "k").await;
}

/// A store for a user with these rights, after it was opened with all.
async fn limited(server: &Server, builder: RedisBuilder, rights: &[&str]) -> Front {
    let mut user = vec!["ACL", "SETUSER", "app", "reset", "on", ">pw", "~*", "+@all"];
    server.command(&user).unwrap();
    let idem = open_with(builder, &format!("redis://app:pw@{}", server.address())).await;
    user.truncate(2);
    user.push("app");
    user.extend(rights);
    server.command(&user).unwrap();
    idem
}

fn is_denied(error: Error) {
    assert!(matches!(error.kind(), ErrorKind::Denied), "{error:?}");
    assert_eq!(error.certainty(), Certainty::NothingDone, "{error:?}");
}

#[tokio::test]
async fn a_user_that_may_run_no_script_is_denied() {
    let server = Server::start().unwrap();
    let idem = limited(&server, RedisStore::builder(), &["-evalsha", "-eval"]).await;
    is_denied(put(&idem, "k").await.unwrap_err());
    is_denied(idem.mark_processed("billing", "7").await.unwrap_err());
    // To read takes none.
    assert_eq!(idem.receipt(&key("k")).await.unwrap(), None);
    assert!(!has_record(&server, "k"));
}

#[tokio::test]
async fn a_user_that_may_not_touch_the_keys_is_denied() {
    let server = Server::start().unwrap();
    let idem = limited(&server, RedisStore::builder(), &["resetkeys", "~elsewhere:*"]).await;
    is_denied(put(&idem, "k").await.unwrap_err());
    is_denied(idem.mark_processed("billing", "7").await.unwrap_err());
    assert!(!has_record(&server, "k"));
    server.command(&["ACL", "SETUSER", "app", "~idem:*"]).unwrap();
    put_first(&idem, "k").await;
}

fn deletes(tx: &mut RedisTransaction) -> Result<(), idem_core::EffectError> {
    tx.put(b"kept", b"new")?;
    Ok(tx.delete(b"deleted")?)
}

/// A script does not roll back: what it lacks a right for must show before it has written anything.
#[tokio::test]
async fn a_user_that_lacks_one_right_gets_nothing_done_by_halves() {
    let whole = (Some("new".to_string()), None, true);
    let nothing = (None, Some("old".to_string()), false);
    for right in ["get", "getex", "set", "del", "exists", "getrange", "time", "echo"] {
        for speculative in [false, true] {
            let server = Server::start().unwrap();
            server.command(&["SET", "idem:{tnorth}:v:deleted", "old"]).unwrap();
            let builder = RedisStore::builder().speculative(speculative);
            let idem = limited(&server, builder, &[&format!("-{right}")]).await;
            let outcome = idem.execute(&request("k", "p"), deletes).await;
            let (kept, deleted) = (value_of(&server, "kept"), value_of(&server, "deleted"));
            let found = (kept, deleted, has_record(&server, "k"));
            match outcome {
                Ok(outcome) => {
                    assert_eq!((outcome, &found), (Outcome::Created(()), &whole), "{right}");
                }
                Err(error) => {
                    assert_eq!(found, nothing, "{right}: {error:?}");
                    is_denied(error);
                }
            }
        }
    }
}

#[tokio::test]
async fn a_purge_that_fails_says_first_what_it_has_removed() {
    let server = Server::start().unwrap();
    let clock = ManualClock::at(Timestamp::from_millis(1_000_000));
    let builder = RedisStore::builder().clock(clock.clone());
    let idem =
        limited(&server, builder, &["resetkeys", "~idem:{tnorth}:*", "~idem:{tsouth}:*"]).await;
    for tenant in ["north", "south"] {
        let request = Request::new(Key::new(tenant, "order", "k").unwrap());
        let made = idem.execute(&request, |_| Ok(1)).await.unwrap();
        assert_eq!(made, Outcome::Created(1));
    }
    clock.advance(Duration::from_secs(30 * 24 * 60 * 60));
    server.command(&["ACL", "SETUSER", "app", "resetkeys", "~idem:{tnorth}:*"]).unwrap();
    assert_eq!(idem.purge(10).await.unwrap(), Purged::new(1, true));
    is_denied(idem.purge(10).await.unwrap_err());
    server.command(&["ACL", "SETUSER", "app", "~idem:{tsouth}:*"]).unwrap();
    assert_eq!(idem.purge(10).await.unwrap(), Purged::new(1, false));
}
