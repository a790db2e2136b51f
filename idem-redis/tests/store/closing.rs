//! Closing.

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use futures_util::future::FutureExt;
use idem_core::{ErrorKind, Outcome, Store};
use idem_redis::{RedisTransaction, testing::Server};

use crate::setup::*;

/// Closing waits for what is under way; whoever comes meanwhile is refused, and waits for nobody: it may be
/// the effect that the closing waits for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_being_closed_is_closed_to_others() {
    let server = Server::start().unwrap();
    let idem = open(&server.url()).await;
    let (entered, is_entered) = mpsc::channel();
    let (go, may_go) = mpsc::channel::<()>();
    let may_go = Arc::new(idem_core::locks::Mutex::new(may_go));
    let call = tokio::spawn({
        let idem = idem.clone();
        async move {
            let effect = move |tx: &mut RedisTransaction| {
                entered.send(())?;
                may_go.lock().recv_timeout(Duration::from_secs(20))?;
                put_one(tx, "k")
            };
            idem.execute(&request("k", "p"), effect).await
        }
    });
    tokio::task::block_in_place(|| is_entered.recv_timeout(Duration::from_secs(20))).unwrap();
    let mut closing = Box::pin(idem.store().close());
    // Asked once, it waits.
    assert!((&mut closing).now_or_never().is_none());
    let other = tokio::time::timeout(Duration::from_secs(5), idem.receipt(&key("k"))).await;
    go.send(()).unwrap();
    let error = other.expect("it waits for nobody").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Closed), "{error:?}");
    assert_eq!(joined("the call", call).await.unwrap(), Outcome::Created(1));
    within("closing", closing).await.unwrap();
    assert!(has_record(&server, "k"));
}
