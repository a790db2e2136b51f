//! Stores by their URLs.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]
#![cfg_attr(
    not(any(feature = "memory", feature = "sled", feature = "sqlite")),
    allow(unused_imports)
)]

use idem_store::{DynStore, Error, ErrorKind, Idem, Key, Outcome, Request};
use std::sync::Arc;

async fn refused(url: &str) -> String {
    match idem_store::open(url).await {
        Ok(_) => panic!("{url} must not open"),
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::InvalidSetting { .. }), "{url}: {error:?}");
            error.to_string()
        }
    }
}

#[cfg(any(feature = "memory", feature = "sqlite", feature = "sled", feature = "redis"))]
async fn works(store: Arc<DynStore>) -> Result<Idem<Arc<DynStore>>, Error> {
    let idem = Idem::new(store);
    let request = Request::new(Key::new("north", "sign-up", "a")?);
    for expected in [Outcome::Created(7), Outcome::Replayed(7)] {
        let outcome = idem.execute(&request, |tx| {
            tx.put(b"name", b"value")?;
            Ok(7)
        });
        assert_eq!(outcome.await?, expected);
    }
    let value = idem.value(&request.key().space(), b"name").await?;
    assert_eq!(value.as_deref(), Some(&b"value"[..]));
    Ok(idem)
}

#[tokio::test]
async fn what_is_no_url_says_what_to_do() {
    assert!(refused("orders.db").await.contains("begin it with one"));
    assert!(refused("").await.contains("no scheme"));
    let unknown = refused("postgres://localhost").await;
    assert!(unknown.contains("`postgres:`") && unknown.contains("`sqlite:`"), "{unknown}");
    assert!(refused("sqlite:a#b").await.contains("%23"));
    assert!(refused("sqlite:%ff").await.contains("UTF-8"));
    for bad in ["sqlite:a%zz.db", "sqlite:a%", "sqlite:a%2", "sqlite:100%.db"] {
        assert!(refused(bad).await.contains("%25"), "{bad}");
    }
    assert!(refused("://").await.contains("no scheme"));
    for secret in [
        "hunter2@localhost:6379",
        "redis://:my?hunter2@localhost",
        "redis://:my?speculative=hunter2@localhost",
        "hunter2:x@localhost",
        "redis+unix:///tmp/s?pass=my&hunter2",
        "redis+unix:///tmp/s?pass=my&hunter2&hunter2",
        "redis+unix:///tmp/s?pass=my&speculative=hunter2",
        "redis+unix:///tmp/s?pass=my&response_timeout_ms=hunter2",
        "REDIS+UNIX:///tmp/s?pass=my&protocol=hunter2",
        "redis+unx:///tmp/s?pass=my&hunter2&hunter2",
    ] {
        assert!(!refused(secret).await.contains("hunter2"), "{secret}");
    }
}

#[cfg(not(feature = "memory"))]
#[tokio::test]
async fn a_scheme_whose_feature_is_off_names_the_feature() {
    assert!(refused("memory:").await.contains("feature `memory`"));
}

#[cfg(not(feature = "sqlite"))]
#[tokio::test]
async fn a_scheme_whose_feature_is_off_names_the_feature_sqlite() {
    assert!(refused("sqlite:orders.db").await.contains("feature `sqlite`"));
}

#[cfg(not(feature = "sled"))]
#[tokio::test]
async fn a_scheme_whose_feature_is_off_names_the_feature_sled() {
    assert!(refused("sled:orders").await.contains("feature `sled`"));
}

#[cfg(feature = "memory")]
#[tokio::test]
async fn memory_opens_with_its_options() {
    works(idem_store::open("memory:").await.unwrap()).await.unwrap();
    let one = works(idem_store::open("memory:?capacity=2").await.unwrap()).await.unwrap();
    let request = Request::new(Key::new("north", "sign-up", "b").unwrap());
    let full = one.execute(&request, |_| Ok(())).await.unwrap_err();
    assert!(matches!(full.kind(), ErrorKind::Full), "{full:?}");
    assert!(refused("memory:here").await.contains("no path"));
    assert!(refused("memory:?size=1").await.contains("no option `size`: it has `capacity`"));
    assert!(refused("memory:?capacity=0").await.contains("`capacity` is `0`"));
    assert!(refused("memory:?capacity=many").await.contains("`capacity` is `many`"));
    assert!(refused("memory:?capacity=1&capacity=2").await.contains("twice"));
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn sqlite_opens_a_file_with_its_options_and_keeps_it() {
    let folder = tempfile::tempdir().unwrap();
    let odd = folder.path().join("50% of #1?.db");
    let escaped = odd.display().to_string();
    let escaped = escaped.replace('%', "%25").replace('#', "%23").replace('?', "%3F");
    let url =
        format!("sqlite:{escaped}?synchronous=normal&busy_timeout_ms=100&dedicated_writer=true");
    let idem = works(idem_store::open(&url).await.unwrap()).await.unwrap();
    assert_eq!(idem.guarantees().durability, idem_store::Durability::ProcessCrash);
    idem.close().await.unwrap();
    assert!(odd.exists());
    let again = Idem::new(idem_store::open(&format!("sqlite:{escaped}")).await.unwrap());
    let request = Request::new(Key::new("north", "sign-up", "a").unwrap());
    assert_eq!(again.execute(&request, |_| Ok(0)).await.unwrap(), Outcome::Replayed(7));
}

#[cfg(feature = "sled")]
#[tokio::test]
async fn sled_opens_a_folder_with_its_options_and_keeps_it() {
    let folder = tempfile::tempdir().unwrap();
    let odd = folder.path().join("50% of #1?");
    let escaped = odd.display().to_string();
    let escaped = escaped.replace('%', "%25").replace('#', "%23").replace('?', "%3F");
    let idem = works(idem_store::open(&format!("sled:{escaped}?synchronous=flush")).await.unwrap());
    let idem = idem.await.unwrap();
    assert_eq!(idem.guarantees().durability, idem_store::Durability::ProcessCrash);
    idem.close().await.unwrap();
    assert!(odd.is_dir());
    let again =
        Idem::new(idem_store::open(&format!("sled:{escaped}?synchronous=full")).await.unwrap());
    assert_eq!(again.guarantees().durability, idem_store::Durability::PowerLoss);
    let request = Request::new(Key::new("north", "sign-up", "a").unwrap());
    assert_eq!(again.execute(&request, |_| Ok(0)).await.unwrap(), Outcome::Replayed(7));
}

#[cfg(feature = "sled")]
#[tokio::test]
async fn bad_options_of_sled_are_refused() {
    assert!(refused("sled:").await.contains("`sled:orders`"));
    assert!(refused("sled://orders").await.contains("`sled:orders`"));
    let unknown = refused("sled:x?sync=full").await;
    assert!(unknown.contains("no option `sync`: it has `synchronous`"), "{unknown}");
    assert!(refused("sled:x?synchronous=off").await.contains("`full` or `flush`"));
    assert!(!std::path::Path::new("x").exists(), "nothing may be created");
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn sqlite_in_memory_opens_and_bad_options_are_refused() {
    works(idem_store::open("sqlite::memory:").await.unwrap()).await.unwrap();
    works(idem_store::open("SQLite::memory:").await.unwrap()).await.unwrap();
    for bad in ["sqlite:", "sqlite::memory", "sqlite::"] {
        assert!(refused(bad).await.contains("`sqlite::memory:`"), "{bad}");
    }
    assert!(refused("sqlite://orders.db").await.contains("`sqlite:orders.db`"));
    assert!(refused("sqlite:///tmp/orders.db").await.contains("`sqlite:/`"));
    let unknown = refused("sqlite:x.db?sync=normal").await;
    assert!(unknown.contains("no option `sync`") && unknown.contains("`synchronous`"), "{unknown}");
    assert!(refused("sqlite:x.db?synchronous=off").await.contains("`full` or `normal`"));
    assert!(refused("sqlite:x.db?busy_timeout_ms=soon").await.contains("milliseconds"));
    assert!(refused("sqlite:x.db?dedicated_writer=maybe").await.contains("`true` or `false`"));
    assert!(!std::path::Path::new("x.db").exists(), "nothing may be created");
    let zero = idem_store::open("sqlite:x.db?busy_timeout_ms=0").await;
    let Err(error) = zero else { panic!("zero is no timeout") };
    assert!(matches!(error.kind(), ErrorKind::InvalidDuration { .. }), "{error:?}");
}

/// That what runs effects can be spawned, whatever the store: a compile-time matter first of all.
#[cfg(all(feature = "memory", feature = "sqlite", feature = "test-support"))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_can_be_spawned_on_a_store_chosen_at_run_time() {
    use std::time::Duration;

    use idem_store::{
        Claim, LeasedOutcome, OnFailure,
        consumer::{Consumed, Handler, Options, Recorder, consume, drain},
        testing::MemoryQueue,
    };
    for url in ["memory:", "sqlite::memory:"] {
        let idem = Idem::new(idem_store::open(url).await.unwrap());
        let handler = Handler::atomic(&idem, "billing", |tx, amount: &u64| {
            Ok(tx.put(b"amount", &amount.to_be_bytes())?)
        });
        let handler = handler.unwrap();
        let spawned = tokio::spawn(async move {
            let request = Request::new(Key::new("north", "order", "a")?);
            let effect = idem.execute(&request, |tx| {
                tx.put(b"name", b"value")?;
                Ok(1)
            });
            assert_eq!(effect.await?, Outcome::Created(1));
            let bytes = Request::new(Key::new("north", "order", "b")?);
            let stored = idem.execute_bytes(&bytes, |_| Ok("b".into())).await?;
            assert_eq!(stored, Outcome::Created("b".into()));
            assert!(idem.receipt(request.key()).await?.is_some());
            assert!(idem.forget(request.key()).await?);
            assert_eq!(idem.list(None, 10).await?.records.len(), 1);
            assert_eq!(idem.purge(10).await?.removed, 0);
            let lease = Duration::from_secs(30);
            let request = Request::new(Key::new("north", "order", "c")?);
            let mut held = idem.claim::<u64>(&request, lease).await?.lease().unwrap();
            held.renew(lease).await?;
            let kept = held.keep_alive(lease / 3, lease, async { 7 }).await?;
            held.complete_with(move |tx| {
                tx.put(b"name", b"value")?;
                Ok(kept.output)
            })
            .await?;
            let patient = request.clone().wait_for(lease);
            let claim = idem.claim::<u64>(&patient, lease).await?;
            assert!(matches!(claim, Claim::Replayed(7)));
            for (name, is_released) in [("d", true), ("e", false)] {
                let request = Request::new(Key::new("north", "order", name)?);
                let held = idem.claim_bytes(&request, lease).await?.lease().unwrap();
                if is_released {
                    held.release().await?;
                } else {
                    held.end().await?;
                }
            }
            let work = |_| async { Ok::<_, std::io::Error>(7) };
            let request = Request::new(Key::new("north", "order", "f")?);
            let ran = idem.run_leased(&request, lease, |_| OnFailure::Release, work).await?;
            assert!(matches!(ran, LeasedOutcome::Created(7)));
            let space = request.key().space();
            assert!(idem.value(&space, b"name").await?.is_some());
            assert_eq!(handler.handle("1", 7).await?, idem_store::consumer::Handled::Ran);
            let queue = MemoryQueue::new();
            queue.send("1", 7);
            let options = Options::new();
            assert_eq!(drain(&queue, &handler, &options).await?.duplicates, 1);
            let consumed = consume(&queue, &handler, &options, async {}).await?;
            assert_eq!(consumed, Consumed::default());
            assert!(idem.is_processed("billing", "1").await?);
            let _again = idem.mark_processed("billing", "1").await?;
            idem.close().await
        });
        spawned.await.unwrap().unwrap();
    }
}

#[cfg(not(feature = "redis"))]
#[tokio::test]
async fn a_scheme_whose_feature_is_off_names_the_feature_redis() {
    assert!(refused("redis://localhost").await.contains("feature `redis`"));
    assert!(refused("rediss://localhost").await.contains("feature `redis-tls`"));
    assert!(refused("redis+cluster://a,b").await.contains("feature `redis-cluster`"));
}

#[cfg(feature = "redis")]
mod redis {
    use super::{refused, works};
    use idem_redis::testing::Server;
    use idem_store::{Error, ErrorKind, Idem, Key, Outcome, Request};

    async fn sign_up(url: &str) -> Result<Outcome<u8>, Error> {
        let idem = Idem::new(idem_store::open(url).await?);
        let request = Request::new(Key::new("north", "sign-up", "a")?);
        idem.execute(&request, |_| Ok(0)).await
    }

    #[tokio::test]
    async fn a_server_opens_with_its_options_and_prefixes_are_apart() {
        let server = Server::start().unwrap();
        let url = server.url();
        let options =
            "prefix=shop&speculative=true&connection_timeout_ms=900&response_timeout_ms=900";
        let idem = works(idem_store::open(&format!("{url}/0?{options}")).await.unwrap()).await;
        assert!(idem.unwrap().guarantees().speculative);
        assert_eq!(sign_up(&format!("{url}?prefix=shop")).await.unwrap(), Outcome::Replayed(7));
        assert_eq!(sign_up(&url).await.unwrap(), Outcome::Created(0), "another prefix");
        // A plus is a plus.
        for (prefix, expected) in [
            ("a+b", Outcome::Created(0)),
            ("a%2Bb", Outcome::Replayed(0)),
            ("a%20b", Outcome::Created(0)),
        ] {
            let outcome = sign_up(&format!("{url}?prefix={prefix}")).await.unwrap();
            assert_eq!(outcome, expected, "{prefix}");
        }
        let other = format!("REDIS://{}/1?prefix=shop", server.address());
        assert_eq!(sign_up(&other).await.unwrap(), Outcome::Created(0), "another database");
    }

    #[tokio::test]
    async fn a_socket_opens_with_its_database_and_its_password() {
        let server = Server::start().unwrap();
        server.command(&["CONFIG", "SET", "requirepass", "p+w?&/:@%"]).unwrap();
        let socket = server.socket().display().to_string();
        let url = format!("redis+unix://{socket}?db=2&pass=p%2Bw%3F%26%2F%3A%40%25&prefix=shop");
        works(idem_store::open(&url).await.unwrap()).await.unwrap();
        assert_eq!(sign_up(&url).await.unwrap(), Outcome::Replayed(7));
        let by_port =
            format!("redis://:p%2Bw%3F%26%2F%3A%40%25@{}/2?prefix=shop", server.address());
        assert_eq!(sign_up(&by_port).await.unwrap(), Outcome::Replayed(7));
        let denied = sign_up(&format!("redis://:secret@{}", server.address())).await.unwrap_err();
        assert!(matches!(denied.kind(), ErrorKind::Denied), "{denied:?}");
        assert!(!format!("{denied:?} {denied}").contains("secret"));
    }

    #[tokio::test]
    async fn bad_options_are_refused() {
        assert!(refused("redis://h?speculative=maybe").await.contains("`true` or `false`"));
        assert!(refused("redis://h?response_timeout_ms=soon").await.contains("milliseconds"));
        assert!(refused("redis://h?prefix=a%zz").await.contains("%25"));
        assert!(refused("redis://h?prefix=a{b").await.contains("hash slot"));
        assert!(refused("redis://h?prefix=").await.contains("1 to 255 bytes"));
        let unknown = refused("redis+unix:///tmp/s?pas=word").await;
        assert!(unknown.contains("`pass`") && !unknown.contains("`pas`"), "{unknown}");
        let unknown = refused("redis://h?db=1").await;
        assert!(!unknown.contains("`db`") && unknown.contains("`prefix`"), "{unknown}");
        for cut in
            ["redis://:my?hunter2", "rediss://:my?hunter2%40h:1", "redis+cluster://:my?hunter2"]
        {
            assert!(!refused(cut).await.contains("hunter2"), "{cut}");
        }
        assert!(refused("redis:localhost").await.contains("`redis://`"));
        #[cfg(not(feature = "redis-tls"))]
        assert!(refused("rediss://h").await.contains("feature"));
        #[cfg(not(feature = "redis-cluster"))]
        assert!(refused("redis+cluster://a,b").await.contains("feature"));
        let zero = idem_store::open("redis://h?response_timeout_ms=0").await;
        let Err(error) = zero else { panic!("zero is no timeout") };
        assert!(matches!(error.kind(), ErrorKind::InvalidDuration { .. }), "{error:?}");
    }

    #[cfg(feature = "redis-cluster")]
    #[tokio::test]
    async fn a_cluster_opens_by_some_of_its_servers() {
        let cluster = idem_redis::testing::Cluster::shared().unwrap();
        let nodes = &cluster.nodes()[..2];
        let hosts: Vec<_> = nodes.iter().map(|node| node.address().to_string()).collect();
        let url = format!("redis+cluster://{}?prefix=shop", hosts.join(","));
        works(idem_store::open(&url).await.unwrap()).await.unwrap();
        assert_eq!(sign_up(&url).await.unwrap(), Outcome::Replayed(7));
    }
}
