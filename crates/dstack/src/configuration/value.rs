//! A configuration in dstack's own form: every short form written out, defaults filled in, keys in the order of the tables.

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use std::borrow::Cow;
use std::time::Duration;

/// The key of a mapping: the name of a property, which is the table's, or a word of the configuration.
pub type Key = Cow<'static, str>;

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Integer(i64),
    Number(f64),
    Text(String),
    List(Vec<Value>),
    Map(Vec<(Key, Value)>),
}

const NULL: &Value = &Value::Null;

impl Value {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub fn optional_text(text: Option<&str>) -> Self {
        text.map_or(Self::Null, Self::text)
    }

    /// A mapping of these keys.
    pub fn map<const N: usize>(entries: [(&'static str, Value); N]) -> Self {
        Self::Map(entries.map(|(key, value)| (Key::Borrowed(key), value)).into())
    }

    /// The value of a key; null where there is none.
    pub fn get(&self, key: &str) -> &Value {
        match self {
            Self::Map(entries) => {
                entries.iter().find(|(name, _)| name == key).map_or(NULL, |(_, value)| value)
            }
            _ => NULL,
        }
    }

    /// The value of a key that is there.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        match self {
            Self::Map(entries) => {
                entries.iter_mut().find(|(name, _)| name == key).map(|(_, value)| value)
            }
            _ => None,
        }
    }

    /// Sets a key, in its place where the mapping has it.
    pub fn set(&mut self, key: &'static str, value: Value) {
        if let Some(place) = self.get_mut(key) {
            *place = value;
        } else if let Self::Map(entries) = self {
            entries.push((key.into(), value));
        }
    }

    pub fn is_null(&self) -> bool {
        *self == Self::Null
    }

    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_owned_text(&self) -> Option<String> {
        self.as_text().map(str::to_owned)
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(said) => Some(*said),
            _ => None,
        }
    }

    pub fn as_integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            _ => None,
        }
    }

    /// A count, where there is one that is not negative.
    pub fn as_count(&self) -> Option<u32> {
        self.as_integer().and_then(|number| u32::try_from(number).ok())
    }

    pub fn as_number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Integer(number) => Some(*number as f64),
            _ => None,
        }
    }

    /// Whole seconds.
    pub fn as_duration(&self) -> Option<Duration> {
        let secs = self.as_integer().and_then(|secs| u64::try_from(secs).ok());
        secs.map(Duration::from_secs)
    }

    pub fn items(&self) -> &[Value] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }

    pub fn entries(&self) -> &[(Key, Value)] {
        match self {
            Self::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The texts of a list.
    pub fn texts(&self) -> Vec<String> {
        self.items().iter().filter_map(Self::as_owned_text).collect()
    }

    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Null => serde_json::Value::Null,
            Self::Bool(said) => (*said).into(),
            Self::Integer(number) => (*number).into(),
            Self::Number(number) => (*number).into(),
            Self::Text(text) => text.as_str().into(),
            Self::List(items) => items.iter().map(Self::to_json).collect(),
            Self::Map(entries) => {
                let each = entries.iter().map(|(key, value)| (key.to_string(), value.to_json()));
                serde_json::Value::Object(each.collect())
            }
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_none(),
            Self::Bool(said) => serializer.serialize_bool(*said),
            Self::Integer(number) => serializer.serialize_i64(*number),
            Self::Number(number) => serializer.serialize_f64(*number),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                items.iter().try_for_each(|item| list.serialize_element(item))?;
                list.end()
            }
            Self::Map(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                entries.iter().try_for_each(|(key, value)| map.serialize_entry(key, value))?;
                map.end()
            }
        }
    }
}
