//! A configuration as a tree in which every value knows its position: read from YAML (`yaml`) or from JSON (`json`), and
//! bounded either way.

pub mod json;
pub mod yaml;

use super::fault::{Fault, Position, Problem};

/// The bytes of a YAML file.
pub const MAX_BYTES: usize = 1 << 20;
pub const MAX_NODES: usize = 20_000;
/// The text of all scalars together, with aliases expanded.
pub const MAX_TEXT_BYTES: usize = 4 << 20;
pub const MAX_DEPTH: usize = 32;

/// What a tree has taken of its bounds.
#[derive(Debug, Default)]
struct Budget {
    nodes: usize,
    text_bytes: usize,
}

impl Budget {
    /// Counts values and their text; refuses those beyond a bound.
    fn charge(&mut self, nodes: usize, text_bytes: usize, position: Position) -> Result<(), Fault> {
        self.nodes += nodes;
        self.text_bytes += text_bytes;
        let (what, limit) = if self.nodes > MAX_NODES {
            ("values", MAX_NODES)
        } else if self.text_bytes > MAX_TEXT_BYTES {
            ("bytes of text", MAX_TEXT_BYTES)
        } else {
            return Ok(());
        };
        Err(Fault::new(position, Problem::TooMany { what, limit }))
    }
}

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
