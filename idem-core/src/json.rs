//! Results as JSON, so that a receipt reads well in the store's own shell.

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

use crate::{Certainty, Error, ErrorKind, fingerprint};

/// Encodes a result, and makes sure that it reads back as what it is.
///
/// JSON writes a NaN as null, and so what `Some` holds if that is nothing; and it merges equal members of an
/// object when it is read. Such a result is refused here, before the commit: its replay would be another.
///
/// # Errors
/// [`ErrorKind::ResultUnreadable`].
pub fn encode_result<T: Serialize + DeserializeOwned>(result: &T) -> Result<Bytes, Error> {
    let unreadable = || Error::nothing_done(ErrorKind::ResultUnreadable);
    let keys_are_texts = fingerprint::check_result(result);
    let keys_are_texts = keys_are_texts.map_err(|error| unreadable().with_source(error))?;
    let text = serde_json::to_vec(result).map_err(|error| unreadable().with_source(error))?;
    // Once more in the text: keys can differ in the value, as 1 and "1" do, and be equal there.
    if !keys_are_texts {
        fingerprint::check_json(&text).map_err(|error| unreadable().with_source(error))?;
    }
    serde_json::from_slice::<T>(&text).map_err(|error| unreadable().with_source(error))?;
    Ok(text.into())
}

/// Decodes a stored result.
///
/// # Errors
/// [`ErrorKind::ResultUndecodable`]: the key is completed, but not with a `T`.
pub fn decode_result<T: DeserializeOwned>(stored: &Bytes) -> Result<T, Error> {
    serde_json::from_slice(stored).map_err(|error| {
        let kind = ErrorKind::ResultUndecodable { length: stored.len() };
        Error::new(kind, Certainty::Done).with_source(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use std::collections::HashMap;

    fn refused<T: Serialize + DeserializeOwned>(result: &T) -> bool {
        matches!(
            encode_result(result).map_err(|e| matches!(e.kind(), ErrorKind::ResultUnreadable)),
            Err(true)
        )
    }

    #[test]
    fn results_that_json_would_change_are_refused() {
        assert!(refused(&f64::NAN));
        assert!(refused(&Some(f64::INFINITY)));
        assert!(refused(&vec![1.0, f64::NEG_INFINITY]));
        assert!(refused(&HashMap::from([((1, 2), 3)])));
        assert!(refused(&Some(())));
        assert!(refused(&vec![Some(None::<u8>)]));
        assert!(refused(&Some(serde_json::Value::Null)));
        assert!(!refused(&None::<u8>));
        assert!(!refused(&((), vec![None, Some(1)])));

        #[derive(Serialize, Deserialize)]
        struct Inner {
            id: u8,
        }
        #[derive(Serialize, Deserialize)]
        struct Twice {
            id: u8,
            #[serde(flatten)]
            inner: Inner,
        }
        assert!(refused(&Twice { id: 1, inner: Inner { id: 2 } }));
    }

    #[test]
    fn keys_that_are_equal_only_in_json_are_refused() {
        #[derive(Serialize, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
        #[serde(untagged)]
        enum Id {
            Number(u8),
            Text(String),
        }
        let ids = |second: &str| {
            std::collections::BTreeMap::from([(Id::Number(1), 'a'), (Id::Text(second.into()), 'b')])
        };
        assert!(refused(&ids("1")));
        assert!(!refused(&ids("2")));
    }

    #[test]
    fn floats_and_wide_integers_come_back_exactly() {
        for float in [0.1 + 0.2, f64::MIN_POSITIVE, f64::MAX, -0.0, 5e-324] {
            let back: f64 = decode_result(&encode_result(&float).unwrap()).unwrap();
            assert_eq!(back.to_bits(), float.to_bits());
        }
        for integer in [i128::MIN, -1, 0, i128::from(u64::MAX) + 1, i128::MAX] {
            assert_eq!(decode_result::<i128>(&encode_result(&integer).unwrap()).unwrap(), integer);
        }
        assert_eq!(
            encode_result(&"a\0b".to_string()).unwrap(),
            Bytes::from_static(br#""a\u0000b""#)
        );
    }

    #[test]
    fn another_type_is_told_that_the_key_is_done() {
        let error = decode_result::<u8>(&Bytes::from_static(b"\"text\"")).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::ResultUndecodable { length: 6 }));
        assert_eq!(error.certainty(), Certainty::Done);
    }
}
