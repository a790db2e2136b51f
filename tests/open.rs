//! Stores by their URLs.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]
#![cfg_attr(not(any(feature = "memory", feature = "sqlite")), allow(unused_imports))]

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

#[cfg(any(feature = "memory", feature = "sqlite"))]
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
    assert!(refused("://").await.contains("no scheme `:`"));
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

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn sqlite_in_memory_opens_and_bad_options_are_refused() {
    works(idem_store::open("sqlite::memory:").await.unwrap()).await.unwrap();
    works(idem_store::open("SQLite::memory:").await.unwrap()).await.unwrap();
    assert!(refused("sqlite:").await.contains("path"));
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
