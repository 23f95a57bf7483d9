//! A configuration as a tree in which every value knows its position: read from YAML (`yaml`) or from JSON (`json`), and
//! bounded either way.

pub mod json;
pub mod yaml;

use super::fault::Position;

/// The bytes of a YAML file.
pub const MAX_BYTES: usize = 1 << 20;
pub const MAX_NODES: usize = 20_000;
/// The text of all scalars together, with aliases expanded.
pub const MAX_TEXT_BYTES: usize = 4 << 20;
pub const MAX_DEPTH: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub position: Position,
    pub value: Value,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// `plain` is text without quotes, the only kind that may stand for a boolean or for nothing.
    Scalar {
        text: String,
        plain: bool,
    },
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub key: String,
    pub position: Position,
    pub value: Node,
}
