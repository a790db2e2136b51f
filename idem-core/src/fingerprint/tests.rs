//! Tests of the canonical form, of both ways to it, and of the limits.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use serde::Serialize;
use serde::ser::{SerializeMap, SerializeSeq, SerializeStruct, SerializeTuple, Serializer};

use super::{Fingerprint, FingerprintError, canonical_bytes, check_result, json};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn form<T: Serialize + ?Sized>(value: &T) -> String {
    hex(&canonical_bytes(value).unwrap())
}

fn text_form(text: &str) -> String {
    hex(&json::canonical_bytes(text.as_bytes()).unwrap())
}

fn text_error(text: impl AsRef<[u8]>) -> FingerprintError {
    Fingerprint::of_json(text).unwrap_err()
}

/// Where and why a text is not JSON.
fn fault(text: impl AsRef<[u8]>) -> (usize, &'static str) {
    match text_error(text) {
        FingerprintError::Json { offset, problem } => (offset, problem),
        other => panic!("{other}"),
    }
}

mod data_model;
mod depth;
mod duplicates;
mod numbers;
mod private_structs;
mod properties;
mod public_type;
mod sets;
mod text;
