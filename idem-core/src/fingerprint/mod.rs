//! The fingerprint of a request's parameters.
//!
//! Two requests with the same idempotency key are the same request only if
//! their parameters are the same. A [`Fingerprint`] decides that without
//! keeping the parameters: it is the SHA-256 (FIPS 180-4) of the value in
//! *deterministically encoded CBOR* (RFC 8949, section 4.2.1), a form in which
//! a value of the data model has exactly one spelling.

use std::fmt;

use serde::Serialize;
use sha2::{Digest, Sha256};

mod canonical;
mod cbor;
mod error;
mod json;
mod number;
#[cfg(test)]
mod tests;

pub use error::FingerprintError;

/// Bytes of a SHA-256 digest.
const DIGEST_LEN: usize = 32;

/// Bytes of a stored fingerprint: the version, then the digest.
const ENCODED_LEN: usize = 1 + DIGEST_LEN;

/// Identifies a value: equal values have equal fingerprints, and different
/// values have different ones (as far as SHA-256 is collision resistant).
///
/// # What is equal
///
/// The value is written as deterministic CBOR (RFC 8949, section 4.2.1) and
/// hashed with SHA-256. It follows that:
///
/// * **Integers** are exact and have no width: `1_u8` is `1_i128`. Beyond 64
///   bits they are bignums (RFC 8949, section 3.4.3).
/// * **Floats** are never integers: `1.0` is not `1`. `-0.0` is `0.0`. NaN and
///   the infinities are errors. An `f32` widens exactly, so `0.1_f32` is
///   `0.10000000149011612` and *not* the JSON text `0.1`.
/// * **Member order** in maps and structs does not matter. The order of array
///   elements does, and so do types, and `null` against an absent member.
/// * **Duplicate members** are errors, also if `#[serde(flatten)]` makes them.
/// * **Map keys** keep their type: the integer key `1` is not the key `"1"`.
///   A map with integer keys thus differs from its JSON text, whose keys are
///   always texts.
/// * `None`, `()` and unit structs are `null`; `Some(x)` and a newtype struct
///   are what they hold; a unit variant is its name; any other variant is a
///   map with one member, from its name to its content. This is what JSON
///   does, and the value is told that the format is human readable, so a
///   typed value agrees with its JSON text.
/// * **Byte strings** (`serialize_bytes`) are CBOR byte strings, which JSON
///   does not have. A `Vec<u8>` is an array of integers unless its
///   `Serialize` implementation says otherwise.
///
/// A member that is skipped (`skip_serializing_if`) is absent.
///
/// # What changes it by accident
///
/// * A **`HashSet`** has another order in each process. It is refused where serde shows its type; use a `BTreeSet`. Serde
///   does not show it behind `#[serde(transparent)]`, `untagged` and `into`, in a `Cow`, a cell or a lock, nor in a `Vec`
///   that was collected from it: sort there. A `HashMap` that is serialized as a map is sorted here.
/// * A **new field** changes the fingerprint of every request, also if it is `None`, which is `null`. Requests that are
///   retried across a deployment then conflict with themselves. Skip the field while it has no value
///   (`#[serde(skip_serializing_if = "Option::is_none")]`), and deploy a field that is always there when old keys
///   have expired. A renamed field is a new one.
///
/// # Limits
///
/// Arrays and maps nest 128 levels deep at most. On any one path there may be
/// 512 `Some`s and newtype structs besides. The canonical form is held in
/// memory while it is hashed: about as many bytes as the compact JSON text, as
/// many again while members are sorted, and five machine words per member of
/// the maps that are open at the same time.
///
/// # Example
///
/// ```
/// use idem_core::Fingerprint;
/// use serde::Serialize;
///
/// #[derive(Serialize)]
/// struct Charge {
///     currency: &'static str,
///     amount: u32,
/// }
///
/// let typed = Fingerprint::of(&Charge { currency: "EUR", amount: 1999 })?;
/// let text = Fingerprint::of_json(r#" {"amount": 1999, "currency": "EUR"} "#)?;
/// assert_eq!(typed, text);
///
/// let other = Fingerprint::of(&Charge { currency: "EUR", amount: 2000 })?;
/// assert_ne!(typed, other);
/// # Ok::<(), idem_core::FingerprintError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    version: u8,
    digest: [u8; DIGEST_LEN],
}

impl Fingerprint {
    /// Version of the canonical form that this library writes.
    ///
    /// It is stored with the digest, so that a change of the form can be told
    /// from a change of the parameters. Version 0 is never used.
    pub const VERSION: u8 = 1;

    /// Fingerprints any serializable value.
    ///
    /// # Errors
    ///
    /// * [`FingerprintError::NonFinite`] for NaN and the infinities.
    /// * [`FingerprintError::DuplicateMember`] if a map has a key twice.
    /// * [`FingerprintError::TooDeep`] beyond the nesting limit.
    /// * [`FingerprintError::Unordered`] for a `HashSet` that serde shows as one, at any depth.
    /// * [`FingerprintError::Serialize`] if the value's own `Serialize`
    ///   implementation fails, or misuses the serializer.
    /// * The errors of [`of_json`](Self::of_json) for a
    ///   `serde_json::value::RawValue` and for a `serde_json::Number` that
    ///   keeps its text (feature `arbitrary_precision`). Offsets are then
    ///   within that text.
    ///
    /// # Example
    ///
    /// ```
    /// use idem_core::{Fingerprint, FingerprintError};
    ///
    /// assert_eq!(Fingerprint::of(&1_u8)?, Fingerprint::of(&1_i128)?);
    /// assert_ne!(Fingerprint::of(&1)?, Fingerprint::of(&1.0)?);
    /// assert!(matches!(
    ///     Fingerprint::of(&f64::NAN),
    ///     Err(FingerprintError::NonFinite)
    /// ));
    /// # Ok::<(), FingerprintError>(())
    /// ```
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, FingerprintError> {
        canonical_bytes(value).map(Self::of_bytes)
    }

    /// Fingerprints a JSON text, which must be strict RFC 8259.
    ///
    /// The whole text is one value in UTF-8, with nothing but white space
    /// around it: no byte order mark, trailing data or trailing commas, no
    /// duplicate members (compared after unescaping), no lone surrogates.
    /// A number without `.`, `e` and `E` is an integer of any size (and `-0`
    /// is the integer 0). Any other number is the nearest binary64 float.
    ///
    /// # Limits
    ///
    /// A number has 4096 digits at most, not counting its exponent. Arrays and
    /// objects nest 128 levels deep at most.
    ///
    /// # Errors
    ///
    /// * [`FingerprintError::Json`] if the text is not strict JSON.
    /// * [`FingerprintError::DuplicateMember`] if an object has a name twice.
    /// * [`FingerprintError::NumberTooLarge`] if a number with a fraction or
    ///   an exponent rounds to infinity.
    /// * [`FingerprintError::TooManyDigits`] and
    ///   [`FingerprintError::TooDeep`] beyond the limits above.
    ///
    /// # Example
    ///
    /// ```
    /// use idem_core::Fingerprint;
    ///
    /// assert_eq!(
    ///     Fingerprint::of_json(r#"{"a":1,"b":[true,null]}"#)?,
    ///     Fingerprint::of_json(r#"{ "b": [true, null], "\u0061": 1 }"#)?,
    /// );
    /// let error = Fingerprint::of_json("[1,]").unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "invalid JSON at byte 3: expected a value; send strict RFC 8259 text",
    /// );
    /// # Ok::<(), idem_core::FingerprintError>(())
    /// ```
    pub fn of_json(text: impl AsRef<[u8]>) -> Result<Self, FingerprintError> {
        json::canonical_bytes(text.as_ref()).map(Self::of_bytes)
    }

    /// Fingerprints bytes as they are, by their plain SHA-256.
    ///
    /// Use it for bodies that are not JSON. It does not parse anything: two
    /// spellings of the same JSON value differ here.
    ///
    /// # Example
    ///
    /// ```
    /// use idem_core::Fingerprint;
    ///
    /// assert_ne!(Fingerprint::of_bytes("[1]"), Fingerprint::of_bytes("[ 1]"));
    /// ```
    #[must_use]
    pub fn of_bytes(bytes: impl AsRef<[u8]>) -> Self {
        Self { version: Self::VERSION, digest: Sha256::digest(bytes).into() }
    }

    /// The form to store: one byte of version, then 32 bytes of digest.
    ///
    /// # Example
    ///
    /// ```
    /// use idem_core::Fingerprint;
    ///
    /// let fingerprint = Fingerprint::of_bytes("body");
    /// let stored = fingerprint.to_bytes();
    /// assert_eq!(Fingerprint::from_bytes(&stored), Some(fingerprint));
    /// ```
    #[must_use]
    pub fn to_bytes(&self) -> [u8; ENCODED_LEN] {
        let mut bytes = [self.version; ENCODED_LEN];
        bytes[1..].copy_from_slice(&self.digest);
        bytes
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote.
    ///
    /// `None` unless there are exactly 33 bytes, the first of which is not 0.
    /// A version other than [`VERSION`](Self::VERSION) is kept: such a
    /// fingerprint equals none that this library computes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&version, digest) = bytes.split_first()?;
        let digest = digest.try_into().ok()?;
        (version != 0).then_some(Self { version, digest })
    }

    /// Version of the canonical form that the digest was taken of.
    #[must_use]
    pub fn version(&self) -> u8 {
        self.version
    }

    /// The SHA-256 digest, 32 bytes.
    #[must_use]
    pub fn digest(&self) -> &[u8; DIGEST_LEN] {
        &self.digest
    }
}

/// Prints the version and the whole digest in hexadecimal.
impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({}:", self.version)?;
        for byte in self.digest {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}

/// The deterministic CBOR of `value`, the bytes that [`Fingerprint::of`] hashes.
pub(crate) fn canonical_bytes<T: Serialize + ?Sized>(
    value: &T,
) -> Result<Vec<u8>, FingerprintError> {
    canonical::to_bytes(value)
}

/// Whether `text` is strict JSON whose members are distinct.
pub(crate) fn check_json(text: &[u8]) -> Result<(), FingerprintError> {
    json::canonical_bytes(text).map(drop)
}

/// Whether JSON gives `value` back as what it is, as far as its form shows: finite floats, distinct members,
/// nothing present that is written as null, nesting within the limit. It tells whether all keys of maps are texts:
/// JSON writes others as texts too, and only then can they come to be equal.
pub(crate) fn check_result<T: Serialize + ?Sized>(value: &T) -> Result<bool, FingerprintError> {
    // Duplicates can only be found among encoded keys, so there is nothing to save by not encoding.
    canonical::check_result(value)
}
