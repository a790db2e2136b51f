//! Integers and floats.

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
