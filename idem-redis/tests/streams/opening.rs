//! What a queue is opened with.

use std::time::Duration;

use idem_core::{Certainty, Error, ErrorKind, consumer::Queue};
use idem_redis::{
    streams::{StreamBuilder, StreamQueue},
    testing::{Cluster, Server},
};

use crate::setup::*;

async fn open_error(builder: StreamBuilder, url: &str) -> Error {
    let error = builder.open(url).await.unwrap_err();
    assert_eq!(error.certainty(), Certainty::NothingDone);
    error
}

async fn works(builder: StreamBuilder, url: &str) {
    let queue = builder.open(url).await.unwrap();
    let id = send(&queue, 1).await;
    let delivery = one(&queue).await;
    assert_eq!(delivery.event_id, id);
    queue.ack(&delivery.tag).await.unwrap();
    nothing_comes(&queue).await;
}

#[tokio::test]
async fn a_bad_setting_is_refused_by_its_name() {
    // Before any server is asked: nobody listens there.
    let url = "redis://127.0.0.1:1";
    let settings = [
        ("stream", StreamQueue::builder("", "billing").dead_letters("dead")),
        ("group", StreamQueue::builder("orders", "")),
        ("consumer", builder().consumer("")),
        ("consumer", builder().consumer("idem:given-back")),
        ("dead letters", builder().dead_letters("")),
        ("dead letters", builder().dead_letters("orders")),
        ("event id field", builder().event_id_field("")),
    ];
    for (name, builder) in settings {
        let error = open_error(builder, url).await;
        let is_named =
            matches!(error.kind(), ErrorKind::InvalidSetting { field, .. } if *field == name);
        assert!(is_named, "{name}: {error:?}");
    }
    let (none, long) =
        (Duration::ZERO, Duration::from_secs(24 * 60 * 60) + Duration::from_nanos(1));
    let times = [
        ("visibility", builder().visibility(none)),
        ("visibility", builder().visibility(Duration::MAX)),
        ("block", builder().block(none)),
        ("block", builder().block(Duration::from_micros(999))),
        ("block", builder().block(long)),
        ("horizon", builder().horizon(none)),
        ("connection timeout", builder().connection_timeout(none)),
        ("response timeout", builder().response_timeout(long)),
    ];
    for (name, builder) in times {
        let error = open_error(builder, url).await;
        let is_named =
            matches!(error.kind(), ErrorKind::InvalidDuration { field, .. } if *field == name);
        assert!(is_named, "{name}: {error:?}");
    }
}

#[tokio::test]
async fn settings_are_what_they_were_told() {
    let server = Server::start().unwrap();
    let horizon = Duration::from_secs(7 * 24 * 60 * 60);
    let queue = builder().consumer("worker-1").visibility(Duration::from_micros(1_001));
    let queue = queue.horizon(horizon).open(&server.url()).await.unwrap();
    assert_eq!(queue.consumer(), "worker-1");
    assert_eq!(queue.visibility(), Some(Duration::from_millis(2)), "rounded up");
    assert_eq!(queue.horizon(), Some(horizon));
    assert!(format!("{queue:?}").contains("worker-1"));
}

#[tokio::test]
async fn every_way_to_one_server_works() {
    let server = Server::builder().password("secret").start().unwrap();
    let user = ["ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all"];
    server.command(&user).unwrap();
    let address = server.address();
    for url in [
        server.url(),
        server.unix_url(),
        format!("{}&db=2", server.unix_url()),
        format!("{}&db=4&protocol=resp3", server.unix_url()),
        format!("redis://app:pw@{address}/3"),
    ] {
        works(builder(), &url).await;
    }
    let elsewhere: u64 = server.query(&["XLEN", "orders"]).unwrap();
    assert_eq!(elsewhere, 2, "the others are in databases of their own");
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn a_server_is_reached_by_tls() {
    let certificates = idem_redis::testing::Certificates::for_localhost().unwrap();
    let server = Server::builder().tls(&certificates).password("secret").start().unwrap();
    works(builder().root_certificates(certificates.authority()), &server.url()).await;
}

#[tokio::test]
async fn a_cluster_is_refused() {
    for url in ["redis+cluster://:hunter2@a,b", "rediss+cluster://:hunter2@a"] {
        let error = open_error(builder(), url).await;
        let is_url = matches!(error.kind(), ErrorKind::InvalidSetting { field: "URL", .. });
        assert!(is_url, "{error:?}");
        assert!(!format!("{error:?}").contains("hunter2"));
    }
    let cluster = Cluster::shared().unwrap();
    let mut refused = 0;
    for node in cluster.nodes() {
        if let Err(error) = builder().open(&node.url()).await {
            let is_url = matches!(error.kind(), ErrorKind::InvalidSetting { field: "URL", .. });
            assert!(is_url, "{error:?}");
            refused += 1;
        }
    }
    assert_eq!(refused, 2, "one of three has the stream's slot");
}

#[tokio::test]
async fn a_server_that_does_not_let_us_in_is_told() {
    let server = Server::builder().password("secret").start().unwrap();
    let error = open_error(builder(), &format!("redis://{}", server.address())).await;
    assert!(matches!(error.kind(), ErrorKind::Denied), "{error:?}");
    let hasty = builder().response_timeout(Duration::from_millis(50));
    let error = open_error(hasty, "redis://127.0.0.1:1").await;
    assert!(matches!(error.kind(), ErrorKind::Unreachable { .. }), "{error:?}");
    let error = open_error(builder(), "orders").await;
    assert!(matches!(error.kind(), ErrorKind::InvalidSetting { field: "URL", .. }), "{error:?}");
}

#[tokio::test]
async fn a_key_that_holds_something_else_is_told() {
    let server = Server::start().unwrap();
    server.command(&["SET", "orders", "text"]).unwrap();
    let error = open_error(builder(), &server.url()).await;
    assert!(matches!(error.kind(), ErrorKind::Damaged { .. }), "{error:?}");
    server.command(&["DEL", "orders"]).unwrap();
    let queue = open(&server).await;
    server.command(&["SET", "orders", "text"]).unwrap();
    let error = queue.receive(1).await.unwrap_err();
    assert!(matches!(kind_of(&error), ErrorKind::Damaged { .. }), "{error:?}");
    let error = queue.send([("number", "1")]).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Damaged { .. }), "{error:?}");
    server.command(&["DEL", "orders"]).unwrap();
    send(&queue, 1).await;
    one(&queue).await;
}

#[tokio::test]
async fn an_entry_without_fields_is_refused() {
    let server = Server::start().unwrap();
    let queue = open(&server).await;
    let error = queue.send([("", ""); 0]).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InvalidSetting { field: "fields", .. }), "{error:?}");
    queue.send([("", "")]).await.unwrap();
    assert_eq!(one(&queue).await.message.fields.len(), 1);
}
