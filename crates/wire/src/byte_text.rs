//! A text that a user wrote: bytes, which need not be UTF-8. Where it travels it is a string if it is UTF-8, as every text was in
//! earlier versions, and else `{"base64": "…"}`, which those refuse.

use crate::workspace::Blob;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

const BASE64: &str = "base64";

#[derive(Clone, PartialEq, Eq, Default)]
pub struct ByteText(Vec<u8>);

impl ByteText {
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn is_utf_8(&self) -> bool {
        std::str::from_utf8(&self.0).is_ok()
    }

    /// The text as it is shown where only characters can be: what is not UTF-8 is replaced.
    pub fn shown(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }
}

impl From<Vec<u8>> for ByteText {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl From<String> for ByteText {
    fn from(text: String) -> Self {
        Self(text.into_bytes())
    }
}

impl From<&str> for ByteText {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<ByteText> for Vec<u8> {
    fn from(text: ByteText) -> Self {
        text.0
    }
}

impl fmt::Debug for ByteText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.shown(), f)
    }
}

impl Serialize for ByteText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Ok(text) = std::str::from_utf8(&self.0) {
            return serializer.serialize_str(text);
        }
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(BASE64, &Blob(self.0.clone()))?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for ByteText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ByteTextVisitor)
    }
}

struct ByteTextVisitor;

impl<'de> Visitor<'de> for ByteTextVisitor {
    type Value = ByteText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, or {\"base64\": \"…\"}")
    }

    fn visit_str<E>(self, text: &str) -> Result<ByteText, E> {
        Ok(text.into())
    }

    fn visit_string<E>(self, text: String) -> Result<ByteText, E> {
        Ok(text.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ByteText, A::Error> {
        let found = map.next_entry::<String, Blob>()?;
        match (found, map.next_key::<String>()?) {
            (Some((key, bytes)), None) if key == BASE64 => Ok(ByteText(bytes.0)),
            _ => Err(A::Error::custom("expected {\"base64\": \"…\"} with nothing beside it")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utf_8_travels_as_the_string_that_earlier_versions_wrote_and_read() {
        let text = ByteText::from("#!/bin/sh\n# grün\n");
        let json = serde_json::to_string(&text).unwrap();
        assert_eq!(json, r##""#!/bin/sh\n# grün\n""##);
        assert_eq!(serde_json::from_str::<String>(&json).unwrap().as_bytes(), text.as_bytes());
        assert_eq!(serde_json::from_str::<ByteText>(&json).unwrap(), text);
    }

    #[test]
    fn other_bytes_travel_in_base_64_which_an_earlier_version_refuses() {
        let text = ByteText::from(b"# gr\xfcn\n".to_vec());
        let json = serde_json::to_string(&text).unwrap();
        assert_eq!(json, r#"{"base64":"IyBncvxuCg=="}"#);
        assert_eq!(serde_json::from_str::<ByteText>(&json).unwrap(), text);
        assert_eq!(serde_json::from_slice::<ByteText>(json.as_bytes()).unwrap(), text);
        assert!(serde_json::from_str::<String>(&json).is_err());
        assert_eq!(text.shown(), "# gr\u{fffd}n\n");
    }

    #[test]
    fn any_other_form_is_refused() {
        let table = ["5", "{}", r#"{"base64":"?"}"#, r#"{"text":"YQ=="}"#, "[35]", "null"];
        for json in table {
            assert!(serde_json::from_str::<ByteText>(json).is_err(), "{json}");
        }
        let two = r#"{"base64":"YQ==","base32":"YQ=="}"#;
        assert!(serde_json::from_str::<ByteText>(two).is_err());
    }
}
