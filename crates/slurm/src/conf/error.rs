//! Where a value stands, what is wrong with it, and what is merely worth saying about it.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The file and line that a value was read from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    pub file: Arc<str>,
    pub line: u32,
}

impl Place {
    pub fn new(file: &str, line: u32) -> Place {
        Place { file: file.into(), line }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// One thing wrong with a configuration. Each displays as one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfError {
    #[error("{place}: {key}: {value:?}: {expected}")]
    Value { place: Place, key: String, value: String, expected: String },
    #[error("{place}: {key}: {}", unknown_key_words(.of, .nearest))]
    UnknownKey { place: Place, key: String, of: &'static str, nearest: Option<&'static str> },
    #[error("{place}: {text:?}: {expected}")]
    Syntax { place: Place, text: String, expected: &'static str },
    #[error("{file}: cannot be read: {reason}")]
    Unreadable { file: String, reason: String },
    #[error("{place}: Include: {file:?}: {reason}")]
    Include { place: Place, file: String, reason: String },
    #[error("{file}: more than {max} lines: a configuration this long is refused")]
    TooLong { file: String, max: usize },
}

fn unknown_key_words(of: &str, nearest: &Option<&'static str>) -> String {
    match nearest {
        Some(name) => format!("not a key of {of}; the nearest is {name}"),
        None => format!("not a key of {of}"),
    }
}

/// Something accepted that the reader of the configuration should know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    pub place: Place,
    pub key: String,
    pub why: NoticeKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoticeKind {
    /// A key of Slurm's that nothing here depends on.
    NoEffect,
    /// A key that Slurm itself has given up.
    Retired,
    /// A key given before; the later value counts.
    Repeated { first: Place },
    /// A line that names a node slurm.conf does not declare, or does not give this resource.
    NoSuchNode { node: String },
    /// A line of gres.conf about a resource that slurm.conf gives to no node.
    NoSuchResource,
    /// A second partition marked as the default one; the later counts.
    SecondDefault { former: String },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: ", self.place, self.key)?;
        match &self.why {
            NoticeKind::NoEffect => write!(f, "accepted; it has no effect here"),
            NoticeKind::Retired => {
                write!(f, "accepted; Slurm no longer uses it, nor is it used here")
            }
            NoticeKind::Repeated { first } => {
                write!(f, "given before at {first}; this later value counts")
            }
            NoticeKind::NoSuchNode { node } => {
                write!(
                    f,
                    "{node:?} has no such resource in slurm.conf; the line has no effect there"
                )
            }
            NoticeKind::NoSuchResource => {
                write!(f, "no node has this resource in slurm.conf; the line has no effect")
            }
            NoticeKind::SecondDefault { former } => {
                write!(f, "takes over from {former:?} as the default partition")
            }
        }
    }
}

/// What a reading has to say so far. Reading goes on after an error, so that all are told at once.
#[derive(Debug, Default)]
pub struct Findings {
    pub errors: Vec<ConfError>,
    pub notices: Vec<Notice>,
}

impl Findings {
    pub fn wrong(
        &mut self,
        place: &Place,
        key: impl Into<String>,
        value: impl Into<String>,
        expected: impl Into<String>,
    ) {
        self.errors.push(ConfError::Value {
            place: place.clone(),
            key: key.into(),
            value: value.into(),
            expected: expected.into(),
        });
    }

    /// Keeps one notice for each key and reason: a hundred node lines with `BcastAddr` are one.
    pub fn notice(&mut self, place: &Place, key: impl Into<String>, why: NoticeKind) {
        let key = key.into();
        if !self.notices.iter().any(|n| n.key == key && n.why == why) {
            self.notices.push(Notice { place: place.clone(), key, why });
        }
    }
}
