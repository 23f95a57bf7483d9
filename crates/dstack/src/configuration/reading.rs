//! What comes up while a configuration is read.

use super::fault::{Notice, Position};
use super::field::Field;

/// Where a configuration comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A file: a property that is not known is refused.
    Yaml,
    /// dstack's client, of this version or another: what is not known is left out, with a notice if it says anything.
    Json,
}

/// What came up so far, in the order of the configuration.
#[derive(Debug)]
pub struct Reading {
    pub source: Source,
    /// Properties that change nothing.
    pub notices: Vec<Notice>,
    /// Properties that a later capability brings: the configuration is not applied.
    pub refusals: Vec<Notice>,
    /// The variables that the client's environment is to give, and where each is named.
    pub from_client: Vec<(String, Position)>,
}

impl Reading {
    pub fn new(source: Source) -> Self {
        Self { source, notices: Vec::new(), refusals: Vec::new(), from_client: Vec::new() }
    }

    pub fn notice(&mut self, field: &Field<'_>, why: impl Into<String>) {
        self.notices.push(notice(field, why));
    }

    pub fn refuse(&mut self, field: &Field<'_>, why: impl Into<String>) {
        self.refusals.push(notice(field, why));
    }
}

fn notice(field: &Field<'_>, why: impl Into<String>) -> Notice {
    Notice { position: field.position(), property: field.name.clone(), why: why.into() }
}
