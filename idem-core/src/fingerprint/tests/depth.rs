//! Nesting.

use super::*;

#[test]
fn of_text() {
    let nested = |levels| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert!(Fingerprint::of_json(nested(128)).is_ok());
    assert!(matches!(text_error(nested(129)), FingerprintError::TooDeep { offset: Some(128) }));
    let objects = |levels| format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
    assert!(Fingerprint::of_json(objects(128)).is_ok());
    assert!(matches!(text_error(objects(129)), FingerprintError::TooDeep { offset: Some(640) }));
}

#[test]
fn of_siblings_does_not_add_up() {
    let many = vec![r#"[{"a":[]}]"#; 1000].join(",");
    assert!(Fingerprint::of_json(format!("[{many}]")).is_ok());
}

#[test]
fn of_hostile_text() {
    for open in ["[", r#"{"":"#] {
        let text = open.repeat(10_000_000 / open.len());
        assert!(matches!(text_error(text), FingerprintError::TooDeep { .. }));
    }
}

/// A list, nested `levels` deep by means of `by`.
struct Nested {
    levels: usize,
    by: By,
}

#[derive(Clone, Copy)]
enum By {
    Seq,
    Map,
    NewtypeVariant,
    Some,
    NewtypeStruct,
}

impl Serialize for Nested {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(levels) = self.levels.checked_sub(1) else {
            return serializer.serialize_u8(1);
        };
        let inner = Self { levels, by: self.by };
        match self.by {
            By::Seq => serializer.collect_seq([inner]),
            By::Map => serializer.collect_map([("a", inner)]),
            By::NewtypeVariant => serializer.serialize_newtype_variant("E", 0, "a", &inner),
            By::Some => serializer.serialize_some(&inner),
            By::NewtypeStruct => serializer.serialize_newtype_struct("N", &inner),
        }
    }
}

#[test]
fn of_values() {
    for (by, limit) in [
        (By::Seq, 128),
        (By::Map, 128),
        (By::NewtypeVariant, 128),
        (By::Some, 512),
        (By::NewtypeStruct, 512),
    ] {
        assert!(check_result(&Nested { levels: limit, by }).is_ok());
        for levels in [limit + 1, usize::MAX] {
            let error = check_result(&Nested { levels, by }).unwrap_err();
            assert!(matches!(error, FingerprintError::TooDeep { offset: None }));
        }
    }
}

#[test]
fn of_variants_counts_both_levels() {
    #[derive(Serialize)]
    enum E {
        Tuple(Vec<E>, u8),
        Struct { inner: Vec<E> },
    }
    // Each step is a map, an array or map, and a list.
    fn nest(steps: usize) -> E {
        let inner = |steps: usize| (0..steps.min(1)).map(|_| nest(steps - 1)).collect();
        if steps.is_multiple_of(2) {
            E::Tuple(inner(steps), 0)
        } else {
            E::Struct { inner: inner(steps) }
        }
    }
    assert!(check_result(&nest(41)).is_ok());
    assert!(matches!(check_result(&nest(42)), Err(FingerprintError::TooDeep { .. })));
    let siblings: Vec<E> = (0..500).map(|n| nest(n % 5)).collect();
    assert!(check_result(&siblings).is_ok());
}
