//! The tree of a JSON value: what dstack's client sends over HTTP.
//!
//! A number, a boolean and null become the plain text that YAML has for them, and a string becomes quoted text: from here on
//! both sources are read alike. Nothing in it has a position.

use super::{Entry, MAX_DEPTH, MAX_NODES, MAX_TEXT_BYTES, Node, Value};
use crate::configuration::fault::{Fault, Position, Problem};
use serde_json::Value as Json;

pub fn tree(json: &Json) -> Result<Node, Fault> {
    Builder { nodes: 0, text_bytes: 0 }.node(json, 0)
}

struct Builder {
    nodes: usize,
    text_bytes: usize,
}

impl Builder {
    fn node(&mut self, json: &Json, depth: usize) -> Result<Node, Fault> {
        if depth > MAX_DEPTH {
            return Err(Fault::new(Position::NONE, Problem::TooDeep { limit: MAX_DEPTH }));
        }
        let plain = |text: String| Value::Scalar { text, plain: true };
        let value = match json {
            Json::Null => plain("null".into()),
            Json::Bool(said) => plain(said.to_string()),
            Json::Number(number) => plain(number.to_string()),
            Json::String(text) => Value::Scalar { text: text.clone(), plain: false },
            Json::Array(items) => {
                let each = items.iter().map(|item| self.node(item, depth + 1));
                Value::List(each.collect::<Result<_, _>>()?)
            }
            Json::Object(fields) => {
                let each = fields.iter().map(|(key, value)| {
                    let value = self.node(value, depth + 1)?;
                    Ok(Entry { key: key.clone(), position: Position::NONE, value })
                });
                Value::Map(each.collect::<Result<_, Fault>>()?)
            }
        };
        self.charge(&value)?;
        Ok(Node { position: Position::NONE, value })
    }

    fn charge(&mut self, value: &Value) -> Result<(), Fault> {
        self.nodes += 1;
        if let Value::Scalar { text, .. } = value {
            self.text_bytes += text.len();
        }
        let (what, limit) = if self.nodes > MAX_NODES {
            ("values", MAX_NODES)
        } else if self.text_bytes > MAX_TEXT_BYTES {
            ("bytes of text", MAX_TEXT_BYTES)
        } else {
            return Ok(());
        };
        Err(Fault::new(Position::NONE, Problem::TooMany { what, limit }))
    }
}
