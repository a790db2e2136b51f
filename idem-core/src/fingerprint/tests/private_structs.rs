//! serde_json's private structs.

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
