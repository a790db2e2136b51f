//! Why a value has no fingerprint.

use std::fmt;

use super::cbor::MAX_DEPTH;
use super::number::MAX_DIGITS;

/// Why a value or a JSON text has no [`Fingerprint`](super::Fingerprint).
///
/// Messages never contain the values, which may be secrets. The name of a
/// member may occur. Offsets count bytes from the start of the JSON text and
/// are `None` if the value did not come from one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FingerprintError {
    /// A float is NaN or infinite, which JSON cannot carry either.
    #[error("a float is NaN or infinite; send null or a text instead")]
    NonFinite,

    /// A map or an object has the same key more than once. RFC 8259, section
    /// 4, leaves open which of the two a receiver takes, so neither is.
    #[error(
        "{} occurs more than once in one object{}; send it once",
        Member(.name.as_deref()),
        Place(*.offset)
    )]
    DuplicateMember {
        /// The member's name, cut after 64 characters. `None` if the key is
        /// not a text.
        name: Option<String>,
        /// Where the second occurrence starts.
        offset: Option<usize>,
    },

    /// Arrays and objects nest deeper than 128 levels, or more than 512
    /// `Some`s and newtype structs lie on one path.
    #[error("nesting exceeds the limit of {MAX_DEPTH} levels{}; flatten the value", Place(*.offset))]
    TooDeep {
        /// Where the first level beyond the limit starts.
        offset: Option<usize>,
    },

    /// A number in JSON has more than 4096 digits, not counting its exponent.
    #[error("the number at byte {offset} has more than {MAX_DIGITS} digits; send it as a text")]
    TooManyDigits {
        /// Where the number starts.
        offset: usize,
    },

    /// A number in JSON with a fraction or an exponent rounds to infinity.
    #[error(
        "the number at byte {offset} is beyond the range of a binary64 float; send it as a text"
    )]
    NumberTooLarge {
        /// Where the number starts.
        offset: usize,
    },

    /// A `HashSet` has no order, so that the same elements would have another fingerprint each time.
    #[error("a HashSet has no order: use a BTreeSet, or serialize its elements sorted")]
    Unordered,

    /// The text is not strict JSON (RFC 8259).
    #[error("invalid JSON at byte {offset}: {problem}; send strict RFC 8259 text")]
    Json {
        /// Where the problem is. The length of the text if it ends too early.
        offset: usize,
        /// What is wrong there.
        problem: &'static str,
    },

    /// A `Serialize` implementation failed. The message is its own.
    #[error("the value cannot be serialized: {message}")]
    Serialize {
        /// What the implementation reported.
        message: String,
    },
}

impl FingerprintError {
    /// A fault of the JSON grammar.
    pub(super) fn json(offset: usize, problem: &'static str) -> Self {
        Self::Json { offset, problem }
    }

    /// Adds the place to an error of the encoder, which does not know it.
    pub(super) fn located(mut self, place: usize) -> Self {
        if let Self::TooDeep { offset } = &mut self {
            offset.get_or_insert(place);
        }
        self
    }
}

impl serde::ser::Error for FingerprintError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Serialize { message: message.to_string() }
    }
}

/// Words for a member that may have no name.
struct Member<'a>(Option<&'a str>);

impl fmt::Display for Member<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => write!(f, "member {name:?}"),
            None => f.write_str("a key that is not a text"),
        }
    }
}

/// Words for a place that may be unknown.
struct Place(Option<usize>);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(offset) => write!(f, " at byte {offset}"),
            None => Ok(()),
        }
    }
}
