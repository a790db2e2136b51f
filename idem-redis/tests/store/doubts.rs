//! What a call may say of itself when its answer was lost and the world went on meanwhile.

use std::{sync::Arc, time::Duration};

use idem_core::{
    Certainty, Change, Error, ErrorKind, Outcome, Record, Step, Store, Timestamp,
    consumer::{Marked, Recorder},
};
use idem_redis::{
    RedisTransaction,
    testing::{Mode, Proxy, Server},
};

use crate::setup::{
    Front, add, claim, claimed, count, eventually, has_record, hasty, key, open, open_with, put,
    put_first, request, set,
};

/// A server, a store that reaches it directly, and one that reaches it through a proxy.
struct Place {
    server: Server,
    proxy: Proxy,
    direct: Front,
    through: Front,
}

impl Place {
    async fn new() -> Self {
        let server = Server::start().unwrap();
        let proxy = Proxy::before(&server).unwrap();
        let direct = open(&server.url()).await;
        let through = open_with(hasty(5000), &proxy.url()).await;
        // So that the scripts are known: a request is then one command.
        put_first(&through, "warm").await;
        assert!(through.forget(&key("warm")).await.unwrap());
        assert_eq!(through.mark_processed("billing", "warm").await.unwrap(), Marked::First);
        claimed(&through, "warm").await;
        Self { server, proxy, direct, through }
    }

    /// Makes `call` through the proxy, which cuts after the request that holds `containing` and takes no
    /// connection before `meanwhile` is over.
    async fn lost<T>(
        &self,
        containing: &'static [u8],
        call: impl Future<Output = T>,
        meanwhile: impl Future<Output = ()>,
    ) -> T {
        self.proxy.set(Mode::CutAfterRequest { times: 1, containing });
        self.proxy.close();
        let meanwhile = async {
            meanwhile.await;
            self.proxy.open().unwrap();
        };
        tokio::join!(call, meanwhile).0
    }
}

fn assert_unknown<T: std::fmt::Debug>(answer: Result<T, Error>) {
    assert_eq!(answer.unwrap_err().certainty(), Certainty::Unknown);
}

#[tokio::test]
async fn a_forget_whose_answer_was_lost_never_touches_what_has_come_since() {
    let place = Place::new().await;
    put_first(&place.direct, "f").await;
    let meanwhile = async {
        eventually("the removal", || !has_record(&place.server, "f")).await;
        put_first(&place.direct, "f").await;
    };
    let key = key("f");
    assert_unknown(place.lost(b"remove", place.through.forget(&key), meanwhile).await);
    assert_eq!(put(&place.direct, "f").await.unwrap(), Outcome::Replayed(1));
}

#[tokio::test]
async fn a_forget_whose_answer_was_lost_does_not_say_that_there_was_nothing() {
    let place = Place::new().await;
    put_first(&place.direct, "f").await;
    let key = key("f");
    let meanwhile = eventually("the removal", || !has_record(&place.server, "f"));
    assert_unknown(place.lost(b"remove", place.through.forget(&key), meanwhile).await);
    assert!(!place.through.forget(&key).await.unwrap(), "asked again, it tells");
}

#[tokio::test]
async fn a_first_mark_whose_answer_was_lost_is_never_called_a_second() {
    let place = Place::new().await;
    let marked = || place.server.query(&["EXISTS", "idem:{cbilling}:r:0::7"]).unwrap();
    let meanwhile = async {
        eventually("the mark", marked).await;
        set(&place.server, "maxmemory", "1");
    };
    let call = place.through.mark_processed("billing", "7");
    let error = place.lost(b"EVALSHA", call, meanwhile).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Full), "{error:?}");
    assert_eq!(error.certainty(), Certainty::Unknown);
    set(&place.server, "maxmemory", "0");
    assert_eq!(place.through.mark_processed("billing", "7").await.unwrap(), Marked::Again);
}

#[tokio::test]
async fn a_claim_whose_answer_was_lost_is_never_anothers() {
    let place = Place::new().await;
    let meanwhile = async {
        eventually("the claim", || has_record(&place.server, "c")).await;
        set(&place.server, "maxmemory", "1");
    };
    assert_unknown(place.lost(b"EVALSHA", claim(&place.through, "c"), meanwhile).await);
}

#[tokio::test]
async fn a_commit_that_may_have_been_purged_is_not_sent_again() {
    let place = Place::new().await;
    let short = request("s", "p").retain(Duration::from_millis(50));
    let purged = async {
        eventually("the commit", || has_record(&place.server, "s")).await;
        while place.direct.purge(10).await.unwrap().removed == 0 {
            tokio::task::yield_now().await;
        }
    };
    let call = place.through.execute(&short, |tx| add(tx, "s"));
    assert_unknown(place.lost(b"completed", call, purged).await);
    assert_eq!(count(&place.direct, "s").await, 1, "one call, one effect");
}

/// Removes whatever there is, after a rival has done so.
struct Overtaken(Arc<dyn Fn() + Send + Sync>);

impl Step<RedisTransaction> for Overtaken {
    fn proceeds(&self, record: Option<&Record>, _: Timestamp) -> bool {
        record.is_some()
    }

    fn run(
        &mut self,
        _: &mut RedisTransaction,
        _: Option<&Record>,
        _: Timestamp,
    ) -> Result<Change, Error> {
        (self.0)();
        Ok(Change::Remove)
    }
}

/// Whether the loser of a race of two removals is told that it won.
async fn loser_ran(idem: &Front, rival: impl Fn() + Send + Sync + 'static) -> bool {
    put_first(idem, "f").await;
    let step = Box::new(Overtaken(Arc::new(rival)));
    idem.store().transact(&key("f"), step).await.unwrap().ran
}

#[tokio::test]
async fn of_two_removals_one_is_told_that_it_was_the_one() {
    let server = Arc::new(Server::start().unwrap());
    let idem = open(&server.url()).await;
    let name = crate::setup::record_name("f");
    let rival = move || {
        let _: i64 = server.query(&["DEL", &name]).unwrap();
    };
    assert!(!loser_ran(&idem, rival).await);
}

#[cfg(feature = "cluster")]
#[tokio::test]
async fn of_two_removals_on_a_cluster_one_is_told_that_it_was_the_one() {
    use crate::setup::{cluster_url, record_name};
    let cluster = idem_redis::testing::Cluster::start(3).unwrap();
    let idem = open(&cluster_url(&cluster)).await;
    let owner = cluster.node_of(&record_name("f")).unwrap();
    let rival = move || {
        let _: i64 = cluster.nodes()[owner].query(&["DEL", &record_name("f")]).unwrap();
    };
    assert!(!loser_ran(&idem, rival).await);
}
