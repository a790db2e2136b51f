//! What holds for any value: typed and as text, decoded, permuted, changed.

use super::*;

/// A JSON value whose members have an order.
#[derive(Clone, Debug, PartialEq)]
enum Tree {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(String),
    List(Vec<Tree>),
    Object(Vec<(String, Tree)>),
}

impl Serialize for Tree {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_none(),
            Self::Bool(value) => value.serialize(serializer),
            Self::Unsigned(value) => value.serialize(serializer),
            Self::Signed(value) => value.serialize(serializer),
            Self::Float(value) => value.serialize(serializer),
            Self::Text(value) => value.serialize(serializer),
            Self::List(items) => serializer.collect_seq(items),
            Self::Object(members) => serializer.collect_map(members.iter().map(|(k, v)| (k, v))),
        }
    }
}

impl Tree {
    /// What a decoder of the canonical form must find.
    fn decoded(&self) -> ciborium::Value {
        match self {
            Self::Null => ciborium::Value::Null,
            Self::Bool(value) => (*value).into(),
            Self::Unsigned(value) => (*value).into(),
            Self::Signed(value) => (*value).into(),
            Self::Float(value) => (value + 0.0).into(),
            Self::Text(value) => value.as_str().into(),
            Self::List(items) => ciborium::Value::Array(items.iter().map(Self::decoded).collect()),
            Self::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                members.sort_by_key(|(name, _)| (name.len(), name.as_bytes()));
                let decoded =
                    |(name, value): &(String, Self)| (name.clone().into(), value.decoded());
                ciborium::Value::Map(members.into_iter().map(decoded).collect())
            }
        }
    }

    fn reversed(&self) -> Self {
        match self {
            Self::List(items) => Self::List(items.iter().map(Self::reversed).collect()),
            Self::Object(members) => {
                let members = members.iter().rev();
                Self::Object(members.map(|(k, v)| (k.clone(), v.reversed())).collect())
            }
            leaf => leaf.clone(),
        }
    }

    /// All trees that differ from this one in one leaf or one name.
    fn mutants(&self) -> Vec<Self> {
        match self {
            Self::Null => vec![Self::Bool(false), Self::Unsigned(0), Self::Text("null".into())],
            Self::Bool(value) => vec![Self::Bool(!value), Self::Null],
            Self::Unsigned(value) => vec![
                Self::Unsigned(value ^ 1),
                Self::Float(*value as f64),
                Self::Text(value.to_string()),
            ],
            Self::Signed(value) => vec![Self::Signed(value ^ 1), Self::Float(*value as f64)],
            Self::Float(value) => vec![Self::Float(next_up(*value)), Self::Unsigned(0)],
            Self::Text(value) => vec![Self::Text(format!("{value}\0")), Self::Null],
            Self::List(items) => {
                let mut mutants = vec![Self::Object(Vec::new())];
                for (at, item) in items.iter().enumerate() {
                    mutants.extend(item.mutants().into_iter().map(|mutant| {
                        let mut items = items.clone();
                        items[at] = mutant;
                        Self::List(items)
                    }));
                }
                mutants
            }
            Self::Object(members) => {
                let mut mutants = vec![Self::List(Vec::new())];
                for (at, (name, value)) in members.iter().enumerate() {
                    let values = value.mutants().into_iter().map(|v| (name.clone(), v));
                    let renamed = (format!("{name}!!!!!!!!!"), value.clone());
                    mutants.extend(values.chain([renamed]).map(|mutant| {
                        let mut members = members.clone();
                        members[at] = mutant;
                        Self::Object(members)
                    }));
                }
                mutants
            }
        }
    }
}

/// The next float, and the previous one if that is infinite.
fn next_up(value: f64) -> f64 {
    let next = value.next_up();
    if next == f64::INFINITY {
        value.next_down()
    } else if next == 0.0 {
        f64::MIN_POSITIVE
    } else {
        next
    }
}

fn finite() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>(),
        any::<f32>().prop_map(f64::from),
        (-3000_i16..3000).prop_map(|n| f64::from(n) / 8.0),
    ]
    .prop_filter("JSON has finite numbers only", |value| value.is_finite())
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        Just(Tree::Null),
        any::<bool>().prop_map(Tree::Bool),
        any::<u64>().prop_map(Tree::Unsigned),
        (0_u64..300).prop_map(Tree::Unsigned),
        any::<i64>().prop_map(Tree::Signed),
        finite().prop_map(Tree::Float),
        any::<String>().prop_map(Tree::Text),
        "[a-z\"\\\\\n]{0,30}".prop_map(Tree::Text),
    ];
    leaf.prop_recursive(5, 60, 30, |inner| {
        let name = prop_oneof![any::<String>(), "[a-c]{0,3}"];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..30).prop_map(Tree::List),
            prop::collection::hash_map(name, inner, 0..30)
                .prop_map(|members| Tree::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn value_and_text_agree(tree in tree()) {
        let expected = Fingerprint::of(&tree).unwrap();
        let value = serde_json::to_value(&tree).unwrap();
        prop_assert_eq!(Fingerprint::of(&value).unwrap(), expected);
        let compact = serde_json::to_vec(&tree).unwrap();
        prop_assert_eq!(Fingerprint::of_json(compact).unwrap(), expected);
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        prop_assert_eq!(Fingerprint::of_json(pretty).unwrap(), expected);
    }

    #[test]
    fn a_decoder_finds_the_value(tree in tree()) {
        let bytes = canonical_bytes(&tree).unwrap();
        let decoded: ciborium::Value = ciborium::from_reader(&bytes[..]).unwrap();
        prop_assert_eq!(&decoded, &tree.decoded());
        // The oracle writes shortest forms, too, and keeps the given order.
        let mut again = Vec::new();
        ciborium::into_writer(&decoded, &mut again).unwrap();
        prop_assert_eq!(hex(&again), hex(&bytes));
    }

    #[test]
    fn member_order_does_not_matter(tree in tree()) {
        prop_assert_eq!(form(&tree), form(&tree.reversed()));
    }

    #[test]
    fn every_leaf_and_name_matters(tree in tree()) {
        let original = Fingerprint::of(&tree).unwrap();
        for mutant in tree.mutants() {
            let same_value = mutant.decoded() == tree.decoded();
            prop_assert_eq!(Fingerprint::of(&mutant).unwrap() == original, same_value);
        }
    }

    #[test]
    fn wide_integers_agree(unsigned in any::<u128>(), signed in any::<i128>(), shift in 0_u32..128) {
        let (unsigned, signed) = (unsigned >> shift, signed >> shift);
        prop_assert_eq!(form(&unsigned), text_form(&unsigned.to_string()));
        prop_assert_eq!(form(&signed), text_form(&signed.to_string()));
        let bytes = canonical_bytes(&signed).unwrap();
        let decoded: i128 = ciborium::from_reader(&bytes[..]).unwrap();
        prop_assert_eq!(decoded, signed);
    }

    #[test]
    fn text_agrees_with_an_independent_parser(text in "[\\[\\]{}:,\" \\\\u0-9a-f.eE+\\-ntrls\n]{0,12}") {
        // `serde_json` takes duplicates and, in strings, nothing else that is
        // refused here.
        let reference = serde_json::from_str::<serde::de::IgnoredAny>(&text);
        match Fingerprint::of_json(&text) {
            Ok(_) => prop_assert!(reference.is_ok(), "{}", text),
            Err(FingerprintError::Json { problem, .. }) => {
                let lenient = problem == "a lone surrogate";
                prop_assert!(lenient || reference.is_err(), "{}", text);
            }
            Err(_) => {}
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let _ = Fingerprint::of_json(bytes);
    }
}
