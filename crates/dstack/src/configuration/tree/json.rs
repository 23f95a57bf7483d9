//! The tree of a JSON value: what dstack's client sends over HTTP.
//!
//! A number, a boolean and null become the plain text that YAML has for them, and a string becomes quoted text: from here on
//! both sources are read alike. Nothing in it has a position.

use super::{Budget, Entry, MAX_DEPTH, Node, Value};
use crate::configuration::fault::{Fault, Position, Problem};
use serde_json::Value as Json;

pub fn tree(json: &Json) -> Result<Node, Fault> {
    node(json, 0, &mut Budget::default())
}

fn node(json: &Json, depth: usize, budget: &mut Budget) -> Result<Node, Fault> {
    if depth > MAX_DEPTH {
        return Err(Fault::new(Position::NONE, Problem::TooDeep { limit: MAX_DEPTH }));
    }
    // Before what is within it: a list beyond the bound is not built first.
    budget.charge(1, json.as_str().map_or(0, str::len), Position::NONE)?;
    let plain = |text: String| Value::Scalar { text, plain: true };
    let value = match json {
        Json::Null => plain("null".into()),
        Json::Bool(said) => plain(said.to_string()),
        Json::Number(number) => plain(number.to_string()),
        Json::String(text) => Value::Scalar { text: text.clone(), plain: false },
        Json::Array(items) => {
            let each = items.iter().map(|item| node(item, depth + 1, budget));
            Value::List(each.collect::<Result<_, _>>()?)
        }
        Json::Object(fields) => {
            let each = fields.iter().map(|(key, value)| {
                let value = node(value, depth + 1, budget)?;
                Ok(Entry { key: key.clone(), position: Position::NONE, value })
            });
            Value::Map(each.collect::<Result<_, Fault>>()?)
        }
    };
    Ok(Node { position: Position::NONE, value })
}
