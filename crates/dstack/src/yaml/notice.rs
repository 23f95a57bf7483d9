//! Notices: properties of a file that have no effect, told to the user with their position.

use super::fault::Position;
use super::field::Field;
use std::fmt;

/// A property that changes nothing here, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub position: Position,
    pub property: String,
    pub why: String,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: `{}`: {}", self.position, self.property, self.why)
    }
}

/// The notices of one file as they come up, in its order.
#[derive(Debug, Default)]
pub struct Notices(Vec<Notice>);

impl Notices {
    pub(super) fn into_vec(self) -> Vec<Notice> {
        self.0
    }

    pub(super) fn add(&mut self, field: &Field<'_>, why: impl Into<String>) {
        self.0.push(Notice {
            position: field.position(),
            property: field.name.clone(),
            why: why.into(),
        });
    }
}
