//! JSON text.

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
