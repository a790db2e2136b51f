//! Sets without an order.

use std::collections::{BTreeSet, HashSet};

use super::*;

fn set() -> HashSet<u8> {
    HashSet::from([1, 2, 3])
}

fn is_refused<T: Serialize + ?Sized>(value: &T) -> bool {
    matches!(Fingerprint::of(value), Err(FingerprintError::Unordered))
}

#[derive(Serialize)]
struct Holder<T> {
    held: T,
}

#[derive(Serialize)]
struct Wrapper<T>(T);

#[derive(Serialize)]
struct Sorted {
    #[serde(serialize_with = "sorted")]
    set: HashSet<u8>,
}

fn sorted<S: Serializer>(set: &HashSet<u8>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(BTreeSet::from_iter(set))
}

#[test]
fn a_set_without_an_order_is_refused_wherever_it_lies() {
    assert!(is_refused(&set()));
    assert!(is_refused(&&set()));
    assert!(is_refused(&Box::new(set())));
    assert!(is_refused(&Box::new(&set())));
    assert!(is_refused(&Some(set())));
    assert!(is_refused(&("a", vec![set()])));
    assert!(is_refused(&Holder { held: set() }));
    assert!(is_refused(&Wrapper(Holder { held: Box::new(set()) })));
    assert!(is_refused(&BTreeMap::from([("a", set())])));
    assert!(is_refused(&HashSet::<u8>::new()));
}

#[test]
fn what_has_an_order_is_not() {
    let ordered = BTreeSet::from([1, 2, 3]);
    assert_eq!(form(&ordered), form(&[1, 2, 3]));
    assert_eq!(
        form(&Sorted { set: set() }),
        form(&Holder { held: () }).replace("6468656c64f6", "6373657483010203")
    );
    assert_eq!(
        form(&HashMap::from([("b", 2), ("a", 1)])),
        form(&BTreeMap::from([("a", 1), ("b", 2)]))
    );
    assert!(check_result(&set()).is_ok(), "a result need not be the same each time");
}

#[test]
fn the_refusal_says_what_to_use() {
    let error = Fingerprint::of(&set()).unwrap_err().to_string();
    assert_eq!(error, "a HashSet has no order: use a BTreeSet, or serialize its elements sorted");
}

#[test]
fn a_new_field_without_a_value_changes_the_fingerprint_unless_it_is_skipped() {
    #[derive(Serialize)]
    struct Old {
        amount: u32,
    }
    #[derive(Serialize)]
    struct New {
        amount: u32,
        note: Option<&'static str>,
    }
    #[derive(Serialize)]
    struct Skipping {
        amount: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        note: Option<&'static str>,
    }
    assert_ne!(form(&New { amount: 7, note: None }), form(&Old { amount: 7 }));
    assert_eq!(form(&Skipping { amount: 7, note: None }), form(&Old { amount: 7 }));
    assert_ne!(form(&Skipping { amount: 7, note: Some("a") }), form(&Old { amount: 7 }));
}
