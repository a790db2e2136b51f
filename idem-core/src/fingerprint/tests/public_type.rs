//! The type: its bytes, its equality, its golden values.

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
