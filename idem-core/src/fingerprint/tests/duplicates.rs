//! Duplicate members.

use super::*;

#[derive(Serialize)]
struct Inner {
    id: u8,
}

#[derive(Serialize)]
struct Outer {
    id: u8,
    #[serde(flatten)]
    inner: Inner,
    #[serde(flatten)]
    more: BTreeMap<&'static str, u8>,
}

#[test]
fn through_flatten() {
    let outer = Outer { id: 1, inner: Inner { id: 1 }, more: BTreeMap::new() };
    let error = check_result(&outer).unwrap_err();
    assert_eq!(
        error.to_string(),
        "member \"id\" occurs more than once in one object; send it once"
    );
}

#[test]
fn flatten_without_duplicates_is_one_map() {
    #[derive(Serialize)]
    struct Flat {
        b: u8,
        #[serde(flatten)]
        more: BTreeMap<&'static str, u8>,
    }
    let flat = Flat { b: 1, more: BTreeMap::from([("c", 2), ("a", 3)]) };
    assert_eq!(form(&flat), text_form(r#"{"a":3,"b":1,"c":2}"#));
}

#[test]
fn in_text_after_unescaping() {
    let error = text_error(r#"{"a":1,"b":{"x":1},"\u0061":1}"#);
    assert_eq!(
        error.to_string(),
        "member \"a\" occurs more than once in one object at byte 19; send it once"
    );
    let inner = text_error(r#"{"b":1,"a":{"b":1,"b":2}}"#);
    assert!(matches!(
        inner,
        FingerprintError::DuplicateMember { name: Some(name), offset: Some(18) } if name == "b"
    ));
    assert!(Fingerprint::of_json(r#"{"a":{"a":{"a":1}}}"#).is_ok());
}

#[test]
fn of_keys_that_are_not_texts() {
    struct Twice;
    impl Serialize for Twice {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut map = serializer.serialize_map(Some(2))?;
            map.serialize_entry(&1_u8, "")?;
            map.serialize_entry(&1_i64, "")?;
            map.end()
        }
    }
    assert_eq!(
        check_result(&Twice).unwrap_err().to_string(),
        "a key that is not a text occurs more than once in one object; send it once"
    );
}

#[test]
fn long_names_are_cut_in_the_error() {
    let name = "ü".repeat(1000);
    match text_error(format!(r#"{{"{name}":1,"{name}":1}}"#)) {
        FingerprintError::DuplicateMember { name, .. } => {
            assert_eq!(name.unwrap(), "ü".repeat(64));
        }
        other => panic!("{other}"),
    }
}
