//! Reads JSON as serde does, but for a list in the place of a structure: a derived reader takes its items for the fields in their order.
//! They have no names there, and a check by the names of fields (`call_bounds`) would hold none of them to its own bound.

use serde::Deserialize;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor,
};
use std::fmt;

/// The value of a body; a structure in it is a mapping.
pub fn from_slice<'de, T: Deserialize<'de>>(body: &'de [u8]) -> serde_json::Result<T> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = T::deserialize(Named(&mut reader))?;
    reader.end()?;
    Ok(value)
}

/// A reader, a visitor, a seed or a part of a value, as serde has it, whose structures are mappings.
struct Named<T>(T);

/// The visitor of a structure: it has no `visit_seq`, so that a list is of the wrong type.
struct Structure<V>(V);

macro_rules! forward_reads {
    ($($method:ident($($name:ident: $type:ty),*);)*) => {
        $(
            fn $method<V: Visitor<'de>>(
                self,
                $($name: $type,)*
                visitor: V,
            ) -> Result<V::Value, D::Error> {
                self.0.$method($($name,)* Named(visitor))
            }
        )*
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Named<D> {
    type Error = D::Error;

    forward_reads! {
        deserialize_any();
        deserialize_bool();
        deserialize_i8();
        deserialize_i16();
        deserialize_i32();
        deserialize_i64();
        deserialize_i128();
        deserialize_u8();
        deserialize_u16();
        deserialize_u32();
        deserialize_u64();
        deserialize_u128();
        deserialize_f32();
        deserialize_f64();
        deserialize_char();
        deserialize_str();
        deserialize_string();
        deserialize_bytes();
        deserialize_byte_buf();
        deserialize_option();
        deserialize_unit();
        deserialize_unit_struct(name: &'static str);
        deserialize_newtype_struct(name: &'static str);
        deserialize_seq();
        deserialize_tuple(len: usize);
        deserialize_tuple_struct(name: &'static str, len: usize);
        deserialize_map();
        deserialize_enum(name: &'static str, variants: &'static [&'static str]);
        deserialize_identifier();
        deserialize_ignored_any();
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_struct(name, fields, Structure(visitor))
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Structure<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Named(entries))
    }
}

macro_rules! forward_visits {
    ($($method:ident($type:ty);)*) => {
        $(
            fn $method<E: Error>(self, value: $type) -> Result<V::Value, E> {
                self.0.$method(value)
            }
        )*
    };
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Named<V> {
    type Value = V::Value;

    forward_visits! {
        visit_bool(bool);
        visit_i8(i8);
        visit_i16(i16);
        visit_i32(i32);
        visit_i64(i64);
        visit_i128(i128);
        visit_u8(u8);
        visit_u16(u16);
        visit_u32(u32);
        visit_u64(u64);
        visit_u128(u128);
        visit_f32(f32);
        visit_f64(f64);
        visit_char(char);
        visit_str(&str);
        visit_borrowed_str(&'de str);
        visit_string(String);
        visit_bytes(&[u8]);
        visit_borrowed_bytes(&'de [u8]);
        visit_byte_buf(Vec<u8>);
    }

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, reader: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(Named(reader))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, reader: D) -> Result<V::Value, D::Error> {
        self.0.visit_newtype_struct(Named(reader))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(Named(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Named(entries))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<V::Value, A::Error> {
        self.0.visit_enum(Named(data))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Named<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Named(reader))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Named<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.0.next_element_seed(Named(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

/// A key is a text, and no structure.
impl<'de, A: MapAccess<'de>> MapAccess<'de> for Named<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.0.next_key_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.0.next_value_seed(Named(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for Named<A> {
    type Error = A::Error;
    type Variant = Named<A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Named<A::Variant>), A::Error> {
        let (value, variant) = self.0.variant_seed(seed)?;
        Ok((value, Named(variant)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Named<A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.0.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.0.newtype_variant_seed(Named(seed))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.0.tuple_variant(len, Named(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.0.struct_variant(fields, Structure(visitor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use serde_json::value::RawValue;
    use std::borrow::Cow;
    use std::collections::BTreeMap;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Name {
        name: String,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Number(u32);

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Which {
        Nothing,
        One(Name),
        Two(u32, u32),
        Fields { name: String },
    }

    fn read<T: for<'de> Deserialize<'de>>(text: &str) -> Result<T, String> {
        from_slice(text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn list_in_the_place_of_a_structure_is_refused_wherever_it_stands() {
        let lists = [
            read::<Name>(r#"["x"]"#).map(drop),
            read::<Vec<Name>>(r#"[["x"]]"#).map(drop),
            read::<Option<Box<Name>>>(r#"["x"]"#).map(drop),
            read::<BTreeMap<String, Name>>(r#"{"a": ["x"]}"#).map(drop),
            read::<(u32, Name)>(r#"[1, ["x"]]"#).map(drop),
            read::<Which>(r#"{"one": ["x"]}"#).map(drop),
            read::<Which>(r#"{"fields": ["x"]}"#).map(drop),
        ];
        for refused in lists {
            let said = refused.expect_err("a list for a structure");
            assert!(said.starts_with("invalid type: sequence, expected struct "), "{said}");
            assert!(said.contains(" at line 1 column "), "{said}");
        }
        // Else as serde reads it.
        assert!(serde_json::from_str::<Name>(r#"["x"]"#).is_ok());
    }

    #[test]
    fn all_else_is_read_as_before() {
        let name = || Name { name: "x".into() };
        assert_eq!(read::<Name>(r#"{"name": "x"}"#), Ok(name()));
        assert_eq!(
            read::<Vec<Option<Name>>>(r#"[{"name": "x"}, null]"#),
            Ok(vec![Some(name()), None])
        );
        assert_eq!(read::<(u32, Number)>("[1, 2]"), Ok((1, Number(2))));
        assert_eq!(read::<Which>(r#""nothing""#), Ok(Which::Nothing));
        assert_eq!(read::<Which>(r#"{"one": {"name": "x"}}"#), Ok(Which::One(name())));
        assert_eq!(read::<Which>(r#"{"two": [1, 2]}"#), Ok(Which::Two(1, 2)));
        let fields = Which::Fields { name: "x".into() };
        assert_eq!(read::<Which>(r#"{"fields": {"name": "x"}}"#), Ok(fields));
        let any = r#"{"a":[1,-2,1.5,"x",null,true,{"b":[]}]}"#;
        assert_eq!(read::<Value>(any).map(|value| value.to_string()), Ok(any.to_owned()));
        let raw: Box<RawValue> = read(any).expect("any JSON");
        assert_eq!(raw.get(), any);
        let keyed: BTreeMap<u32, u8> = read(r#"{"7": 8}"#).expect("numbers as keys");
        assert_eq!(keyed, BTreeMap::from([(7, 8)]));
        let borrowed: &str = from_slice(br#""text""#).expect("a text of the body");
        assert_eq!(borrowed, "text");
        let owned: Cow<str> = from_slice(br#""a\nb""#).expect("a text with an escape");
        assert_eq!(owned, "a\nb");
    }

    #[test]
    fn what_follows_a_value_and_what_lacks_a_field_is_refused_in_serdes_words() {
        let said = |text: &str| read::<Name>(text).expect_err("refused");
        assert!(said(r#"{"name": "x"} 1"#).starts_with("trailing characters"));
        assert!(said("{}").starts_with("missing field `name`"));
        assert!(said("{").starts_with("EOF while parsing"));
    }
}
