//! A record as bytes, for the stores that keep bytes.
//!
//! ```text
//! 2 1700000000123 1700000000123 60000 60000 - - 6b2f0c11 - completed <attempt> <fingerprint> -\n<result>
//! ```
//!
//! One line of text, the head, then the result as it is. The head has the version of this form; the stamp, each
//! field of which stands twice (when the run or claim started; how many milliseconds later the receipt expires or
//! the lease ends; the token); a checksum; how many milliseconds the record of a lease stays after its end; the state;
//! the attempt's id and the fingerprint, both in hexadecimal; the token of the lease that this one took over. What is
//! absent is a `-`.
//!
//! The checksum is the CRC-32 (IEEE 802.3) of all that follows it. What stands before it stands twice, so that a
//! server that stamps a record computes nothing, and any one damaged byte still shows.
//!
//! Version 1 is still read. It had no last field and no state of its own for a lease that was ended, whose end was its
//! start; its leases were kept for as long from their start, and are now kept for as long from their end.

use std::fmt::{self, Write as _};

use bytes::Bytes;
use uuid::Uuid;

use crate::{Error, ErrorKind, Fingerprint, Record, Retention, Span, State, Timestamp, Token};

/// The version of the form that this library writes.
pub(crate) const VERSION: i64 = 2;

/// The first one, which knows no ended leases and no tokens of those before.
const FIRST: i64 = 1;

pub(crate) const COMPLETED: &str = "completed";
pub(crate) const CLAIMED: &str = "claimed";
pub(crate) const ENDED: &str = "ended";

/// Enough for a head, unless its times are far apart.
const HEAD: usize = 240;

/// The digits of a checksum.
const CHECKSUM: usize = 8;

impl Record {
    /// The record as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let rest = Rest::of(self);
        let mut bytes = self.stamp().to_bytes(VERSION, HEAD + rest.result.len());
        rest.append(VERSION, &mut bytes);
        bytes
    }

    /// The part of [`Record::to_bytes`] before the result: no two records that a key ever had share it.
    #[must_use]
    pub fn to_head(&self) -> Vec<u8> {
        self.head_of_version(VERSION)
    }

    /// The head of a record that lies in these bytes, in whatever version of the form: for a store that compares what
    /// it has read.
    #[must_use]
    pub fn head_in(bytes: &[u8]) -> &[u8] {
        let end = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |end| end + 1);
        &bytes[..end]
    }

    fn head_of_version(&self, version: i64) -> Vec<u8> {
        let mut bytes = self.stamp().to_bytes(version, HEAD);
        Rest::of(self).append_line(version, &mut bytes);
        bytes
    }

    /// The record of these bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] if [`Record::to_bytes`] cannot have made them;
    /// [`ErrorKind::SchemaNewer`] if a newer version of this library has.
    pub fn from_bytes(bytes: &Bytes) -> Result<Self, Error> {
        let (version, record) = parse(bytes)?.ok_or_else(|| damaged(bytes.len()))?;
        // What reads back as itself is in the one form, and its checksum is right.
        if record.head_of_version(version) == Self::head_in(bytes) {
            Ok(record)
        } else {
            Err(damaged(bytes.len()))
        }
    }

    /// As [`Record::from_bytes`], for an engine that keeps its bytes: they are copied.
    ///
    /// # Errors
    /// As [`Record::from_bytes`].
    pub fn from_slice(bytes: &[u8]) -> Result<Self, Error> {
        Self::from_bytes(&Bytes::copy_from_slice(bytes))
    }

    fn stamp(&self) -> Stamp {
        let (ends_at, token) = match self.state {
            State::Claimed { token, until, .. } => (Some(until), Some(token)),
            State::Completed { expires_at, .. } => (expires_at, None),
        };
        Stamp { created_at: self.created_at, ends_at, token }
    }

    fn result(&self) -> &[u8] {
        match &self.state {
            State::Completed { result, .. } => result,
            State::Claimed { .. } => &[],
        }
    }
}

impl Error {
    /// The same error of a stored record, which says where that lies and what to do, so that an operator finds it: for
    /// a store to name a record that [`Record::from_bytes`], or its own form of it, refused. Other errors are as
    /// they were.
    #[must_use]
    pub fn stored_in(self, place: &str, remedy: &str) -> Self {
        let kind = match self.kind() {
            ErrorKind::Damaged { problem } => {
                ErrorKind::Damaged { problem: format!("{problem}, in {place}: {remedy}") }
            }
            ErrorKind::SchemaNewer { found, supported, .. } => ErrorKind::SchemaNewer {
                location: place.to_string(),
                found: *found,
                supported: *supported,
            },
            _ => return self,
        };
        Self::new(kind, self.certainty()).with_source(self)
    }
}

/// What a server may fill in.
pub(crate) struct Stamp {
    pub(crate) created_at: Timestamp,
    pub(crate) ends_at: Option<Timestamp>,
    pub(crate) token: Option<Token>,
}

impl Stamp {
    /// What comes before the rest, in a buffer with room for so many bytes.
    pub(crate) fn to_bytes(&self, version: i64, room: usize) -> Vec<u8> {
        let (mut text, created_at) = (String::with_capacity(room), self.created_at.as_millis());
        // What is written to a string is written.
        let _ = write!(text, "{version} {created_at} {created_at} ");
        let life = self.ends_at.map(|end| after(self.created_at, end));
        twice(&mut text, life);
        twice(&mut text, self.token);
        text.into_bytes()
    }
}

/// How many milliseconds later the second is.
fn after(start: Timestamp, end: Timestamp) -> i128 {
    i128::from(end.as_millis()) - i128::from(start.as_millis())
}

fn twice(text: &mut String, field: Option<impl fmt::Display>) {
    let _ = match field {
        Some(field) => write!(text, "{field} {field} "),
        None => text.write_str("- - "),
    };
}

/// What follows the stamp: the checksum, and what it is of.
pub(crate) struct Rest<'r> {
    /// How long the record of a lease stays after its end.
    pub(crate) keep: Retention,
    pub(crate) state: &'static str,
    pub(crate) attempt: Uuid,
    pub(crate) fingerprint: Option<Fingerprint>,
    pub(crate) took_over: Option<Token>,
    pub(crate) result: &'r [u8],
}

impl<'r> Rest<'r> {
    pub(crate) fn of(record: &'r Record) -> Self {
        let (state, keep, took_over) = match record.state {
            State::Completed { .. } => (COMPLETED, Retention::Forever, None),
            State::Claimed { is_ended: false, keep, took_over, .. } => (CLAIMED, keep, took_over),
            State::Claimed { is_ended: true, keep, took_over, .. } => (ENDED, keep, took_over),
        };
        let (attempt, fingerprint) = (record.attempt, record.fingerprint);
        Self { keep, state, attempt, fingerprint, took_over, result: record.result() }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD + self.result.len());
        self.append(VERSION, &mut bytes);
        bytes
    }

    fn append(&self, version: i64, bytes: &mut Vec<u8>) {
        self.append_line(version, bytes);
        bytes.extend_from_slice(self.result);
    }

    /// All but the result.
    fn append_line(&self, version: i64, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        bytes.extend_from_slice(&[b' '; CHECKSUM + 1]);
        match self.keep {
            Retention::For(span) => {
                bytes.extend_from_slice(span.as_millis().to_string().as_bytes());
            }
            Retention::Forever => bytes.push(b'-'),
        }
        bytes.push(b' ');
        let state = if version == FIRST && self.state == ENDED { CLAIMED } else { self.state };
        bytes.extend_from_slice(state.as_bytes());
        bytes.push(b' ');
        append_hex(bytes, self.attempt.as_bytes());
        bytes.push(b' ');
        match self.fingerprint {
            Some(fingerprint) => append_hex(bytes, &fingerprint.to_bytes()),
            None => bytes.push(b'-'),
        }
        match self.took_over {
            _ if version == FIRST => {}
            Some(token) => bytes.extend_from_slice(format!(" {token}").as_bytes()),
            None => bytes.extend_from_slice(b" -"),
        }
        bytes.push(b'\n');
        let (checksum, line) = bytes[start..].split_at_mut(CHECKSUM);
        let mut crc = crc32fast::Hasher::new();
        crc.update(&line[1..]);
        crc.update(self.result);
        for (digits, byte) in checksum.chunks_exact_mut(2).zip(crc.finalize().to_be_bytes()) {
            digits.copy_from_slice(&hex(byte));
        }
    }
}

fn append_hex(bytes: &mut Vec<u8>, data: &[u8]) {
    bytes.extend(data.iter().flat_map(|byte| hex(*byte)));
}

fn hex(byte: u8) -> [u8; 2] {
    [byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)])
}

fn damaged(length: usize) -> Error {
    let problem = format!("a record of {length} bytes cannot be what this library wrote");
    Error::nothing_done(ErrorKind::Damaged { problem })
}

/// Reads what may be a record, and in which version; nobody has looked at the checksum yet.
fn parse(bytes: &Bytes) -> Result<Option<(i64, Record)>, Error> {
    let head = Record::head_in(bytes);
    let Some(line) = head.strip_suffix(b"\n") else { return Ok(None) };
    let Some((version, fields)) = std::str::from_utf8(line).ok().and_then(|h| h.split_once(' '))
    else {
        return Ok(None);
    };
    match version.parse() {
        Ok(version @ FIRST..=VERSION) => {
            let record = parse_fields(version, fields, bytes.slice(head.len()..));
            Ok(record.map(|record| (version, record)))
        }
        Ok(found) if found > VERSION => {
            let location = "a record".to_string();
            let kind = ErrorKind::SchemaNewer { location, found, supported: VERSION };
            Err(Error::nothing_done(kind))
        }
        _ => Ok(None),
    }
}

/// Reads each field of the stamp once: the second one, and the checksum, are found wrong by whoever writes them anew.
fn parse_fields(version: i64, head: &str, result: Bytes) -> Option<Record> {
    let mut fields = head.split(' ');
    let created_at = Timestamp::from_millis(fields.next()?.parse().ok()?);
    let ends_at = or_none(fields.nth(1)?, |millis| {
        let end = i128::from(created_at.as_millis()).checked_add(millis.parse().ok()?)?;
        Some(Timestamp::from_millis(i64::try_from(end).ok()?))
    })?;
    let token = or_none(fields.nth(1)?, parse_token)?;
    let keep = or_none(fields.nth(2)?, |millis| Span::from_millis(millis.parse().ok()?))?;
    let state = fields.next()?;
    let attempt = Uuid::try_parse(fields.next()?).ok()?;
    let fingerprint = or_none(fields.next()?, |digits| Fingerprint::from_bytes(&unhex(digits)?))?;
    let took_over = match version {
        FIRST => None,
        _ => or_none(fields.next()?, parse_token)?,
    };
    let state = match state {
        COMPLETED => State::Completed { result, expires_at: ends_at },
        CLAIMED | ENDED if result.is_empty() => State::Claimed {
            token: token?,
            took_over,
            until: ends_at?,
            is_ended: state == ENDED || (version == FIRST && ends_at == Some(created_at)),
            keep: keep.map_or(Retention::Forever, Retention::For),
        },
        _ => return None,
    };
    fields.next().is_none().then_some(Record { fingerprint, attempt, created_at, state })
}

/// A field that may be absent; none if it is there and makes no sense.
fn or_none<T>(field: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<Option<T>> {
    if field == "-" { Some(None) } else { parse(field).map(Some) }
}

fn parse_token(digits: &str) -> Option<Token> {
    digits.parse().ok().and_then(Token::from_u64)
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.as_bytes().chunks(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn token(token: u64) -> Token {
        Token::from_u64(token).unwrap()
    }

    fn record(fingerprint: Option<Fingerprint>, state: State) -> Record {
        let attempt = Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
        Record { fingerprint, attempt, created_at: at(1_700_000_000_123), state }
    }

    fn completed(result: &'static [u8], expires_at: Option<i64>) -> State {
        let result = Bytes::from_static(result);
        State::Completed { result, expires_at: expires_at.map(at) }
    }

    fn digits(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn claimed(took_over: Option<u64>, until: i64, is_ended: bool, keep: Option<i64>) -> State {
        let keep = keep.and_then(Span::from_millis).map_or(Retention::Forever, Retention::For);
        let took_over = took_over.map(token);
        State::Claimed { token: Token::MAX, took_over, until: at(until), is_ended, keep }
    }

    /// The checksums were computed by another implementation (Python's zlib.crc32).
    #[test]
    fn the_form_is_pinned() {
        let fingerprint = Fingerprint::of_bytes("p");
        let golden = [
            (
                record(Some(fingerprint), completed(b"{\"id\":7}", Some(1_700_000_060_123))),
                format!(
                    "2 1700000000123 1700000000123 60000 60000 - - 6c93d3f3 - completed \
                     00112233445566778899aabbccddeeff {} -\n{{\"id\":7}}",
                    digits(&fingerprint.to_bytes())
                ),
            ),
            (
                record(None, completed(b"", None)),
                "2 1700000000123 1700000000123 - - - - a60066b7 - completed \
                 00112233445566778899aabbccddeeff - -\n"
                    .to_string(),
            ),
            (
                record(None, claimed(Some(6), -5, false, Some(1_000))),
                "2 1700000000123 1700000000123 -1700000000128 -1700000000128 9223372036854775807 \
                 9223372036854775807 c1b0f2b1 1000 claimed \
                 00112233445566778899aabbccddeeff - 6\n"
                    .to_string(),
            ),
            (
                record(None, claimed(None, 1_700_000_000_124, true, None)),
                "2 1700000000123 1700000000123 1 1 9223372036854775807 9223372036854775807 \
                 e6b8f8fb - ended 00112233445566778899aabbccddeeff - -\n"
                    .to_string(),
            ),
        ];
        for (record, bytes) in golden {
            assert_eq!(String::from_utf8(record.to_bytes()).unwrap(), bytes);
            assert_eq!(Record::from_bytes(&Bytes::from(bytes)).unwrap(), record);
        }
    }

    #[test]
    fn the_first_form_is_still_read() {
        let fingerprint = Fingerprint::of_bytes("p");
        let digits = digits(&fingerprint.to_bytes());
        let start = 1_700_000_000_123;
        let old = [
            (
                record(Some(fingerprint), completed(b"{\"id\":7}", Some(start + 60_000))),
                format!(
                    "1 1700000000123 1700000000123 60000 60000 - - 88e4accf - completed \
                     00112233445566778899aabbccddeeff {digits}\n{{\"id\":7}}"
                ),
            ),
            (
                record(None, claimed(None, start + 30, false, Some(1_000))),
                "1 1700000000123 1700000000123 30 30 9223372036854775807 9223372036854775807 \
                 ea256e2b 1000 claimed 00112233445566778899aabbccddeeff -\n"
                    .to_string(),
            ),
            (
                record(None, claimed(None, start, true, None)),
                "1 1700000000123 1700000000123 0 0 9223372036854775807 9223372036854775807 \
                 3b178974 - claimed 00112233445566778899aabbccddeeff -\n"
                    .to_string(),
            ),
        ];
        for (record, text) in old {
            let bytes = Bytes::from(text);
            assert_eq!(Record::from_bytes(&bytes).unwrap(), record);
            let end = bytes.iter().position(|byte| *byte == b'\n').unwrap();
            assert_eq!(Record::head_in(&bytes), &bytes[..=end]);
            // No byte of it can change unnoticed either.
            for place in 0..bytes.len() {
                let mut other = bytes.to_vec();
                other[place] ^= 1;
                assert!(is_damaged(other), "{place} of {bytes:?}");
            }
        }
    }

    fn any_record() -> impl Strategy<Value = Record> {
        let time = || any::<i64>().prop_map(at);
        let completed =
            (any::<Vec<u8>>(), proptest::option::of(time())).prop_map(|(result, expires_at)| {
                State::Completed { result: result.into(), expires_at }
            });
        let number = || 0..=Token::MAX.as_u64();
        let keep = proptest::option::of(1..=i64::MAX);
        let before = proptest::option::of(number());
        let claimed = (number(), before, time(), any::<bool>(), keep).prop_map(
            |(number, before, until, is_ended, keep)| State::Claimed {
                token: token(number),
                took_over: before.map(token),
                until,
                is_ended,
                keep: keep.and_then(Span::from_millis).map_or(Retention::Forever, Retention::For),
            },
        );
        let fingerprint = proptest::option::of(any::<u64>());
        (fingerprint, any::<u128>(), time(), prop_oneof![completed, claimed]).prop_map(
            |(parameters, attempt, created_at, state)| Record {
                fingerprint: parameters.map(|given| Fingerprint::of_bytes(given.to_be_bytes())),
                attempt: Uuid::from_u128(attempt),
                created_at,
                state,
            },
        )
    }

    fn is_damaged(bytes: Vec<u8>) -> bool {
        match Record::from_bytes(&bytes.into()) {
            Err(error) => {
                matches!(error.kind(), ErrorKind::Damaged { .. } | ErrorKind::SchemaNewer { .. })
            }
            Ok(_) => false,
        }
    }

    proptest! {
        #[test]
        fn bytes_give_the_record_back(record in any_record()) {
            let bytes = Bytes::from(record.to_bytes());
            prop_assert!(bytes.starts_with(&record.to_head()));
            prop_assert_eq!(Record::from_bytes(&bytes).unwrap(), record);
        }

        #[test]
        fn no_byte_can_change_unnoticed(record in any_record(), place: prop::sample::Index, other in 1..=255_u8) {
            let mut bytes = record.to_bytes();
            let place = place.index(bytes.len());
            bytes[place] ^= other;
            prop_assert!(is_damaged(bytes));
        }

        #[test]
        fn no_end_can_go_missing(record in any_record(), length: prop::sample::Index) {
            let mut bytes = record.to_bytes();
            bytes.truncate(length.index(bytes.len()));
            prop_assert!(is_damaged(bytes));
        }

        #[test]
        fn nothing_can_be_added_unnoticed(record in any_record(), added in prop::collection::vec(any::<u8>(), 1..20)) {
            let mut bytes = record.to_bytes();
            bytes.extend(added);
            prop_assert!(is_damaged(bytes));
        }

        #[test]
        fn what_is_no_record_is_never_a_panic(bytes: Vec<u8>) {
            prop_assert!(is_damaged(bytes));
        }
    }

    #[test]
    fn a_newer_form_is_told_apart_from_damage() {
        let newer = Bytes::from_static(b"3 whatever\n");
        let error = Record::from_bytes(&newer).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::SchemaNewer { found: 3, supported: 2, .. }),
            "{error:?}"
        );
        for older in [&b"0 whatever\n"[..], b"-1 whatever\n", b"two whatever\n"] {
            let error = Record::from_slice(older).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Damaged { .. }), "{error:?}");
        }
    }

    #[test]
    fn other_spellings_of_one_record_are_damaged() {
        let record = record(None, completed(b"r", Some(1_700_000_000_130)));
        let text = String::from_utf8(record.to_bytes()).unwrap();
        let others = [
            (" 7 7 ", " 07 07 "),
            (" 7 7 ", " +7 +7 "),
            (" 7 7 ", " 7 8 "),
            ("aabb", "AABB"),
            ("- - ", "- 3 "),
            ("- - ", "3 3 "),
        ];
        for (from, to) in others {
            let other = text.replace(from, to);
            assert_ne!(other, text, "{from}");
            assert!(is_damaged(other.into_bytes()), "{to}");
        }
    }

    #[test]
    fn an_error_of_a_stored_record_says_where_it_lies_and_what_to_do() {
        let there = |error: Error| error.stored_in("the row 7", "delete it");
        let error = there(Record::from_slice(b"x").unwrap_err());
        let text = error.to_string();
        assert!(text.ends_with(", in the row 7: delete it"), "{text}");
        assert!(matches!(error.kind(), ErrorKind::Damaged { .. }), "{error:?}");
        let newer = there(Record::from_slice(b"3 whatever\n").unwrap_err());
        let ErrorKind::SchemaNewer { location, found: 3, .. } = newer.kind() else {
            panic!("{newer:?}")
        };
        assert_eq!(location, "the row 7");
        let busy = Error::new(ErrorKind::Closed, crate::Certainty::Unknown);
        let busy = there(busy);
        assert!(matches!(busy.kind(), ErrorKind::Closed) && busy.to_string().contains("closed"));
        assert_eq!(busy.certainty(), crate::Certainty::Unknown);
    }
}
