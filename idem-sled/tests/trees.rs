//! The user's own trees, committed together with the receipt.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::atomic::{AtomicU32, Ordering};

use common::{opened, request, space};
use idem_core::{EffectError, ErrorKind, Idem, Key, Outcome, Request, Transaction};
use idem_sled::{SledStore, SledTransaction};
use tempfile::TempDir;

async fn fresh() -> (TempDir, Idem<SledStore>) {
    let folder = TempDir::new().unwrap();
    let idem = opened(folder.path()).await.unwrap();
    (folder, idem)
}

/// What is under a key of a tree, read outside any effect.
fn stored(idem: &Idem<SledStore>, tree: &str, key: &[u8]) -> Option<Vec<u8>> {
    let tree = idem.store().db().unwrap().open_tree(tree).unwrap();
    tree.get(key).unwrap().map(|value| value.to_vec())
}

#[tokio::test]
async fn an_effect_writes_to_several_trees_and_its_space_in_one_commit() {
    let (folder, idem) = fresh().await;
    let effect = |tx: &mut SledTransaction| {
        tx.put(b"portable", b"1")?;
        let mut orders = tx.tree("orders")?;
        orders.insert("a", "2")?;
        orders.insert("", "")?;
        assert_eq!(orders.get("a")?.as_deref(), Some(&b"2"[..]));
        tx.tree([0xff, 0x00])?.insert("b", "3")?;
        Ok(())
    };
    assert_eq!(idem.execute(&request("a"), effect).await.unwrap(), Outcome::Created(()));
    idem.close().await.unwrap();
    let idem = opened(folder.path()).await.unwrap();
    assert_eq!(stored(&idem, "orders", b"a"), Some(b"2".to_vec()));
    assert_eq!(stored(&idem, "orders", b""), Some(Vec::new()));
    let odd = idem.store().db().unwrap().open_tree([0xff, 0x00]).unwrap();
    assert_eq!(odd.get("b").unwrap().unwrap(), b"3");
    assert_eq!(idem.value(&space(), b"portable").await.unwrap().as_deref(), Some(&b"1"[..]));
    let remove = |tx: &mut SledTransaction| {
        let mut orders = tx.tree("orders")?;
        orders.remove("a")?;
        orders.remove("never there")?;
        Ok(orders.get("a")?.is_none())
    };
    assert_eq!(idem.execute(&request("b"), remove).await.unwrap(), Outcome::Created(true));
    assert_eq!(stored(&idem, "orders", b"a"), None);
    assert_eq!(stored(&idem, "orders", b""), Some(Vec::new()));
}

#[tokio::test]
async fn an_error_or_a_panic_leaves_nothing_in_any_tree() {
    let (_folder, idem) = fresh().await;
    let write = |tx: &mut SledTransaction| -> Result<(), EffectError> {
        tx.put(b"portable", b"1")?;
        tx.tree("orders")?.insert("a", "1")?;
        Ok(())
    };
    let failing = move |tx: &mut SledTransaction| -> Result<(), EffectError> {
        write(tx)?;
        Err("declined".into())
    };
    let panicking = move |tx: &mut SledTransaction| -> Result<(), EffectError> {
        write(tx)?;
        panic!("it breaks")
    };
    assert!(idem.execute(&request("a"), failing).await.is_err());
    assert!(idem.execute(&request("a"), panicking).await.is_err());
    assert_eq!(stored(&idem, "orders", b"a"), None);
    assert_eq!(idem.value(&space(), b"portable").await.unwrap(), None);
    assert_eq!(idem.execute(&request("a"), write).await.unwrap(), Outcome::Created(()));
    assert_eq!(stored(&idem, "orders", b"a"), Some(b"1".to_vec()));
}

#[tokio::test]
async fn what_is_read_is_compared_with_writes_beside_the_store_too() {
    let (_folder, idem) = fresh().await;
    let db = idem.store().db().unwrap();
    let orders = db.open_tree("orders").unwrap();
    orders.insert("n", "1").unwrap();
    let runs = AtomicU32::new(0);
    let effect = move |tx: &mut SledTransaction| {
        let n = tx.tree("orders")?.get("n")?.unwrap();
        let n: u32 = std::str::from_utf8(&n)?.parse()?;
        let run = runs.fetch_add(1, Ordering::SeqCst);
        if run == 0 {
            // Somebody writes beside the store, after it was read.
            orders.insert("n", "10")?;
        }
        tx.tree("orders")?.insert("n", (n + 1).to_string())?;
        Ok((run, n))
    };
    assert_eq!(idem.execute(&request("a"), effect).await.unwrap(), Outcome::Created((1, 10)));
    assert_eq!(stored(&idem, "orders", b"n"), Some(b"11".to_vec()));
}

#[tokio::test]
async fn a_tree_is_every_tenants() {
    let (_folder, idem) = fresh().await;
    let put = |tx: &mut SledTransaction| {
        tx.put(b"a", b"1")?;
        Ok(tx.tree("shared")?.insert("a", "1")?)
    };
    assert_eq!(idem.execute(&request("a"), put).await.unwrap(), Outcome::Created(()));
    let other = Request::new(Key::new("south", "order", "a").unwrap());
    let get = |tx: &mut SledTransaction| {
        Ok((tx.get(b"a")?.is_some(), tx.tree("shared")?.get("a")?.is_some()))
    };
    assert_eq!(idem.execute(&other, get).await.unwrap(), Outcome::Created((false, true)));
}

#[tokio::test]
async fn the_stores_own_trees_and_the_engines_default_one_are_refused() {
    let (_folder, idem) = fresh().await;
    for name in ["idem.records", "idem.values", "idem.meta", "idem.mine", "__sled__default", ""] {
        let effect = move |tx: &mut SledTransaction| Ok(tx.tree(name)?.insert("a", "b")?);
        let error = idem.execute(&request("a"), effect).await.unwrap_err();
        let refused = matches!(error.kind(), ErrorKind::InvalidSetting { field: "tree", .. });
        assert!(refused, "{name}: {error:?}");
    }
    for name in ["idem", "idem_records", "Idem.records", "records"] {
        let effect = move |tx: &mut SledTransaction| Ok(tx.tree(name)?.insert("a", "b")?);
        let request = request(name);
        assert_eq!(idem.execute(&request, effect).await.unwrap(), Outcome::Created(()));
    }
}
