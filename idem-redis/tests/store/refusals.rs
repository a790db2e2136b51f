//! Servers that refuse: each refusal has its kind, and nothing is done.

use std::{sync::Arc, thread, time::Instant};

use futures_util::future::join_all;
use idem_core::{Certainty, Error, ErrorKind, Outcome, consumer::Recorder};
use idem_redis::testing::{Cluster, Server};

use crate::{fake::Fake, setup::*};

async fn open_error(url: &str) -> Error {
    hasty(300).open(url).await.unwrap_err()
}

/// What passes by itself is waited for, and no longer than was asked.
#[tokio::test]
async fn a_server_that_is_not_ready_is_busy() {
    let replies = [
        "-LOADING Redis is loading the dataset in memory",
        "-CLUSTERDOWN The cluster is down",
        "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        "-TRYAGAIN Multiple keys request during rehashing of slot",
        "-BUSY Redis is busy running a script. You can only call SCRIPT KILL.",
        "-MISCONF Errors writing to the AOF file: No space left on device",
        "-NOREPLICAS Not enough good replicas to write.",
    ];
    // Long enough that no single answer is late on a loaded machine.
    let patience = 500;
    let busy = replies.map(|reply| async move {
        let server = Fake::start("7.0.15", reply);
        let idem = open_with(hasty(patience), server.url()).await;
        let started = Instant::now();
        for error in [
            put(&idem, "k").await.unwrap_err(),
            idem.mark_processed("billing", "7").await.unwrap_err(),
        ] {
            assert!(matches!(error.kind(), ErrorKind::Busy { .. }), "{reply}: {error:?}");
            assert_eq!(error.certainty(), Certainty::NothingDone, "{reply}");
        }
        assert!(started.elapsed().as_millis() >= u128::from(2 * patience), "{reply}");
        assert!(server.scripts() > 4, "it tried again: {reply}");
    });
    join_all(busy).await;
}

/// A server that reads its data is asked again until it has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_loads_its_data_is_waited_for() {
    let builder = Server::builder().arg("--enable-debug-command", "yes");
    let server = Arc::new(builder.start().unwrap());
    let idem = open(&server.url()).await;
    put_first(&idem, "k").await;
    server.command(&["DEBUG", "POPULATE", "2000"]).unwrap();
    // Microseconds for each key, and how often it listens meanwhile.
    set(&server, "key-load-delay", "200");
    set(&server, "loading-process-events-interval-bytes", "1024");
    let reloading = server.clone();
    let reload = thread::spawn(move || reloading.command(&["DEBUG", "RELOAD"]));
    eventually("the server to load", || {
        let state: String = server.query(&["INFO", "persistence"]).unwrap();
        state.contains("loading:1")
    })
    .await;
    assert_eq!(put(&idem, "k").await.unwrap(), Outcome::Replayed(1));
    put_first(&idem, "new").await;
    reload.join().unwrap().unwrap();
    let errors: String = server.query(&["INFO", "errorstats"]).unwrap();
    assert!(errors.contains("errorstat_LOADING"), "{errors}");
}

/// A primary that was told to take no writes without replicas.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_its_replicas_is_waited_for() {
    let server = Server::start().unwrap();
    let (hurried, patient) =
        (open_with(hasty(100), &server.url()).await, open(&server.url()).await);
    set(&server, "min-replicas-to-write", "1");
    let error = hurried.mark_processed("billing", "7").await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Busy { .. }), "{error:?}");
    assert_eq!(error.certainty(), Certainty::NothingDone);
    let call = tokio::spawn(async move { put(&patient, "k").await });
    let replica = Server::start().unwrap();
    replica.replicate_from(&server).unwrap();
    assert_eq!(joined("the call", call).await.unwrap(), Outcome::Created(1));
}

#[tokio::test]
async fn any_other_error_of_the_server_is_told_as_it_is() {
    let server = Fake::start("7.0.15", "-ERR something else");
    let error = put(&open(server.url()).await, "k").await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Store), "{error:?}");
    assert_eq!(error.certainty(), Certainty::NothingDone);
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("something else"), "{source}");
}

/// An answer that no script of the library's gives says nothing of whether it ran.
#[tokio::test]
async fn an_answer_of_another_kind_is_none() {
    for reply in ["+OK", "*0", "*2\r\n$1\r\n0\r\n$3\r\nodd", ":7", "$-1"] {
        let server = Fake::start("7.0.15", reply);
        let idem = open_with(hasty(50).speculative(true), server.url()).await;
        let error = put(&idem, "k").await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unreachable { .. }), "{error:?}");
        assert_eq!(error.certainty(), Certainty::Unknown);
    }
}

#[tokio::test]
async fn an_old_server_is_not_opened() {
    for version in ["6.2.0", "2.8.24", "", "odd"] {
        let server = Fake::start(version, "-ERR no");
        let error = open_error(server.url()).await;
        let ErrorKind::CannotOpen { problem, .. } = error.kind() else { panic!("{error:?}") };
        assert!(problem.contains(&format!("`{version}`")), "{problem}");
    }
    for version in ["7.0.0", "8.2.1", "10.0.0"] {
        hasty(300).open(Fake::start(version, "-ERR no").url()).await.unwrap();
    }
}

#[tokio::test]
async fn a_node_of_a_cluster_is_no_server() {
    let cluster = Cluster::shared().unwrap();
    let mut refused = 0;
    for node in cluster.nodes() {
        let idem = open(&node.url()).await;
        match put(&idem, "no-server").await {
            Ok(outcome) => assert!(outcome.result().is_some()),
            Err(error) => {
                let is_url = matches!(error.kind(), ErrorKind::InvalidSetting { field: "URL", .. });
                assert!(is_url, "{error:?}");
                assert_eq!(error.certainty(), Certainty::NothingDone);
                refused += 1;
            }
        }
    }
    assert_eq!(refused, 2, "one of three has the tenant's slot");
}
