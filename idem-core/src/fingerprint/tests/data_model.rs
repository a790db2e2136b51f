//! serde's data model as JSON has it.

use super::*;

#[derive(Serialize)]
struct Unit;

#[derive(Serialize)]
struct Newtype(u8);

#[derive(Serialize)]
struct Pair(u8, &'static str);

#[derive(Serialize)]
enum Choice {
    Unit,
    Newtype(u8),
    Tuple(u8, u8),
    Struct { b: u8, a: u8 },
}

#[test]
fn follows_json() {
    assert_eq!(form(&()), text_form("null"));
    assert_eq!(form(&None::<u8>), text_form("null"));
    assert_eq!(form(&Unit), text_form("null"));
    assert_eq!(form(&Some(7)), text_form("7"));
    assert_eq!(form(&Newtype(7)), text_form("7"));
    assert_eq!(form(&Pair(7, "x")), text_form(r#"[7,"x"]"#));
    assert_eq!(form(&(7, true, false)), text_form("[7,true,false]"));
    assert_eq!(form(&'ü'), text_form(r#""\u00fc""#));
    assert_eq!(form(&Choice::Unit), text_form(r#""Unit""#));
    assert_eq!(form(&Choice::Newtype(7)), text_form(r#"{"Newtype":7}"#));
    assert_eq!(form(&Choice::Tuple(7, 8)), text_form(r#"{"Tuple":[7,8]}"#));
    assert_eq!(form(&Choice::Struct { b: 1, a: 2 }), text_form(r#"{"Struct":{"a":2,"b":1}}"#));
    assert_eq!(form(&Vec::<u8>::new()), "80");
    assert_eq!(form("IETF"), "6449455446");
}

#[test]
fn byte_strings_are_their_own_type() {
    struct Raw<'a>(&'a [u8]);
    impl Serialize for Raw<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_bytes(self.0)
        }
    }
    assert_eq!(form(&Raw(&[1, 2, 3, 4])), "4401020304");
    assert_eq!(form(&[1, 2, 3, 4]), "8401020304");
}

#[test]
fn uuid_is_human_readable() {
    let id = uuid::Uuid::from_u128(0x67e55044_10b1_426f_9247_bb680e5fe0c8);
    assert_eq!(
        Fingerprint::of(&id).unwrap(),
        Fingerprint::of_json(r#""67e55044-10b1-426f-9247-bb680e5fe0c8""#).unwrap()
    );
}

#[test]
fn key_types_are_kept() {
    let integer = BTreeMap::from([(1, ())]);
    let text = BTreeMap::from([("1", ())]);
    assert_eq!(form(&integer), "a101f6");
    assert_eq!(form(&text), "a16131f6");
    let by_pair = BTreeMap::from([((1, "x"), ())]);
    assert_eq!(form(&by_pair), "a182016178f6");
}

#[test]
fn keys_sort_by_their_encoded_bytes() {
    // RFC 8949, 4.2.1 gives this order: 10, 100, -1, "z", "aa", [100],
    // [-1], false.
    struct Keys;
    impl Serialize for Keys {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut map = serializer.serialize_map(None)?;
            map.serialize_entry(&false, &7)?;
            map.serialize_entry(&[-1], &6)?;
            map.serialize_entry(&[100], &5)?;
            map.serialize_entry("aa", &4)?;
            map.serialize_entry("z", &3)?;
            map.serialize_entry(&-1, &2)?;
            map.serialize_entry(&100, &1)?;
            map.serialize_entry(&10, &0)?;
            map.end()
        }
    }
    assert_eq!(form(&Keys), "a80a0018640120 02617a03626161048118640581 2006f407".replace(' ', ""));
}

#[test]
fn hash_maps_agree_whatever_their_order() {
    let one: HashMap<u32, u32> = (0..1000).map(|n| (n, n)).collect();
    let two: HashMap<u32, u32> = (0..1000).rev().map(|n| (n, n)).collect();
    assert_eq!(form(&one), form(&two));
    let sorted: BTreeMap<u32, u32> = (0..1000).map(|n| (n, n)).collect();
    assert_eq!(form(&one), form(&sorted));
}

#[test]
fn order_and_absence_matter() {
    assert_ne!(text_form("[1,2]"), text_form("[2,1]"));
    assert_ne!(text_form(r#"{"a":null}"#), text_form("{}"));
    assert_ne!(text_form(r#""1""#), text_form("1"));
    assert_ne!(text_form("false"), text_form("null"));
    assert_ne!(text_form("[]"), text_form("{}"));
    assert_ne!(text_form("[[1],2]"), text_form("[[1,2]]"));
}

/// `count` elements or members, announced as `hint`.
struct Announced {
    hint: Option<usize>,
    count: u32,
    map: bool,
}

impl Serialize for Announced {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.map {
            let mut map = serializer.serialize_map(self.hint)?;
            for n in (0..self.count).rev() {
                map.serialize_entry(&n, &[n])?;
            }
            return map.end();
        }
        let mut seq = serializer.serialize_seq(self.hint)?;
        for n in 0..self.count {
            seq.serialize_element(&n)?;
        }
        seq.end()
    }
}

#[test]
fn hints_do_not_matter() {
    for count in [0, 1, 23, 24, 255, 256, 65_536] {
        for hint in [None, Some(0), Some(24), Some(count as usize), Some(usize::MAX)] {
            let list: Vec<u32> = (0..count).collect();
            let map: BTreeMap<u32, [u32; 1]> = list.iter().map(|n| (*n, [*n])).collect();
            let announce = |map| Announced { hint, count, map };
            assert_eq!(form(&announce(false)), form(&list));
            assert_eq!(form(&announce(true)), form(&map));
            assert_eq!(
                form(&BTreeMap::from([(2, announce(true)), (1, announce(false))])),
                format!("a201{}02{}", form(&list), form(&map))
            );
        }
    }
}

#[test]
fn tuple_hints_do_not_matter() {
    struct Short;
    impl Serialize for Short {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut tuple = serializer.serialize_tuple(3)?;
            tuple.serialize_element(&1)?;
            tuple.end()
        }
    }
    assert_eq!(form(&Short), "8101");
}

#[test]
fn an_own_error_is_reported() {
    struct Fails;
    impl Serialize for Fails {
        fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("a lock is poisoned"))
        }
    }
    assert_eq!(
        check_result(&[Fails]).unwrap_err().to_string(),
        "the value cannot be serialized: a lock is poisoned"
    );
}

#[test]
fn a_failure_cannot_be_swallowed() {
    /// Goes on after a nested map failed halfway.
    struct Swallows;
    impl Serialize for Swallows {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut seq = serializer.serialize_seq(Some(1000))?;
            let _ = seq.serialize_element(&BTreeMap::from([(1, 0.5), (2, f64::NAN)]));
            seq.serialize_element("more")?;
            seq.end()
        }
    }
    let ignored = |error: FingerprintError| error.to_string().contains("ignored");
    assert!(ignored(check_result(&Swallows).unwrap_err()));
    let inside = [BTreeMap::from([("b", Swallows), ("a", Swallows)])];
    assert!(ignored(check_result(&inside).unwrap_err()));
}

#[test]
fn keys_and_values_must_alternate() {
    struct Calls(&'static str);
    impl Serialize for Calls {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut map = serializer.serialize_map(None)?;
            for call in self.0.chars() {
                match call {
                    'k' => map.serialize_key(&1)?,
                    _ => map.serialize_value(&1)?,
                }
            }
            map.end()
        }
    }
    assert!(check_result(&Calls("kv")).is_ok());
    for calls in ["k", "v", "kk", "kvv", "kvk"] {
        let error = check_result(&Calls(calls)).unwrap_err();
        assert!(matches!(error, FingerprintError::Serialize { .. }));
    }
}
