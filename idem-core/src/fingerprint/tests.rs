//! Tests of the canonical form, of both ways to it, and of the limits.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use serde::Serialize;
use serde::ser::{SerializeMap, SerializeSeq, SerializeStruct, SerializeTuple, Serializer};

use super::{Fingerprint, FingerprintError, canonical_bytes, check_result, json};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn form<T: Serialize + ?Sized>(value: &T) -> String {
    hex(&canonical_bytes(value).unwrap())
}

fn text_form(text: &str) -> String {
    hex(&json::canonical_bytes(text.as_bytes()).unwrap())
}

fn text_error(text: impl AsRef<[u8]>) -> FingerprintError {
    Fingerprint::of_json(text).unwrap_err()
}

/// Where and why a text is not JSON.
fn fault(text: impl AsRef<[u8]>) -> (usize, &'static str) {
    match text_error(text) {
        FingerprintError::Json { offset, problem } => (offset, problem),
        other => panic!("{other}"),
    }
}

mod public_type {
    use super::*;

    #[test]
    fn bytes_round_trip() {
        let fingerprint = Fingerprint::of_bytes("x");
        let bytes = fingerprint.to_bytes();
        assert_eq!(bytes[0], Fingerprint::VERSION);
        assert_eq!(&bytes[1..], fingerprint.digest());
        assert_eq!(Fingerprint::from_bytes(&bytes), Some(fingerprint));
    }

    #[test]
    fn from_bytes_wants_33_bytes_and_a_version() {
        let mut bytes = Fingerprint::of_bytes("x").to_bytes();
        assert_eq!(Fingerprint::from_bytes(&[]), None);
        assert_eq!(Fingerprint::from_bytes(&bytes[..32]), None);
        assert_eq!(Fingerprint::from_bytes(&[1; 34]), None);
        bytes[0] = 2;
        let other = Fingerprint::from_bytes(&bytes).unwrap();
        assert_eq!(other.version(), 2);
        assert_ne!(other, Fingerprint::of_bytes("x"));
        bytes[0] = 0;
        assert_eq!(Fingerprint::from_bytes(&bytes), None);
    }

    #[test]
    fn of_bytes_is_plain_sha256() {
        // FIPS 180-4 example "abc".
        assert_eq!(
            format!("{:?}", Fingerprint::of_bytes(b"abc")),
            "Fingerprint(1:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad)"
        );
    }

    #[test]
    fn golden_fingerprints() {
        let golden = [
            ("null", "f6", "b0b2988b6bbe724bacda5e9e524736de0bc7dae41c46b4213c50e1d35d4e5f13"),
            ("{}", "a0", "c19a797fa1fd590cd2e5b42d1cf5f246e29b91684e2f87404b81dc345c7a56a0"),
            (
                r#"{"b":[2,3],"a":1}"#,
                "a26161016162820203",
                "b44774f185e1268bc3bfc660f02b1153546030565dd1b71c517a7390dbb24e02",
            ),
            (
                r#"{"currency":"EUR","amount":1999}"#,
                "a266616d6f756e741907cf6863757272656e637963455552",
                "48a38c202ee64956199e164e4487171a0f429d7b01cb0b979047498838a48d32",
            ),
            (
                r#"{"tags":[true,"ü",-1.5,[]],"pi":0.1,"id":null,"big":18446744073709551616}"#,
                "a4626964f6627069fb3fb999999999999a63626967c249010000000000000000\
                 647461677384f562c3bcf9be0080",
                "b105a5718481e9a2b56afbbb8aaf8d39d04d9ba631946033b18991c61e87d848",
            ),
        ];
        for (text, bytes, digest) in golden {
            assert_eq!(text_form(text), bytes, "{text}");
            let fingerprint = Fingerprint::of_json(text).unwrap();
            assert_eq!(hex(fingerprint.digest()), digest, "{text}");
        }
    }
}

mod numbers {
    use super::*;

    #[test]
    fn rfc_8949_appendix_a_integers() {
        let vectors: [(i128, &str); 24] = [
            (0, "00"),
            (1, "01"),
            (10, "0a"),
            (23, "17"),
            (24, "1818"),
            (25, "1819"),
            (100, "1864"),
            (255, "18ff"),
            (256, "190100"),
            (1000, "1903e8"),
            (65535, "19ffff"),
            (65536, "1a00010000"),
            (1_000_000, "1a000f4240"),
            (4_294_967_295, "1affffffff"),
            (4_294_967_296, "1b0000000100000000"),
            (1_000_000_000_000, "1b000000e8d4a51000"),
            (18_446_744_073_709_551_615, "1bffffffffffffffff"),
            (18_446_744_073_709_551_616, "c249010000000000000000"),
            (-18_446_744_073_709_551_616, "3bffffffffffffffff"),
            (-18_446_744_073_709_551_617, "c349010000000000000000"),
            (-1, "20"),
            (-10, "29"),
            (-100, "3863"),
            (-1000, "3903e7"),
        ];
        for (value, bytes) in vectors {
            assert_eq!(form(&value), bytes, "{value}");
            assert_eq!(text_form(&value.to_string()), bytes, "{value}");
        }
    }

    #[test]
    fn rfc_8949_appendix_a_floats() {
        let vectors = [
            ("0.0", "f90000"),
            ("-0.0", "f90000"),
            ("1.0", "f93c00"),
            ("1.1", "fb3ff199999999999a"),
            ("1.5", "f93e00"),
            ("65504.0", "f97bff"),
            ("100000.0", "fa47c35000"),
            ("3.4028234663852886e+38", "fa7f7fffff"),
            ("1.0e+300", "fb7e37e43c8800759c"),
            ("5.960464477539063e-8", "f90001"),
            ("0.00006103515625", "f90400"),
            ("-4.0", "f9c400"),
            ("-4.1", "fbc010666666666666"),
            // Beyond the appendix: borders of the formats.
            ("6.097555160522461e-5", "f903ff"),
            ("2.9802322387695312e-8", "fa33000000"),
            ("65505.0", "fa477fe100"),
            ("65536.0", "fa47800000"),
            ("1e-45", "fb3696d601ad376ab9"),
            ("1.401298464324817e-45", "fa00000001"),
            ("5e-324", "fb0000000000000001"),
        ];
        for (text, bytes) in vectors {
            assert_eq!(text_form(text), bytes, "{text}");
            assert_eq!(form(&text.parse::<f64>().unwrap()), bytes, "{text}");
        }
    }

    #[test]
    fn every_half_is_written_as_a_half() {
        for bits in 0..=u16::MAX {
            let value = half_to_f64(bits);
            if value.is_finite() {
                let bits = if bits == 0x8000 { 0 } else { bits };
                assert_eq!(form(&value), format!("f9{bits:04x}"));
            }
        }
    }

    /// RFC 8949, appendix D.
    fn half_to_f64(bits: u16) -> f64 {
        let exponent = i32::from(bits >> 10 & 0x1f);
        let fraction = f64::from(bits & 0x3ff);
        let magnitude = match exponent {
            0 => fraction * 2_f64.powi(-24),
            31 => f64::INFINITY,
            _ => (fraction + 1024.0) * 2_f64.powi(exponent - 25),
        };
        if bits & 0x8000 == 0 { magnitude } else { -magnitude }
    }

    #[test]
    fn integers_have_no_width() {
        let one = form(&1_u8);
        assert_eq!(one, form(&1_u16));
        assert_eq!(one, form(&1_u32));
        assert_eq!(one, form(&1_u64));
        assert_eq!(one, form(&1_u128));
        assert_eq!(one, form(&1_i8));
        assert_eq!(one, form(&1_i16));
        assert_eq!(one, form(&1_i32));
        assert_eq!(one, form(&1_i64));
        assert_eq!(one, form(&1_i128));
        assert_eq!(form(&i8::MIN), form(&i128::from(i8::MIN)));
        assert_eq!(form(&i64::MIN), "3b7fffffffffffffff");
    }

    #[test]
    fn widest_integers() {
        assert_eq!(form(&u128::MAX), format!("c250{}", "ff".repeat(16)));
        assert_eq!(form(&i128::MIN), format!("c3507f{}", "ff".repeat(15)));
        assert_eq!(form(&u128::MAX), text_form(&u128::MAX.to_string()));
        assert_eq!(form(&i128::MIN), text_form(&i128::MIN.to_string()));
    }

    #[test]
    fn floats_are_not_integers() {
        assert_ne!(form(&1.0), form(&1));
        assert_ne!(text_form("1.0"), text_form("1"));
        assert_ne!(text_form("1e0"), text_form("1"));
        assert_eq!(text_form("1e2"), text_form("100.0"));
        assert_eq!(text_form("0e99999999999999999999"), text_form("0.0"));
        assert_eq!(text_form("1e-99999999999999999999"), text_form("0.0"));
        assert_eq!(text_form("-0"), text_form("0"));
    }

    #[test]
    fn f32_widens_exactly() {
        assert_eq!(form(&0.1_f32), form(&f64::from(0.1_f32)));
        assert_eq!(form(&0.1_f32), "fa3dcccccd");
        assert_ne!(form(&0.1_f32), text_form("0.1"));
        assert_eq!(form(&0.5_f32), text_form("0.5"));
        assert_eq!(form(&-0.0_f32), form(&0.0_f64));
    }

    #[test]
    fn non_finite_floats_are_errors() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(matches!(check_result(&value), Err(FingerprintError::NonFinite)));
            let single = value as f32;
            assert!(matches!(check_result(&[single]), Err(FingerprintError::NonFinite)));
        }
        for text in ["[1e309]", "[-1.8e308]", "[1E+99999999999999999999]"] {
            assert!(matches!(text_error(text), FingerprintError::NumberTooLarge { offset: 1 }));
        }
    }

    #[test]
    fn digits_are_limited_but_not_those_of_the_exponent() {
        let longest = "9".repeat(4096);
        assert!(Fingerprint::of_json(&longest).is_ok());
        assert!(Fingerprint::of_json(format!("-{longest}")).is_ok());
        assert!(matches!(
            text_error(format!(" {longest}9")),
            FingerprintError::TooManyDigits { offset: 1 }
        ));
        assert!(matches!(
            text_error(format!("0.{}", "0".repeat(4096))),
            FingerprintError::TooManyDigits { offset: 0 }
        ));
        let tiny = format!("0.{}1e4095", "0".repeat(4094));
        assert_eq!(text_form(&tiny), text_form("1.0"));
        let padded = format!("1e{}2", "0".repeat(9000));
        assert_eq!(text_form(&padded), text_form("100.0"));
    }

    #[test]
    fn large_integers_are_exact() {
        // 2^4096 - 1 and -2^4096 by schoolbook doubling of decimal digits.
        let mut digits = vec![1_u8];
        for _ in 0..4096 {
            let mut carry = 0;
            for digit in &mut digits {
                let doubled = 2 * *digit + carry;
                (*digit, carry) = (doubled % 10, doubled / 10);
            }
            if carry > 0 {
                digits.push(carry);
            }
        }
        let power: String = digits.iter().rev().map(|d| char::from(b'0' + d)).collect();
        let ones = format!("590200{}", "ff".repeat(512));
        assert_eq!(text_form(&power), format!("c259020101{}", "00".repeat(512)));
        assert_eq!(text_form(&format!("-{power}")), format!("c3{ones}"));
    }

    #[test]
    fn malformed_numbers() {
        assert_eq!(fault("01"), (0, "a leading zero in a number"));
        assert_eq!(fault("-012"), (1, "a leading zero in a number"));
        assert_eq!(fault("-"), (1, "expected a digit"));
        assert_eq!(fault("1."), (2, "expected a digit"));
        assert_eq!(fault("1.e1"), (2, "expected a digit"));
        assert_eq!(fault("1e"), (2, "expected a digit"));
        assert_eq!(fault("1e+"), (3, "expected a digit"));
        assert_eq!(fault("+1"), (0, "expected a value"));
        assert_eq!(fault(".5"), (0, "expected a value"));
        assert_eq!(fault("0x1"), (1, "data after the value"));
        assert_eq!(fault("NaN"), (0, "expected a value"));
    }
}

mod data_model {
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
        assert_eq!(
            form(&Keys),
            "a80a0018640120 02617a03626161048118640581 2006f407".replace(' ', "")
        );
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
}

mod duplicates {
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
}

mod depth {
    use super::*;

    #[test]
    fn of_text() {
        let nested = |levels| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(Fingerprint::of_json(nested(128)).is_ok());
        assert!(matches!(text_error(nested(129)), FingerprintError::TooDeep { offset: Some(128) }));
        let objects = |levels| format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
        assert!(Fingerprint::of_json(objects(128)).is_ok());
        assert!(matches!(
            text_error(objects(129)),
            FingerprintError::TooDeep { offset: Some(640) }
        ));
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
}

mod private_structs {
    use super::*;

    const NUMBER: &str = "$serde_json::private::Number";
    const RAW_VALUE: &str = "$serde_json::private::RawValue";

    /// A struct like those of `serde_json`.
    struct Spelled(&'static str, String);

    impl Serialize for Spelled {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut fields = serializer.serialize_struct(self.0, 1)?;
            fields.serialize_field(self.0, &self.1)?;
            fields.end()
        }
    }

    fn number(text: &str) -> Spelled {
        Spelled(NUMBER, text.to_owned())
    }

    fn raw(text: &str) -> Spelled {
        Spelled(RAW_VALUE, text.to_owned())
    }

    #[test]
    fn a_number_is_the_number_it_spells() {
        for text in ["0", "-7", "1.0", "1e3", "-0", "123456789012345678901234567890"] {
            assert_eq!(form(&number(text)), text_form(text));
            assert_eq!(form(&[number(text)]), text_form(&format!("[{text}]")));
        }
        assert_eq!(form(&number("7")), form(&7));
    }

    #[test]
    fn a_number_is_strict() {
        for text in ["", " 1", "1 ", "01", "+1", "1,2", "NaN", "inf", "0x10", "null"] {
            let error = check_result(&number(text)).unwrap_err();
            assert!(matches!(error, FingerprintError::Json { .. }), "{text}");
        }
        assert!(matches!(
            check_result(&number("1e400")),
            Err(FingerprintError::NumberTooLarge { offset: 0 })
        ));
    }

    #[test]
    fn a_raw_value_is_the_json_it_holds() {
        for text in ["null", r#" {"b":[1,2.50],"a":"\u0061"} "#] {
            assert_eq!(form(&raw(text)), text_form(text));
        }
        let members = BTreeMap::from([("b", raw("[1]")), ("a", raw(r#"{"y":1,"x":2}"#))]);
        assert_eq!(form(&members), text_form(r#"{"a":{"x":2,"y":1},"b":[1]}"#));
        let error = check_result(&raw("[1,]")).unwrap_err();
        assert!(matches!(error, FingerprintError::Json { offset: 3, .. }));
    }

    #[test]
    fn a_raw_value_continues_the_nesting() {
        let nested = "[".repeat(127) + &"]".repeat(127);
        assert!(check_result(&[raw(&nested)]).is_ok());
        assert!(matches!(
            check_result(&[[raw(&nested)]]),
            Err(FingerprintError::TooDeep { offset: Some(126) })
        ));
    }

    #[test]
    fn other_shapes_are_refused() {
        struct Odd(&'static [&'static str]);
        impl Serialize for Odd {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut fields = serializer.serialize_struct(NUMBER, self.0.len())?;
                for field in self.0 {
                    fields.serialize_field(field, "1")?;
                }
                fields.end()
            }
        }
        assert!(check_result(&Odd(&[NUMBER])).is_ok());
        for fields in [&[][..], &["other"], &[NUMBER, NUMBER]] {
            assert!(matches!(check_result(&Odd(fields)), Err(FingerprintError::Serialize { .. })));
        }
        struct NotText;
        impl Serialize for NotText {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut fields = serializer.serialize_struct(NUMBER, 1)?;
                fields.serialize_field(NUMBER, &1)?;
                fields.end()
            }
        }
        assert!(check_result(&NotText).is_err());
    }
}

mod text {
    use super::*;

    #[test]
    fn the_whole_text_is_one_value() {
        assert_eq!(text_form(" \t\r\n[ 1 , 2 ] \n"), text_form("[1,2]"));
        assert_eq!(text_form(" { \"a\" : 1 } "), text_form(r#"{"a":1}"#));
        assert_eq!(fault(""), (0, "expected a value"));
        assert_eq!(fault("  "), (2, "expected a value"));
        assert_eq!(fault("1 2"), (2, "data after the value"));
        assert_eq!(fault("[1]]"), (3, "data after the value"));
        assert_eq!(fault("\u{feff}1"), (0, "a byte order mark"));
        assert_eq!(fault("1\u{feff}"), (1, "data after the value"));
        assert_eq!(fault("\u{a0}1"), (0, "expected a value"));
        assert_eq!(fault("1\0"), (1, "data after the value"));
        assert_eq!(fault("1\u{c}"), (1, "data after the value"));
    }

    #[test]
    fn structure_is_strict() {
        assert_eq!(fault("[1,]"), (3, "expected a value"));
        assert_eq!(fault("[,1]"), (1, "expected a value"));
        assert_eq!(fault("[1 2]"), (3, "expected ',' or ']'"));
        assert_eq!(fault("[1"), (2, "expected ',' or ']'"));
        assert_eq!(fault("["), (1, "expected a value"));
        assert_eq!(fault("[1}"), (2, "expected ',' or ']'"));
        assert_eq!(fault(r#"{"a":1,}"#), (7, "expected a member name in quotes"));
        assert_eq!(fault("{a:1}"), (1, "expected a member name in quotes"));
        assert_eq!(fault("{1:1}"), (1, "expected a member name in quotes"));
        assert_eq!(fault("{"), (1, "expected a member name in quotes"));
        assert_eq!(fault(r#"{"a" 1}"#), (5, "expected ':'"));
        assert_eq!(fault(r#"{"a":}"#), (5, "expected a value"));
        assert_eq!(fault(r#"{"a":1 "b":2}"#), (7, "expected ',' or '}'"));
        assert_eq!(fault("// x\n1"), (0, "expected a value"));
        for word in ["nul", "True", "tru", "falsy", "undefined", "'a'"] {
            assert_eq!(fault(word), (0, "expected a value"));
        }
        assert_eq!(fault("nulll"), (4, "data after the value"));
    }

    #[test]
    fn strings_unescape() {
        assert_eq!(
            text_form(r#""\"\\\/\b\f\n\r\t\u00FC\ud83D\uDE00x""#),
            form("\"\\/\u{8}\u{c}\n\r\tü😀x")
        );
        assert_eq!(text_form(r#""\u0000""#), form("\0"));
        assert_eq!(text_form("\"\u{7f}\""), form("\u{7f}"));
        assert_eq!(text_form(r#""\uffff""#), form("\u{ffff}"));
        assert_eq!(text_form(r#""\udbff\udfff""#), form("\u{10ffff}"));
        // Composed and decomposed spellings are different texts.
        assert_ne!(form("\u{e9}"), form("e\u{301}"));
    }

    #[test]
    fn strings_are_strict() {
        let control = "a control character that is not escaped";
        assert_eq!(fault("\"a\n\""), (2, control));
        assert_eq!(fault("\"\\n\u{1f}\""), (3, control));
        assert_eq!(fault("\"a\0\""), (2, control));
        assert_eq!(fault(r#""abc"#), (4, "expected '\"'"));
        assert_eq!(fault(r#""a\"#), (2, "an unknown escape"));
        assert_eq!(fault(r#""\x41""#), (1, "an unknown escape"));
        assert_eq!(fault(r#""\U0041""#), (1, "an unknown escape"));
        assert_eq!(fault(r#""\u+041""#), (3, "expected a hexadecimal digit"));
        assert_eq!(fault(r#""\u00""#), (5, "expected a hexadecimal digit"));
        assert_eq!(fault(r#""\u00"#), (5, "expected a hexadecimal digit"));
        assert_eq!(fault(r#""\u00üü""#), (5, "expected a hexadecimal digit"));
    }

    #[test]
    fn lone_surrogates_are_errors() {
        for (text, offset) in [
            (r#""\ud800""#, 1),
            (r#""a\udc00""#, 2),
            (r#""\ud800x""#, 1),
            (r#""\ud800\n""#, 1),
            (r#""\ud800\ud800""#, 1),
            (r#""\ud800\u0041""#, 1),
            (r#""\udc00\ud800""#, 1),
            (r#""\ud83d\ude00\ud83d""#, 13),
        ] {
            assert_eq!(fault(text), (offset, "a lone surrogate"), "{text}");
        }
    }

    #[test]
    fn invalid_utf8_is_an_error() {
        assert_eq!(fault(b"\"a\xff\""), (2, "invalid UTF-8"));
        // An encoded surrogate and an overlong form.
        assert_eq!(fault(b"\"\xed\xa0\x80\""), (1, "invalid UTF-8"));
        assert_eq!(fault(b"\"\xc0\xaf\""), (1, "invalid UTF-8"));
    }

    #[test]
    fn errors_do_not_repeat_values() {
        for text in [
            r#"{"a":"hunter2","b":hunter2}"#,
            r#"["hunter2\q"]"#,
            r#""hunter2"#,
            r#"{"a":"hunter2","a":"hunter2"}"#,
        ] {
            let error = text_error(text);
            assert!(!format!("{error} {error:?}").contains("hunter2"));
        }
    }
}

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
