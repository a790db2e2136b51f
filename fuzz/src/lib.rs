//! What must hold for any bytes: tried by the fuzz targets, and by an ordinary test on what they begin with.

use std::{error::Error as _, fmt::Write as _};

use bytes::Bytes;
use idem_core::{
    Error, ErrorKind, Fingerprint, Key, Kind, Record, Retention, Span, State, Timestamp, Token,
};
use uuid::Uuid;

/// Bytes are a record's or are refused as damaged; a record is kept to the last bit, and one changed byte shows.
pub fn record(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    match Record::from_bytes(&bytes) {
        Ok(record) => assert_eq!(record.to_bytes(), data, "a record has one form"),
        Err(error) => assert!(
            matches!(error.kind(), ErrorKind::Damaged { .. } | ErrorKind::SchemaNewer { .. }),
            "{error:?}"
        ),
    }
    let mut source = Source(data);
    let record = source.record();
    let mut bytes = record.to_bytes();
    assert!(bytes.starts_with(&record.to_head()));
    assert_eq!(Record::from_bytes(&bytes.clone().into()).expect("it was made from one"), record);
    let place = source.number() as usize % bytes.len();
    bytes[place] ^= source.byte().max(1);
    let changed = Record::from_bytes(&bytes.into());
    assert!(changed.is_err(), "byte {place} was changed: {changed:?}");
}

/// Bytes are a key's or are refused; a key has one form, and no two keys share it.
pub fn key(data: &[u8]) {
    if let Ok(key) = Key::from_bytes(data) {
        assert_eq!(key.to_bytes(), data, "a key has one form");
    }
    let text = String::from_utf8_lossy(data);
    let mut parts = text.splitn(3, '|').map(str::to_string);
    let mut part = || parts.next().unwrap_or_default();
    let (tenant, operation, request) = (part(), part(), part());
    for kind in [Kind::Request, Kind::Event] {
        let Ok(key) = Key::from_parts(kind, &tenant, &operation, &request) else { continue };
        let read = Key::from_bytes(&key.to_bytes()).expect("it was made from one");
        assert_eq!(read, key);
        let read = (read.kind(), read.tenant(), read.operation(), read.request());
        assert_eq!(read, (kind, &*tenant, &*operation, &*request));
    }
}

/// A text is a URL's or is refused, and what may be a password is in no error.
pub fn url(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let tried = [idem_core::url::Url::parse(text).map(drop), idem_redis::testing::check_url(text)];
    for error in tried.into_iter().filter_map(Result::err) {
        assert!(matches!(error.kind(), ErrorKind::InvalidSetting { .. }), "{error:?}");
        assert!(!told(&error).contains("SeCrEt"), "{}", told(&error));
    }
}

/// All that an error shows of itself and of its causes.
fn told(error: &Error) -> String {
    let mut told = format!("{error} {error:?}");
    let mut cause = error.source();
    while let Some(error) = cause {
        // Writing to a string never fails.
        let _ = write!(told, " {error} {error:?}");
        cause = error.source();
    }
    told
}

/// A text is one JSON value or is refused; what it is taken for does not depend on how it is written.
pub fn fingerprint(data: &[u8]) {
    let Ok(fingerprint) = Fingerprint::of_json(data) else { return };
    assert_eq!(Fingerprint::of_json(data).ok(), Some(fingerprint));
    assert_eq!(Fingerprint::from_bytes(&fingerprint.to_bytes()), Some(fingerprint));
    let value: serde_json::Value = match serde_json::from_slice(data) {
        Ok(value) => value,
        // An integer beyond all doubles, which a value cannot hold.
        Err(error) if error.to_string().starts_with("number out of range") => return,
        Err(error) => panic!("what has a fingerprint is JSON: {error}"),
    };
    let written = serde_json::to_string_pretty(&value).expect("a value can be written");
    let of_value = Fingerprint::of(&value).expect("a value has no member twice");
    assert_eq!(Fingerprint::of_json(&written).ok(), Some(of_value), "{written}");
    // Integers beyond 64 bits, and `-0`, are floats in a value, and integers in a fingerprint.
    if !has_float_of_an_integer(&value) {
        assert_eq!(of_value, fingerprint, "{written}");
    }
}

fn has_float_of_an_integer(value: &serde_json::Value) -> bool {
    use serde_json::Value::{Array, Number, Object};
    match value {
        Number(number) if number.is_f64() => {
            number.as_f64().is_none_or(|number| number == 0.0 || number.abs() >= 9e18)
        }
        Array(values) => values.iter().any(has_float_of_an_integer),
        Object(members) => members.values().any(has_float_of_an_integer),
        _ => false,
    }
}

/// Bytes as parts of a record; zeros when they are used up.
struct Source<'d>(&'d [u8]);

impl Source<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    fn number(&mut self) -> u64 {
        u64::from_le_bytes([(); 8].map(|()| self.byte()))
    }

    fn time(&mut self) -> Timestamp {
        Timestamp::from_millis(self.number().cast_signed())
    }

    fn maybe<T>(&mut self, part: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.byte() % 2 == 1).then(|| part(self))
    }

    fn record(&mut self) -> Record {
        let created_at = self.time();
        let attempt = Uuid::from_u64_pair(self.number(), self.number());
        let fingerprint = self.maybe(|source| Fingerprint::of_bytes([source.byte()]));
        let state = if self.byte() % 2 == 1 {
            let token = Token::from_u64(self.number() >> 1).unwrap_or(Token::MAX);
            let took_over = self.maybe(|source| Token::from_u64(source.number() >> 1)).flatten();
            let (until, is_ended) = (self.time(), self.byte() % 2 == 1);
            let keep = self.maybe(|source| Span::from_millis(source.number().cast_signed()));
            let keep = keep.flatten().map_or(Retention::Forever, Retention::For);
            State::Claimed { token, took_over, until, is_ended, keep }
        } else {
            let expires_at = self.maybe(Self::time);
            State::Completed { result: Bytes::copy_from_slice(self.0), expires_at }
        };
        Record { fingerprint, attempt, created_at, state }
    }
}
