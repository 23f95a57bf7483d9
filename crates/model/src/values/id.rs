//! Names and numbers by which things are told apart.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Slurm's job number; an array task that has left the pending state has one of its own.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct JobId(pub u32);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The id of a client's call: the lines of server and node that belong to it have it in their logs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CallId(Box<str>);

impl CallId {
    pub const BYTES_MAX: usize = 64;

    /// Letters, digits, `.`, `_` and `-`: it stands in lines of logs.
    pub fn parse(text: &str) -> Option<Self> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let fits = !text.is_empty() && text.len() <= Self::BYTES_MAX && text.chars().all(is_plain);
        fits.then(|| Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for CallId {
    type Error = crate::grammar::GrammarError;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or_else(|| crate::grammar::GrammarError {
            what: "call id",
            expected: format!("at most {} letters, digits, '.', '_' and '-'", Self::BYTES_MAX),
            value: text,
        })
    }
}

impl From<CallId> for String {
    fn from(id: CallId) -> Self {
        id.0.into()
    }
}

/// A run's identity: dstack's UUID. Random bits come in with the command that makes the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(pub u128);

impl RunId {
    /// A version-4 UUID from 128 random bits.
    pub fn from_random(bits: u128) -> Self {
        let version = (bits & !(0xf << 76)) | (0x4 << 76);
        Self((version & !(0x3 << 62)) | (0x2 << 62))
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let v = self.0;
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            v >> 96,
            (v >> 80) & 0xffff,
            (v >> 64) & 0xffff,
            (v >> 48) & 0xffff,
            v & 0xffff_ffff_ffff
        )
    }
}

impl FromStr for RunId {
    type Err = crate::grammar::GrammarError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let hex: String = s.chars().filter(|c| *c != '-').collect();
        let bits = (hex.len() == 32).then(|| u128::from_str_radix(&hex, 16).ok()).flatten();
        bits.map(Self).ok_or_else(|| crate::grammar::GrammarError {
            what: "run id",
            value: s.to_string(),
            expected: "a UUID".to_string(),
        })
    }
}

impl Serialize for RunId {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RunId {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// One step of a job: the batch script, the shell of an allocation, or an `srun`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepId {
    Batch,
    Extern,
    Interactive,
    Number(u32),
}

impl StepId {
    /// As it is shown: a number, or the name of a step that has none.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "batch" => Some(Self::Batch),
            "extern" => Some(Self::Extern),
            "interactive" => Some(Self::Interactive),
            number => number.parse().ok().map(Self::Number),
        }
    }
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Batch => f.write_str("batch"),
            Self::Extern => f.write_str("extern"),
            Self::Interactive => f.write_str("interactive"),
            Self::Number(n) => n.fmt(f),
        }
    }
}

/// The content address of a script or an environment: its SHA-256, written as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlobRef(pub [u8; 32]);

impl fmt::Display for BlobRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 64];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for BlobRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlobRef({self})")
    }
}

impl FromStr for BlobRef {
    type Err = crate::grammar::GrammarError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digit = |d: u8| char::from(d).to_digit(16).map(|d| d as u8);
        let parse = || {
            let digits = text.as_bytes();
            let mut id = [0; 32];
            for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
                *byte = digit(pair[0])? * 16 + digit(pair[1])?;
            }
            (digits.len() == 64).then_some(Self(id))
        };
        parse().ok_or_else(|| crate::grammar::GrammarError {
            what: "content address",
            value: text.chars().take(80).collect(),
            expected: "64 hexadecimal digits".to_string(),
        })
    }
}

impl Serialize for BlobRef {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BlobRef {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<str>::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// One launch of one job: the pair that every order and report carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AttemptId {
    pub job: JobId,
    /// Counts from 1; Slurm's restart count is one less.
    pub number: u32,
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.job, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_id_reads_back_as_the_uuid_it_prints() {
        let id = RunId::from_random(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        assert_eq!(id.to_string(), "01234567-89ab-4def-8123-456789abcdef");
        assert_eq!(id.to_string().parse::<RunId>().unwrap(), id);
        assert!("nonsense".parse::<RunId>().is_err());
    }
}
