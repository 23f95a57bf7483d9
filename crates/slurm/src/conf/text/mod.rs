//! The text of a configuration: where it is read from, and its lines of pairs.

pub mod files;
pub mod lines;
