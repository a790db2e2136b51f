//! Which server a URL names, and that no error shows it: it may hold a password.

use std::error::Error as _;

use idem_core::{Certainty, Error, ErrorKind, Idem, Outcome};
use idem_redis::{RedisStore, testing::Server};

use crate::setup::*;

const SECRET: &str = "hunter2";

async fn open_error(url: &str) -> Error {
    hasty(50).open(url).await.map(|_| panic!("{url} was opened")).unwrap_err()
}

/// Everything that an error says, its sources too.
fn said(error: &Error) -> String {
    let mut said = format!("{error} {error:?}");
    let mut source = error.source();
    while let Some(error) = source {
        said += &format!(" {error} {error:?}");
        source = error.source();
    }
    said
}

#[tokio::test]
async fn a_bad_url_is_refused_and_not_shown() {
    let urls = [
        "",
        "localhost:6379",
        "//:hunter2@localhost",
        "http://:hunter2@localhost",
        "REDIS://:hunter2@localhost",
        "valkey://:hunter2@localhost",
        "unix:///tmp/hunter2",
        "redis://",
        "redis://:hunter2@",
        "redis://:hunter2@localhost:port",
        "redis://:hunter2@localhost:99999",
        "redis://:hunter2@localhost/database",
        "redis://:hunter2@[::1",
        "redis://%ff:hunter2@localhost",
        "redis://:%ffhunter2@localhost",
        "redis://:hunter2@localhost?protocol=resp3",
        "redis://:hunter2@localhost/0?db=1",
        "redis://:hunter2@localhost?timeout=1",
        "rediss://:hunter2@localhost/#insecure-x",
        "redis+unix:///tmp/s?db=x&pass=hunter2",
        "redis+cluster://",
        "redis+cluster://:hunter2@",
        "redis+cluster://:hunter2@a,,b",
        "redis+cluster://:hunter2@a:port",
        "redis+cluster://:hunter2@a,b/1",
        "redis+cluster://:hunter2@a,b?x=1",
        "redis+cluster://:hunter2@a,:hunter2@b",
        // Passwords that are not escaped.
        "redis://u:1?protocol=hunter2@localhost",
        "redis://u:1/hunter2@localhost",
        "redis://u:1#hunter2@localhost",
        "redis://localhost:1#hunter2",
        "redis+cluster://u:1@a?protocol=hunter2@b",
        "redis+cluster://u:1/hunter2@a,b",
        "redis+cluster://u:1#hunter2@a,b",
        "redis+unix:///tmp/s?pass=x&protocol=hunter2",
        "redis+unix:///tmp/s?pass=x#hunter2",
    ];
    for url in urls {
        let error = open_error(url).await;
        let is_url = matches!(error.kind(), ErrorKind::InvalidSetting { field: "URL", .. });
        assert!(is_url, "{url}: {error:?}");
        assert_eq!(error.certainty(), Certainty::NothingDone);
        assert!(!said(&error).contains(SECRET), "{url}: {}", said(&error));
    }
    let unread = open_error("redis://localhost/database").await.to_string();
    assert!(unread.contains("Invalid database number"), "what is wrong is told: {unread}");
}

#[tokio::test]
async fn a_server_that_cannot_be_opened_is_told_without_the_password() {
    let server = Server::builder().password("another").start().unwrap();
    let unix = server.socket();
    let urls = [
        format!("redis://:{SECRET}@{}", server.address()),
        format!("redis://{SECRET}:{SECRET}@{}", server.address()),
        format!("redis+unix://{}?pass={SECRET}", unix.display()),
        format!("redis+cluster://:{SECRET}@{}", server.address()),
        format!("redis://:{SECRET}@127.0.0.1:1"),
        format!("redis+unix:///no/such/socket?pass={SECRET}"),
    ];
    for url in urls {
        let error = open_error(&url).await;
        assert!(!said(&error).contains(SECRET), "{}", said(&error));
        let (is_denied, is_away) = (
            matches!(error.kind(), ErrorKind::Denied),
            matches!(error.kind(), ErrorKind::Unreachable { .. }),
        );
        assert!(is_denied || is_away, "{error:?}");
    }
    let builder = format!("{:?}", RedisStore::builder());
    let store = format!("{:?}", RedisStore::open(&server.url()).await.unwrap());
    assert!(!builder.contains("another") && !store.contains("another"), "{builder} {store}");
}

#[tokio::test]
async fn a_unix_socket_leads_to_the_same_server() {
    let server = Server::builder().password("secret").start().unwrap();
    let (tcp, unix) = (open(&server.url()).await, open(&server.unix_url()).await);
    put_first(&unix, "k").await;
    assert_eq!(put(&tcp, "k").await.unwrap(), Outcome::Replayed(1));
    let second = open(&format!("{}&db=2", server.unix_url())).await;
    put_first(&second, "k").await;
}

#[tokio::test]
async fn databases_share_nothing() {
    let server = Server::start().unwrap();
    let first = open(&server.url()).await;
    let second = open(&format!("{}/1", server.url())).await;
    assert_eq!(added(&first, "k").await.unwrap(), Outcome::Created(1));
    assert_eq!(second.receipt(&key("k")).await.unwrap(), None);
    assert_eq!(count(&second, "k").await, 0);
    assert_eq!(second.list(None, 10).await.unwrap().records, []);
    assert_eq!(added(&second, "k").await.unwrap(), Outcome::Created(1));
    assert!(second.forget(&key("k")).await.unwrap());
    assert_eq!(added(&first, "k").await.unwrap(), Outcome::Replayed(1));
    for missing in ["-1", "16", "9999999"] {
        let error = open_error(&format!("{}/{missing}", server.url())).await;
        let is_the_urls = matches!(error.kind(), ErrorKind::InvalidSetting { field: "URL", .. });
        assert!(is_the_urls, "{missing}: {error:?}");
    }
    // Also after the connection was replaced.
    let _: i64 = server.query(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap_or_default();
    assert_eq!(second.receipt(&key("k")).await.unwrap(), None);
}

#[tokio::test]
async fn a_user_and_its_password_are_taken_from_the_url() {
    let server = Server::start().unwrap();
    // What is reserved in a URL is escaped there.
    let user = ["ACL", "SETUSER", "app:1", "on", ">p@ss/word", "~idem:*", "+@all"];
    server.command(&user).unwrap();
    let idem = open(&format!("redis://app%3A1:p%40ss%2Fword@{}", server.address())).await;
    assert_eq!(added(&idem, "k").await.unwrap(), Outcome::Created(1));
    let clients: String = server.query(&["CLIENT", "LIST"]).unwrap();
    assert!(clients.contains("user=app:1"), "{clients}");
    assert_eq!(idem.list(None, 10).await.unwrap().records.len(), 1);
}

/// All that a store with this prefix keeps.
async fn kept(idem: &Idem<RedisStore>) -> Vec<String> {
    let records = idem.list(None, 100).await.unwrap().records;
    let mut names: Vec<_> = records.iter().map(|(key, _)| key.request().to_string()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn prefixes_of_prefixes_share_nothing() {
    let server = Server::start().unwrap();
    let clock = idem_core::ManualClock::at(idem_core::Timestamp::from_millis(1_000));
    let prefixes = [
        "a", "aa", "a:", "a:b", "*", "a*", "?", "[a]", "a\\", "^", "[^a]", "é", "a b", "\"", "r:1",
    ];
    let mut stores = Vec::new();
    for prefix in prefixes {
        let builder = RedisStore::builder().prefix(prefix).clock(clock.clone());
        let idem = open_with(builder, &server.url()).await;
        assert_eq!(added(&idem, "k").await.unwrap(), Outcome::Created(1), "{prefix}");
        let own = request(&format!("of {prefix}"), "p");
        let outcome = idem.execute(&own, |tx| put_one(tx, "v")).await.unwrap();
        assert_eq!(outcome, Outcome::Created(1));
        stores.push((prefix, idem));
    }
    for (prefix, idem) in &stores {
        assert_eq!(kept(idem).await, ["k".to_string(), format!("of {prefix}")], "{prefix}");
    }
    clock.advance(std::time::Duration::from_secs(60));
    for (index, (prefix, idem)) in stores.iter().enumerate() {
        assert_eq!(idem.purge(100).await.unwrap().removed, 2, "{prefix}");
        let left: i64 = server.query(&["EVAL", COUNT_RECORDS, "0"]).unwrap();
        assert_eq!(usize::try_from(left).unwrap(), 2 * (prefixes.len() - 1 - index), "{prefix}");
    }
}

const COUNT_RECORDS: &str = "return #redis.call('KEYS', '*:r:5:order:*')";

#[tokio::test]
async fn settings_that_are_not_acceptable_are_refused() {
    let server = Server::start().unwrap();
    for prefix in ["", "a{b", "a}b", "a\nb", &"x".repeat(256)] {
        let error = RedisStore::builder().prefix(prefix).open(&server.url()).await.unwrap_err();
        let is_prefix = matches!(error.kind(), ErrorKind::InvalidSetting { field: "prefix", .. });
        assert!(is_prefix, "{prefix}: {error:?}");
    }
    for timeout in [std::time::Duration::ZERO, std::time::Duration::MAX] {
        for builder in [
            RedisStore::builder().response_timeout(timeout),
            RedisStore::builder().connection_timeout(timeout),
        ] {
            let error = builder.open(&server.url()).await.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::InvalidDuration { .. }), "{error:?}");
        }
    }
}

#[tokio::test]
async fn a_user_who_may_not_choose_a_database_is_told_so() {
    let server = Server::start().unwrap();
    let address = server.address();
    let rights = ["ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", "-select"];
    server.command(&rights).unwrap();
    let error = hasty(300).open(&format!("redis://app:pw@{address}/3")).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Denied), "{error:?}");
}

#[cfg(feature = "cluster")]
#[tokio::test]
async fn a_cluster_that_announces_no_host_is_where_it_was_asked() {
    use idem_redis::testing::Cluster;
    let builder = Server::builder().arg("--cluster-preferred-endpoint-type", "unknown-endpoint");
    let cluster = Cluster::start_with(3, &builder).unwrap();
    let idem = open(&cluster_url(&cluster)).await;
    assert_eq!(added(&idem, "n").await.unwrap(), Outcome::Created(1));
    assert_eq!(idem.list(None, 10).await.unwrap().records.len(), 1);
}
