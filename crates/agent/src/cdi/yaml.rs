//! The tree of a YAML file, as JSON has it: one document without tags, anchors and aliases.

use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Number, Value};

/// Lists and mappings inside one another.
const DEPTH_MAX: usize = 32;

/// A list or mapping that has begun and not yet ended.
enum Open {
    List(Vec<Value>),
    Map(Map<String, Value>, Option<String>),
}

/// Reads the one document of a text, whose length the caller has bounded.
pub(super) fn read(text: &str) -> Result<Value, String> {
    let (mut open, mut root): (Vec<Open>, Option<Value>) = (Vec::new(), None);
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) =
            event.map_err(|e| format!("line {}: {}", e.marker().line(), e.info()))?;
        let at = |what: &str| Err(format!("line {}: {what}", span.start.line()));
        let finished = match event {
            Event::Scalar(_, _, anchor, ref tag)
            | Event::SequenceStart(anchor, ref tag)
            | Event::MappingStart(anchor, ref tag)
                if anchor > 0 || tag.is_some() =>
            {
                return at("an anchor or a tag: expected none");
            }
            Event::Alias(_) => return at("an alias: expected none"),
            Event::Scalar(text, style, ..) => scalar(text.into_owned(), style),
            Event::SequenceStart(..) | Event::MappingStart(..) if open.len() == DEPTH_MAX => {
                return at(&format!("nested too deep: expected at most {DEPTH_MAX} levels"));
            }
            Event::SequenceStart(..) => {
                open.push(Open::List(Vec::new()));
                continue;
            }
            Event::MappingStart(..) => {
                open.push(Open::Map(Map::new(), None));
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(Open::List(items)) => Value::Array(items),
                Some(Open::Map(entries, _)) => Value::Object(entries),
                None => return at("an end without a beginning"),
            },
            Event::DocumentStart(_) if root.is_some() => return at("a second document"),
            _ => continue,
        };
        match open.last_mut() {
            None => root = Some(finished),
            Some(Open::List(items)) => items.push(finished),
            Some(Open::Map(entries, key)) => match (key.take(), finished) {
                (Some(name), value) => {
                    if entries.insert(name, value).is_some() {
                        return at("a key that is given twice");
                    }
                }
                (None, Value::Array(_) | Value::Object(_)) => return at("a key that is no text"),
                (None, Value::String(name)) => *key = Some(name),
                (None, value) => *key = Some(value.to_string()),
            },
        }
    }
    root.ok_or_else(|| "it is empty".to_owned())
}

fn scalar(text: String, style: ScalarStyle) -> Value {
    if style != ScalarStyle::Plain {
        return Value::String(text);
    }
    match text.as_str() {
        "" | "~" | "null" => Value::Null,
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        number => match number.parse::<i64>() {
            Ok(number) => Value::Number(Number::from(number)),
            Err(_) => Value::String(text),
        },
    }
}
