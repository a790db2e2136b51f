//! The connection is cut at each request of each operation in turn, at each moment: what the caller is told agrees with
//! what the server holds, asking again settles it, and there is one effect.

use futures_util::future::join_all;
use idem_conformance::operations::{Operation, seen};
use idem_core::{Error, ErrorKind, Idem, Lease};
use idem_redis::{
    RedisBuilder, RedisStore,
    testing::{Mode, Moment, Proxy, Server},
};

use crate::setup::*;

/// An operation, and how it is disturbed.
#[derive(Clone, Copy, Debug)]
struct Case {
    operation: Operation,
    speculative: bool,
    moment: Moment,
    /// Whether no connection can be had any more until the caller gives up.
    lasts: bool,
}

impl Case {
    fn all() -> impl Iterator<Item = Self> {
        let speculative = [Operation::Execute, Operation::ExecuteReading].map(|one| (one, true));
        let operations = Operation::ALL.map(|one| (one, false)).into_iter().chain(speculative);
        let moments = [Moment::BeforeRequest, Moment::AfterRequest, Moment::WithinReply];
        operations.flat_map(move |(operation, speculative)| {
            moments.into_iter().flat_map(move |moment| {
                [false, true].map(|lasts| Self { operation, speculative, moment, lasts })
            })
        })
    }

    /// Cuts each request in turn, until there is none to be cut.
    async fn runs(self, server: &Server) {
        let mut number = 1;
        while self.cut_at(server, number).await {
            number += 1;
        }
        assert!(number > 1, "{self:?} sends nothing");
    }

    /// A store behind a proxy, prepared for the operation, a lease if it is about one, and a store that nobody disturbs.
    async fn prepared(self, server: &Server, what: &str) -> Result<Prepared, Error> {
        let proxy = Proxy::before(server).unwrap();
        // On names of its own, since one that is out of patience may leave something behind.
        let prefix = format!("{what}-{}", proxy.address().port());
        let direct = open_with(RedisStore::builder().prefix(&prefix), &server.url()).await;
        let idem = Idem::new(self.builder().prefix(&prefix).open(&proxy.url()).await?);
        let lease = self.operation.prepare(&idem).await?;
        let before = self.operation.states().0;
        let is_prepared = async { while seen(&direct).await.unwrap() != before {} };
        within("what was prepared, by the server's clock", is_prepared).await;
        Ok(Prepared { proxy, prefix, direct, idem, lease })
    }

    fn builder(self) -> RedisBuilder {
        // With a network that stays away all patience is waited out.
        let patience = if self.lasts { hasty_to_connect(1_000) } else { hasty(5_000) };
        patience.speculative(self.speculative)
    }

    /// Whether there was such a request.
    async fn cut_at(self, server: &Server, number: usize) -> bool {
        let Self { operation, moment, lasts, .. } = self;
        let what = format!("{operation:?}-{moment:?}-{lasts}-{number}");
        let prepared = patiently(&what, async || self.prepared(server, &what).await).await;
        let Prepared { proxy, prefix, direct, mut idem, lease } = prepared;

        proxy.set(Mode::CutAt { request: number, moment, lasts });
        let answer = within(&what, operation.ask(&idem, lease)).await;
        let was_cut = !matches!(proxy.mode(), Mode::CutAt { .. });
        proxy.set(Mode::Pass);

        if operation == Operation::Claim && answer.is_err() {
            // What is ended in the background is so by then.
            idem.close().await.unwrap();
            let open = async || self.builder().prefix(&prefix).open(&proxy.url()).await;
            idem = Idem::new(patiently(&what, open).await);
        }
        let found = seen(&direct).await.unwrap();
        operation.agrees(&answer, found);
        if !lasts {
            // It asks again, and finds out, unless nothing is left to know it by.
            let is_removal = matches!(operation, Operation::Forget | Operation::Release);
            assert!(answer.is_ok() || is_removal, "{what}: {answer:?}");
            assert_eq!(found, operation.states().1, "{what}");
        }
        if let Err(error) = &answer {
            assert!(matches!(error.kind(), ErrorKind::Unreachable { .. }), "{what}: {error:?}");
        }
        if operation != Operation::Drop {
            let again = async || operation.ask_again(&idem, seen(&direct).await?).await;
            patiently(&what, again).await;
        }
        was_cut
    }
}

struct Prepared {
    proxy: Proxy,
    prefix: String,
    direct: Front,
    idem: Front,
    lease: Option<Lease<RedisStore, u64>>,
}

/// Tries for as long as a loaded machine is too slow for who has little patience, with a bound.
pub(crate) async fn patiently<T>(what: &str, mut ask: impl AsyncFnMut() -> Result<T, Error>) -> T {
    let answered = async {
        loop {
            match ask().await {
                Ok(answer) => return answer,
                Err(error) if matches!(error.kind(), ErrorKind::Unreachable { .. }) => {}
                Err(error) => panic!("{what}: {error:?}"),
            }
        }
    };
    within(what, answered).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_that_is_cut_anywhere_says_the_truth_and_is_settled_when_asked_again() {
    let server = Server::start().unwrap();
    join_all(Case::all().map(|case| case.runs(&server))).await;
}
