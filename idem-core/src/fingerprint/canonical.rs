//! Writes any `serde::Serialize` value as deterministic CBOR.
//!
//! The mapping of serde's data model follows JSON's (externally tagged
//! variants, newtypes transparent), so that a typed value and its JSON text
//! have the same form.

use std::any::type_name;

use serde::ser::{
    Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

use super::FingerprintError;
use super::cbor::{Encoder, Key, OpenArray, OpenMap, text_of};
use super::{json, number};

/// Struct names by which `serde_json` marks a number that kept its text
/// (feature `arbitrary_precision`) and a text that is JSON (`RawValue`). The
/// only field has the same name. Any crate in a build may switch the features
/// on, which must not change a fingerprint.
const NUMBER: &str = "$serde_json::private::Number";
const RAW_VALUE: &str = "$serde_json::private::RawValue";

type Result<T = (), E = FingerprintError> = std::result::Result<T, E>;

/// The deterministic CBOR of `value`.
pub(super) fn to_bytes<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>> {
    let mut encoder = Encoder::default();
    put(&mut encoder, value)?;
    encoder.finish()
}

/// Whether all keys of a value that JSON must give back are texts: a `Some` that is written as null would come
/// back as `None`, and is refused.
pub(super) fn check_result<T: Serialize + ?Sized>(value: &T) -> Result<bool> {
    let mut encoder = Encoder::of_a_result();
    value.serialize(&mut encoder)?;
    encoder.finish_with_keys()
}

/// Writes a part of a value.
///
/// The result goes through the `Serialize` implementation of the whole, which
/// might drop it; the encoder is told of a failure so that it cannot get lost.
fn put<T: Serialize + ?Sized>(encoder: &mut Encoder, value: &T) -> Result {
    let result = match encoder.is_of_a_result() || is_ordered::<T>() {
        true => value.serialize(&mut *encoder),
        false => Err(FingerprintError::Unordered),
    };
    encoder.watch(result)
}

/// Whether the elements of a value of this type always come in one order, as far as its name tells: serde says nothing
/// of it, and a map's members are sorted.
fn is_ordered<T: ?Sized>() -> bool {
    let mut name = type_name::<T>();
    while let Some(inner) = POINTERS.iter().find_map(|pointer| name.strip_prefix(pointer)) {
        name = inner;
    }
    !SETS.iter().any(|set| name.starts_with(set))
}

/// What serializes as that which it points to.
const POINTERS: [&str; 5] =
    ["&", "mut ", "alloc::boxed::Box<", "alloc::rc::Rc<", "alloc::sync::Arc<"];

/// Sets whose order is another one in each process.
const SETS: [&str; 2] = ["std::collections::hash::set::HashSet<", "hashbrown::set::HashSet<"];

/// Writes what a `Some` or a newtype struct holds.
fn put_wrapped<T: Serialize + ?Sized>(encoder: &mut Encoder, value: &T) -> Result {
    encoder.enter_wrapper()?;
    put(encoder, value)?;
    encoder.leave_wrapper();
    Ok(())
}

/// A `Serialize` implementation that calls the serializer in a wrong order.
fn misuse<T>(encoder: &mut Encoder, message: &str) -> Result<T> {
    encoder.watch(Err(FingerprintError::Serialize { message: message.to_owned() }))
}

impl<'a> Serializer for &'a mut Encoder {
    type Ok = ();
    type Error = FingerprintError;
    type SerializeSeq = ArraySerializer<'a>;
    type SerializeTuple = ArraySerializer<'a>;
    type SerializeTupleStruct = ArraySerializer<'a>;
    type SerializeTupleVariant = ArraySerializer<'a>;
    type SerializeMap = MapSerializer<'a>;
    type SerializeStruct = StructSerializer<'a>;
    type SerializeStructVariant = MapSerializer<'a>;

    // The default, spelled out: types like `Uuid` then have the form that
    // they have in JSON.
    fn is_human_readable(&self) -> bool {
        true
    }

    fn serialize_bool(self, value: bool) -> Result {
        self.boolean(value);
        Ok(())
    }

    fn serialize_i8(self, value: i8) -> Result {
        self.serialize_i128(value.into())
    }

    fn serialize_i16(self, value: i16) -> Result {
        self.serialize_i128(value.into())
    }

    fn serialize_i32(self, value: i32) -> Result {
        self.serialize_i128(value.into())
    }

    fn serialize_i64(self, value: i64) -> Result {
        self.serialize_i128(value.into())
    }

    fn serialize_i128(self, value: i128) -> Result {
        // The complement of a negative number is the -1 - n that CBOR stores.
        let negative = value < 0;
        let argument = if negative { !value } else { value };
        self.integer(negative, argument.unsigned_abs());
        Ok(())
    }

    fn serialize_u8(self, value: u8) -> Result {
        self.serialize_u128(value.into())
    }

    fn serialize_u16(self, value: u16) -> Result {
        self.serialize_u128(value.into())
    }

    fn serialize_u32(self, value: u32) -> Result {
        self.serialize_u128(value.into())
    }

    fn serialize_u64(self, value: u64) -> Result {
        self.serialize_u128(value.into())
    }

    fn serialize_u128(self, value: u128) -> Result {
        self.integer(false, value);
        Ok(())
    }

    fn serialize_f32(self, value: f32) -> Result {
        self.float(value.into())
    }

    fn serialize_f64(self, value: f64) -> Result {
        self.float(value)
    }

    fn serialize_char(self, value: char) -> Result {
        self.text(value.encode_utf8(&mut [0; 4]));
        Ok(())
    }

    fn serialize_str(self, value: &str) -> Result {
        self.text(value);
        Ok(())
    }

    fn serialize_bytes(self, value: &[u8]) -> Result {
        self.bytes(value);
        Ok(())
    }

    fn serialize_none(self) -> Result {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result {
        let start = self.position();
        put_wrapped(self, value)?;
        let checked = self.check_present(start);
        self.watch(checked)
    }

    fn serialize_unit(self) -> Result {
        self.null();
        Ok(())
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Result {
        self.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
    ) -> Result {
        self.text(variant);
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        value: &T,
    ) -> Result {
        put_wrapped(self, value)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result {
        self.begin_variant(variant)?;
        put(self, value)?;
        self.end_variant();
        Ok(())
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<ArraySerializer<'a>> {
        let array = self.begin_array(len)?;
        Ok(ArraySerializer { encoder: self, array })
    }

    fn serialize_tuple(self, len: usize) -> Result<ArraySerializer<'a>> {
        self.serialize_seq(Some(len))
    }

    fn serialize_tuple_struct(
        self,
        _name: &'static str,
        len: usize,
    ) -> Result<ArraySerializer<'a>> {
        self.serialize_seq(Some(len))
    }

    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<ArraySerializer<'a>> {
        self.begin_variant(variant)?;
        let array = self.begin_array(Some(len))?.within_variant();
        Ok(ArraySerializer { encoder: self, array })
    }

    fn serialize_map(self, len: Option<usize>) -> Result<MapSerializer<'a>> {
        let map = self.begin_map(len)?;
        Ok(MapSerializer::new(self, map))
    }

    fn serialize_struct(self, name: &'static str, len: usize) -> Result<StructSerializer<'a>> {
        match name {
            NUMBER => Ok(StructSerializer::spelled(self, name, number::encode)),
            RAW_VALUE => Ok(StructSerializer::spelled(self, name, json::encode)),
            _ => self.serialize_map(Some(len)).map(StructSerializer::Map),
        }
    }

    fn serialize_struct_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<MapSerializer<'a>> {
        self.begin_variant(variant)?;
        let map = self.begin_map(Some(len))?.within_variant();
        Ok(MapSerializer::new(self, map))
    }
}

/// Writes the elements of an array.
pub(super) struct ArraySerializer<'a> {
    encoder: &'a mut Encoder,
    array: OpenArray,
}

impl SerializeSeq for ArraySerializer<'_> {
    type Ok = ();
    type Error = FingerprintError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result {
        put(self.encoder, value)?;
        self.array.count_element();
        Ok(())
    }

    fn end(self) -> Result {
        self.encoder.end_array(self.array);
        Ok(())
    }
}

impl SerializeTuple for ArraySerializer<'_> {
    type Ok = ();
    type Error = FingerprintError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result {
        SerializeSeq::serialize_element(self, value)
    }

    fn end(self) -> Result {
        SerializeSeq::end(self)
    }
}

impl SerializeTupleStruct for ArraySerializer<'_> {
    type Ok = ();
    type Error = FingerprintError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result {
        SerializeSeq::serialize_element(self, value)
    }

    fn end(self) -> Result {
        SerializeSeq::end(self)
    }
}

impl SerializeTupleVariant for ArraySerializer<'_> {
    type Ok = ();
    type Error = FingerprintError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result {
        SerializeSeq::serialize_element(self, value)
    }

    fn end(self) -> Result {
        SerializeSeq::end(self)
    }
}

/// Writes the members of a map.
pub(super) struct MapSerializer<'a> {
    encoder: &'a mut Encoder,
    map: OpenMap,
    /// A key that still lacks its value.
    key: Option<Key>,
}

impl<'a> MapSerializer<'a> {
    fn new(encoder: &'a mut Encoder, map: OpenMap) -> Self {
        let key = None;
        Self { encoder, map, key }
    }
}

impl SerializeMap for MapSerializer<'_> {
    type Ok = ();
    type Error = FingerprintError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result {
        if self.key.is_some() {
            return misuse(self.encoder, "a map has two keys in a row");
        }
        let start = self.encoder.position();
        put(self.encoder, key)?;
        self.key = Some(self.encoder.key_since(start, None));
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result {
        let Some(key) = self.key.take() else {
            return misuse(self.encoder, "a map has a value without a key");
        };
        put(self.encoder, value)?;
        self.encoder.end_member(key);
        Ok(())
    }

    fn end(self) -> Result {
        if self.key.is_some() {
            return misuse(self.encoder, "a map has a key without a value");
        }
        self.encoder.end_map(self.map)
    }
}

impl SerializeStructVariant for MapSerializer<'_> {
    type Ok = ();
    type Error = FingerprintError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result {
        self.serialize_entry(key, value)
    }

    fn end(self) -> Result {
        SerializeMap::end(self)
    }
}

/// Writes the fields of a struct, or the value that its only field spells.
pub(super) enum StructSerializer<'a> {
    /// A map from the names of the fields.
    Map(MapSerializer<'a>),
    /// One of the private structs of `serde_json`.
    Spelled(SpelledSerializer<'a>),
}

impl<'a> StructSerializer<'a> {
    fn spelled(
        encoder: &'a mut Encoder,
        name: &'static str,
        write: fn(&str, &mut Encoder) -> Result,
    ) -> Self {
        Self::Spelled(SpelledSerializer { encoder, name, write, done: false })
    }
}

impl SerializeStruct for StructSerializer<'_> {
    type Ok = ();
    type Error = FingerprintError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result {
        match self {
            Self::Map(map) => map.serialize_entry(key, value),
            Self::Spelled(spelled) => spelled.field(key, value),
        }
    }

    fn end(self) -> Result {
        match self {
            Self::Map(map) => SerializeMap::end(map),
            Self::Spelled(spelled) => spelled.end(),
        }
    }
}

/// Writes a value that is given as text in a struct with one field.
pub(super) struct SpelledSerializer<'a> {
    encoder: &'a mut Encoder,
    /// Name of the struct and of its field.
    name: &'static str,
    write: fn(&str, &mut Encoder) -> Result,
    done: bool,
}

impl SpelledSerializer<'_> {
    fn field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result {
        if key != self.name || self.done {
            return self.malformed();
        }
        self.done = true;
        // The text is encoded and taken back: a serializer that only captures
        // texts would have thirty methods that fail.
        let start = self.encoder.position();
        put(self.encoder, value)?;
        let encoded = self.encoder.take_from(start);
        let Some(text) = text_of(&encoded) else {
            return self.malformed();
        };
        let result = (self.write)(text, self.encoder);
        self.encoder.watch(result)
    }

    fn end(mut self) -> Result {
        if self.done {
            return Ok(());
        }
        self.malformed()
    }

    fn malformed(&mut self) -> Result {
        misuse(self.encoder, "a private struct of serde_json is malformed")
    }
}
