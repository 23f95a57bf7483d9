//! A blob's name: the SHA-256 of its content, written as 64 hexadecimal digits.

use std::fmt;
use std::str::FromStr;

use model::id::BlobRef;
use serde::{Deserialize, Serialize};

use super::BlobError;
use crate::sha256::sha256;

/// The SHA-256 of a content, and its name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct BlobId(pub [u8; 32]);

impl BlobId {
    pub fn of(content: &[u8]) -> Self {
        Self(sha256(&[content]))
    }
}

impl fmt::Display for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlobId({self})")
    }
}

impl FromStr for BlobId {
    type Err = BlobError;

    fn from_str(text: &str) -> Result<Self, BlobError> {
        let bad = || BlobError::BadId { text: text.chars().take(80).collect() };
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(bad());
        }
        let mut id = [0; 32];
        for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |d: u8| char::from(d).to_digit(16).ok_or_else(bad);
            *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
        }
        Ok(Self(id))
    }
}

impl TryFrom<String> for BlobId {
    type Error = BlobError;

    fn try_from(text: String) -> Result<Self, BlobError> {
        text.parse()
    }
}

impl From<BlobId> for String {
    fn from(id: BlobId) -> Self {
        id.to_string()
    }
}

impl From<&BlobId> for BlobRef {
    fn from(id: &BlobId) -> Self {
        Self(id.0)
    }
}

impl From<&BlobRef> for BlobId {
    fn from(name: &BlobRef) -> Self {
        Self(name.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_64_hexadecimal_digits_and_nothing_else() {
        let id = BlobId::of(b"");
        let text = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(id.to_string(), text);
        assert_eq!(text.parse::<BlobId>().unwrap(), id);
        assert_eq!(serde_json::to_string(&id).unwrap(), format!("\"{text}\""));
        assert_eq!(serde_json::from_str::<BlobId>(&format!("\"{text}\"")).unwrap(), id);
        assert_eq!(BlobRef::from(&id), text.parse().unwrap());
        assert_eq!(BlobId::from(&BlobRef::from(&id)), id);
        let bad =
            ["", "e3b0", &text[1..], &format!("{text}0"), &text.replace('e', "g"), &"é".repeat(32)];
        for text in bad {
            let said = text.parse::<BlobId>().unwrap_err().to_string();
            assert!(said.contains("64 hexadecimal digits"), "{said}");
        }
    }
}
