//! Calls without a runtime, and with another one than the store was opened in.

use futures_util::future::FutureExt;
use idem_core::{Certainty, ErrorKind, Outcome};
use idem_redis::testing::Server;

use crate::setup::*;

/// A call from no runtime at all is an error, whether the store has a connection or not.
#[test]
fn a_call_outside_a_runtime_is_refused() {
    let server = Server::start().unwrap();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let idem = runtime.block_on(open(&server.url()));
    let outside = |idem: &Front| {
        let error = put(idem, "k").now_or_never();
        let error = error.expect("it does not wait").unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Store), "{error:?}");
        assert_eq!(error.certainty(), Certainty::NothingDone);
    };
    outside(&idem);
    assert_eq!(runtime.block_on(put(&idem, "k")).unwrap(), Outcome::Created(1));
    outside(&idem);
    drop(runtime);
    outside(&idem);
    // The connection has gone with its runtime; another runtime opens another.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert_eq!(runtime.block_on(put(&idem, "k")).unwrap(), Outcome::Replayed(1));
}
