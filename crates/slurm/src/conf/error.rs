//! Everything that reading a configuration can find: errors, which refuse it, and notices, which do not.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ConfLocation {
    /// The path as it was opened.
    pub file: Arc<str>,
    /// Counted from one.
    pub line: u32,
}

impl fmt::Display for ConfLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A reason to refuse a configuration. Displays as one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfError {
    #[error("{place}: {key}: {value:?}: {expected}")]
    Value { place: ConfLocation, key: String, value: String, expected: String },

    #[error("{place}: {key}: not a key of {of}{}", suggestion(*nearest))]
    UnknownKey { place: ConfLocation, key: String, of: &'static str, nearest: Option<&'static str> },

    #[error("{place}: {text:?}: {expected}")]
    Syntax { place: ConfLocation, text: String, expected: &'static str },

    #[error("{file}: cannot be read: {reason}")]
    Unreadable { file: String, reason: String },

    #[error("{place}: Include: {file:?}: {reason}")]
    Include { place: ConfLocation, file: String, reason: String },

    #[error("{file}: more than {max} lines: a configuration this long is refused")]
    TooLong { file: String, max: usize },
}

fn suggestion(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!("; the nearest is {name}"))
}

/// Something that the administrator should know of a configuration that is accepted. Displays as one
/// line, which the server writes to its log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    pub place: ConfLocation,
    /// A key, a key with one of its words (`PrologFlags=X11`), or the name of a resource.
    pub key: String,
    pub why: NoticeKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoticeKind {
    NoEffect,
    /// A word without effect that is almost one that acts.
    Misspelt {
        nearest: String,
    },
    Retired,
    Repeated {
        first: ConfLocation,
    },
    /// A line of gres.conf names a node that has no such resource in slurm.conf.
    NoSuchNode {
        node: String,
    },
    /// A line of gres.conf is for all nodes, and none has the resource in slurm.conf.
    NoSuchResource,
    /// A second partition says `Default=YES`.
    SecondDefault {
        former: String,
    },
    /// A value that contradicts another: what counts instead, as in Slurm.
    Corrected {
        how: String,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: ", self.place, self.key)?;
        match &self.why {
            NoticeKind::NoEffect => f.write_str("accepted; it has no effect here"),
            NoticeKind::Misspelt { nearest } => {
                write!(f, "accepted; it has no effect here; the nearest that has one is {nearest}")
            }
            NoticeKind::Retired => {
                f.write_str("accepted; Slurm no longer uses it, nor is it used here")
            }
            NoticeKind::Repeated { first } => {
                write!(f, "given before at {first}; this later value counts")
            }
            NoticeKind::NoSuchNode { node } => {
                write!(f, "{node:?} has no such resource in slurm.conf; ")?;
                f.write_str("the line has no effect there")
            }
            NoticeKind::NoSuchResource => {
                f.write_str("no node has this resource in slurm.conf; the line has no effect")
            }
            NoticeKind::SecondDefault { former } => {
                write!(f, "takes over from {former:?} as the default partition")
            }
            NoticeKind::Corrected { how } => f.write_str(how),
        }
    }
}

/// Errors and notices in the order found. Reading goes on after an error, so that all of them are
/// told at once.
#[derive(Debug, Default)]
pub struct Findings {
    pub errors: Vec<ConfError>,
    pub notices: Vec<Notice>,
}

impl Findings {
    /// Refuses the value of a key.
    pub fn wrong(
        &mut self,
        place: &ConfLocation,
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

    /// Adds a notice, unless the same was made of the same key elsewhere.
    pub fn notice(&mut self, place: &ConfLocation, key: impl Into<String>, why: NoticeKind) {
        let key = key.into();
        if !self.notices.iter().any(|notice| notice.key == key && notice.why == why) {
            self.notices.push(Notice { place: place.clone(), key, why });
        }
    }
}
