//! A record as bytes, for the stores that keep bytes.
//!
//! ```text
//! 1 6b2f0c11 1700000000123 1700000060123 - - completed <attempt> <fingerprint>\n<result>
//! ```
//!
//! One line of text, the head, then the result as it is. The head has the version of this form, a checksum,
//! the stamp (when the run or claim started; when the receipt expires or the lease ends; until when an ended
//! lease is kept; the token), the state, the attempt's id and the fingerprint, both in hexadecimal. What is
//! absent is a `-`.
//!
//! The checksum begins as the CRC-32 (IEEE 802.3) of all that follows the stamp, and goes on over the bytes
//! of the stamp as `checksum * 31 + byte` modulo 2^32: so a server that stamps a record needs to see neither
//! the rest nor more than exact integers, and any one damaged byte still shows.

use bytes::Bytes;
use uuid::Uuid;

use crate::{Error, ErrorKind, Fingerprint, Record, State, Timestamp, Token};

/// The version of the form that this library writes.
pub(crate) const VERSION: i64 = 1;

pub(crate) const COMPLETED: &str = "completed";
pub(crate) const CLAIMED: &str = "claimed";

impl Record {
    /// The record as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.to_head();
        bytes.extend(self.result());
        bytes
    }

    /// The part of [`Record::to_bytes`] before the result: no two records that a key ever had share it.
    #[must_use]
    pub fn to_head(&self) -> Vec<u8> {
        let rest = Rest::of(self);
        let stamp = self.stamp().map(|field| field.unwrap_or_else(|| "-".to_string())).join(" ");
        let checksum = checksum(rest.checksum(), &stamp);
        format!("{VERSION} {checksum:08x} {stamp} {}", rest.line).into_bytes()
    }

    /// The record of these bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] if [`Record::to_bytes`] cannot have made them;
    /// [`ErrorKind::SchemaNewer`] if a newer version of this library has.
    pub fn from_bytes(bytes: &Bytes) -> Result<Self, Error> {
        let record = parse(bytes)?.ok_or_else(|| damaged(bytes.len()))?;
        // What reads back as itself is in the one form, and its checksum is right.
        if bytes.starts_with(&record.to_head()) { Ok(record) } else { Err(damaged(bytes.len())) }
    }

    fn stamp(&self) -> [Option<String>; 4] {
        let millis = |time: Timestamp| time.as_millis().to_string();
        let created_at = Some(millis(self.created_at));
        match self.state {
            State::Claimed { token, until, keep_until } => {
                [created_at, Some(millis(until)), keep_until.map(millis), Some(token.to_string())]
            }
            State::Completed { expires_at, .. } => [created_at, expires_at.map(millis), None, None],
        }
    }

    fn result(&self) -> &[u8] {
        match &self.state {
            State::Completed { result, .. } => result,
            State::Claimed { .. } => &[],
        }
    }
}

/// What follows the stamp.
pub(crate) struct Rest<'r> {
    pub(crate) line: String,
    pub(crate) result: &'r [u8],
}

impl<'r> Rest<'r> {
    pub(crate) fn of(record: &'r Record) -> Self {
        let state = match record.state {
            State::Completed { .. } => COMPLETED,
            State::Claimed { .. } => CLAIMED,
        };
        Self::new(state, record.attempt, record.fingerprint, record.result())
    }

    pub(crate) fn new(
        state: &str,
        attempt: Uuid,
        fingerprint: Option<Fingerprint>,
        result: &'r [u8],
    ) -> Self {
        let fingerprint = fingerprint.map_or("-".to_string(), |given| hex(&given.to_bytes()));
        Self { line: format!("{state} {} {fingerprint}\n", attempt.simple()), result }
    }

    pub(crate) fn checksum(&self) -> u32 {
        let mut crc = crc32fast::Hasher::new();
        crc.update(self.line.as_bytes());
        crc.update(self.result);
        crc.finalize()
    }
}

/// What the checksum of the rest becomes over the bytes of the stamp.
pub(crate) fn checksum(rest: u32, stamp: &str) -> u32 {
    stamp.bytes().fold(rest, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
}

fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from(b"0123456789abcdef"[usize::from(value)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn damaged(length: usize) -> Error {
    let problem = format!("a record of {length} bytes cannot be what this library wrote");
    Error::nothing_done(ErrorKind::Damaged { problem })
}

/// Reads what may be a record; nobody has looked at the checksum yet.
fn parse(bytes: &Bytes) -> Result<Option<Record>, Error> {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
    let (head, result) = (bytes.slice(..end), bytes.slice(end + 1..));
    let Some((version, head)) = std::str::from_utf8(&head).ok().and_then(|h| h.split_once(' '))
    else {
        return Ok(None);
    };
    match version.parse() {
        Ok(VERSION) => Ok(parse_fields(head, result)),
        Ok(found) if found > VERSION => {
            let location = "a record".to_string();
            let kind = ErrorKind::SchemaNewer { location, found, supported: VERSION };
            Err(Error::nothing_done(kind))
        }
        _ => Ok(None),
    }
}

fn parse_fields(head: &str, result: Bytes) -> Option<Record> {
    let mut fields = head.split(' ');
    let _checksum = fields.next()?;
    let mut time = || -> Option<Option<Timestamp>> {
        match fields.next()? {
            "-" => Some(None),
            millis => millis.parse().ok().map(Timestamp::from_millis).map(Some),
        }
    };
    let (created_at, ends_at, keep_until) = (time()??, time()?, time()?);
    let token = fields.next()?;
    let state = match fields.next()? {
        COMPLETED => State::Completed { result, expires_at: ends_at },
        CLAIMED if result.is_empty() => State::Claimed {
            token: token.parse().ok().and_then(Token::from_u64)?,
            until: ends_at?,
            keep_until,
        },
        _ => return None,
    };
    let attempt = Uuid::try_parse(fields.next()?).ok()?;
    let fingerprint = match fields.next()? {
        "-" => None,
        digits => Some(Fingerprint::from_bytes(&unhex(digits)?)?),
    };
    fields.next().is_none().then_some(Record { fingerprint, attempt, created_at, state })
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

    /// The checksums were computed by another implementation (Python's zlib.crc32 and integers).
    #[test]
    fn the_form_is_pinned() {
        let fingerprint = Fingerprint::of_bytes("p");
        let golden = [
            (
                record(Some(fingerprint), completed(b"{\"id\":7}", Some(1_700_000_060_123))),
                format!(
                    "1 119c8b94 1700000000123 1700000060123 - - completed \
                     00112233445566778899aabbccddeeff {}\n{{\"id\":7}}",
                    hex(&fingerprint.to_bytes())
                ),
            ),
            (
                record(None, completed(b"", None)),
                "1 2a8b06a6 1700000000123 - - - completed \
                 00112233445566778899aabbccddeeff -\n"
                    .to_string(),
            ),
            (
                record(
                    None,
                    State::Claimed { token: Token::MAX, until: at(-5), keep_until: Some(at(0)) },
                ),
                "1 0ca14270 1700000000123 -5 0 9223372036854775807 claimed \
                 00112233445566778899aabbccddeeff -\n"
                    .to_string(),
            ),
        ];
        for (record, bytes) in golden {
            assert_eq!(String::from_utf8(record.to_bytes()).unwrap(), bytes);
            assert_eq!(Record::from_bytes(&Bytes::from(bytes)).unwrap(), record);
        }
    }

    fn any_record() -> impl Strategy<Value = Record> {
        let time = || any::<i64>().prop_map(at);
        let completed =
            (any::<Vec<u8>>(), proptest::option::of(time())).prop_map(|(result, expires_at)| {
                State::Completed { result: result.into(), expires_at }
            });
        let claimed = (0..=Token::MAX.as_u64(), time(), proptest::option::of(time())).prop_map(
            |(number, until, keep_until)| State::Claimed {
                token: token(number),
                until,
                keep_until,
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
        fn what_is_no_record_is_never_a_panic(bytes: Vec<u8>) {
            prop_assert!(is_damaged(bytes));
        }
    }

    #[test]
    fn a_newer_form_is_told_apart_from_damage() {
        let newer = Bytes::from_static(b"2 whatever\n");
        let error = Record::from_bytes(&newer).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::SchemaNewer { found: 2, supported: 1, .. }),
            "{error:?}"
        );
    }

    #[test]
    fn other_spellings_of_one_record_are_damaged() {
        let record = record(None, completed(b"r", Some(7)));
        let text = String::from_utf8(record.to_bytes()).unwrap();
        for (from, to) in [(" 7 ", " 07 "), (" 7 ", " +7 "), ("aabb", "AABB"), ("- -", "- 3")] {
            let other = text.replace(from, to);
            assert_ne!(other, text, "{from}");
            assert!(is_damaged(other.into_bytes()), "{to}");
        }
    }
}
