//! Numbers of JSON (RFC 8259, section 6) as CBOR.
//!
//! A number without a fraction and an exponent is an integer and stays exact.
//! All others are binary64 floats, correctly rounded.

use super::FingerprintError;
use super::cbor::Encoder;

/// Digits of a number before its exponent.
///
/// The limit keeps the conversion of integers, whose cost grows with the
/// square of the digits, in the range of microseconds. For floats it rules
/// out that zeros in the text and the exponent cancel out beyond what the
/// standard library's parser can count.
pub(super) const MAX_DIGITS: usize = 4096;

/// Decimal digits that always fit a `u64`.
const LIMB_DIGITS: usize = 19;

/// Decimal digits that always fit a `u128`.
const SMALL_DIGITS: usize = 38;

/// What the grammar says about a number.
struct Shape {
    end: usize,
    digits: usize,
    float: bool,
}

/// Writes the number that starts at byte `at` of `text` and returns its end.
pub(super) fn encode_at(
    text: &str,
    at: usize,
    encoder: &mut Encoder,
) -> Result<usize, FingerprintError> {
    let shape = scan(text.as_bytes(), at)?;
    let spelled = &text[at..shape.end];
    if shape.digits > MAX_DIGITS {
        return Err(FingerprintError::TooManyDigits { offset: at });
    }
    if shape.float {
        encode_float(spelled, at, encoder)?;
    } else {
        encode_integer(spelled, encoder);
    }
    Ok(shape.end)
}

/// Writes the number that `text` is as a whole.
pub(super) fn encode(text: &str, encoder: &mut Encoder) -> Result<(), FingerprintError> {
    let end = encode_at(text, 0, encoder)?;
    if end < text.len() {
        return Err(FingerprintError::json(end, "data after the number"));
    }
    Ok(())
}

/// Finds the end of the number that starts at byte `start`.
fn scan(text: &[u8], start: usize) -> Result<Shape, FingerprintError> {
    let mut at = start + usize::from(text.get(start) == Some(&b'-'));
    let integer = some_digits(text, at)?;
    if integer > 1 && text[at] == b'0' {
        return Err(FingerprintError::json(at, "a leading zero in a number"));
    }
    at += integer;

    let mut shape = Shape { end: at, digits: integer, float: false };
    if text.get(shape.end) == Some(&b'.') {
        let fraction = some_digits(text, shape.end + 1)?;
        shape.end += 1 + fraction;
        shape.digits += fraction;
        shape.float = true;
    }
    if matches!(text.get(shape.end), Some(b'e' | b'E')) {
        let signed = matches!(text.get(shape.end + 1), Some(b'+' | b'-'));
        let exponent = shape.end + 1 + usize::from(signed);
        shape.end = exponent + some_digits(text, exponent)?;
        shape.float = true;
    }
    Ok(shape)
}

/// Counts the digits from byte `at` on, of which there must be one.
fn some_digits(text: &[u8], at: usize) -> Result<usize, FingerprintError> {
    let count = text[at..].iter().take_while(|b| b.is_ascii_digit()).count();
    if count == 0 {
        return Err(FingerprintError::json(at, "expected a digit"));
    }
    Ok(count)
}

fn encode_float(spelled: &str, at: usize, encoder: &mut Encoder) -> Result<(), FingerprintError> {
    let value: f64 = spelled.parse().expect("the grammar of JSON numbers is a part of Rust's");
    encoder.float(value).map_err(|error| match error {
        FingerprintError::NonFinite => FingerprintError::NumberTooLarge { offset: at },
        other => other,
    })
}

fn encode_integer(spelled: &str, encoder: &mut Encoder) {
    let (negative, digits) = match spelled.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, spelled),
    };
    if digits.len() > SMALL_DIGITS {
        return encode_large(negative, digits, encoder);
    }
    let magnitude: u128 = digits.parse().expect("38 decimal digits fit 128 bits");
    // CBOR counts negative integers from -1, and so has no -0.
    match magnitude.checked_sub(u128::from(negative)) {
        Some(argument) => encoder.integer(negative, argument),
        None => encoder.integer(false, 0),
    }
}

/// Writes an integer of more than 38 digits, which never fits 64 bits.
fn encode_large(negative: bool, digits: &str, encoder: &mut Encoder) {
    let mut limbs = limbs(digits);
    if negative {
        decrement(&mut limbs);
    }
    let big_endian: Vec<u8> = limbs.iter().rev().flat_map(|l| l.to_be_bytes()).collect();
    encoder.bignum(negative, &big_endian);
}

/// The value of `digits` to base 2^64, least significant limb first.
fn limbs(digits: &str) -> Vec<u64> {
    let mut limbs = Vec::with_capacity(digits.len() / LIMB_DIGITS + 1);
    for group in digits.as_bytes().chunks(LIMB_DIGITS) {
        let (mut scale, mut value) = (1, 0);
        for digit in group {
            scale *= 10;
            value = 10 * value + u64::from(digit - b'0');
        }
        multiply_add(&mut limbs, scale, value);
    }
    limbs
}

/// `limbs = limbs * scale + carry`
fn multiply_add(limbs: &mut Vec<u64>, scale: u64, mut carry: u64) {
    for limb in &mut *limbs {
        (*limb, carry) = limb.carrying_mul(scale, carry);
    }
    if carry > 0 {
        limbs.push(carry);
    }
}

/// `limbs = limbs - 1`, for a value above 0.
fn decrement(limbs: &mut [u64]) {
    for limb in limbs {
        let borrow = *limb == 0;
        *limb = limb.wrapping_sub(1);
        if !borrow {
            break;
        }
    }
}
