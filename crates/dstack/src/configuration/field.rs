//! One property's value on its way into a type: it knows its name and its position for the error line.

use super::fault::{Fault, Position, Problem};
use super::tree::{Entry, Node, Value};
use super::value::Value as Plain;
use model::amount::Bytes;
use model::grammar::GrammarError;
use model::range::{Range, whole_number};
use std::time::Duration;

const NOTHING: &[&str] = &["", "~", "null", "Null", "NULL"];

/// The plain words that are booleans to dstack's reader (YAML 1.1).
const TRUE: &[&str] = &["true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"];
const FALSE: &[&str] = &["false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"];

/// The characters of a value that an error line shows.
const SHOWN_CHARS: usize = 60;

#[derive(Debug, Clone)]
pub struct Field<'a> {
    node: &'a Node,
    /// The path from the top: `resources.gpu.count`, `commands[2]`; empty at the top.
    pub name: String,
}

impl<'a> Field<'a> {
    pub fn top(node: &'a Node) -> Self {
        let name = String::new();
        Self { node, name }
    }

    /// The value of a property of the top.
    pub fn named(node: &'a Node, name: &str) -> Self {
        Self { node, name: name.to_owned() }
    }

    pub fn position(&self) -> Position {
        self.node.position
    }

    pub fn fault(&self, problem: Problem) -> Fault {
        Fault::new(self.node.position, problem)
    }

    pub fn invalid(&self, expected: impl Into<String>) -> Fault {
        self.fault(Problem::Invalid {
            property: self.name.clone(),
            value: self.shown(),
            expected: expected.into(),
        })
    }

    pub fn grammar(&self, source: GrammarError) -> Fault {
        let property = self.name.clone();
        self.fault(Problem::Grammar { property, source })
    }

    pub fn refused(&self, why: impl Into<String>) -> Fault {
        let property = self.name.clone();
        let why = why.into();
        self.fault(Problem::Refused { property, why })
    }

    fn shown(&self) -> String {
        match &self.node.value {
            Value::Scalar { text, .. } if text.chars().count() > SHOWN_CHARS => {
                let start: String = text.chars().take(SHOWN_CHARS).collect();
                format!("{start:?}…")
            }
            Value::Scalar { text, .. } => format!("{text:?}"),
            Value::List(_) => "list".into(),
            Value::Map(_) => "mapping".into(),
        }
    }

    pub fn is_nothing(&self) -> bool {
        matches!(&self.node.value, Value::Scalar { text, plain: true } if NOTHING.contains(&text.as_str()))
    }

    /// The value as it is written. Plain texts that are numbers or booleans become that.
    pub fn as_it_is(&self) -> Plain {
        match &self.node.value {
            Value::List(items) => {
                let item = |node| Field { node, name: String::new() }.as_it_is();
                Plain::List(items.iter().map(item).collect())
            }
            Value::Map(entries) => {
                let entry = |Entry { key, value, .. }: &Entry| {
                    let field = Field { node: value, name: String::new() };
                    (key.clone().into(), field.as_it_is())
                };
                Plain::Map(entries.iter().map(entry).collect())
            }
            Value::Scalar { .. } if self.is_nothing() => Plain::Null,
            Value::Scalar { text, plain } => {
                let number = || text.parse::<f64>().ok().filter(|n| n.is_finite() && *plain);
                match (self.boolean(), text.parse()) {
                    (Some(said), _) => Plain::Bool(said),
                    (None, Ok(whole)) if *plain => Plain::Integer(whole),
                    _ => number().map_or_else(|| Plain::text(text), Plain::Number),
                }
            }
        }
    }

    pub fn is_list(&self) -> bool {
        matches!(self.node.value, Value::List(_))
    }

    pub fn is_map(&self) -> bool {
        matches!(self.node.value, Value::Map(_))
    }

    /// Nothing, `false`, or an empty list or mapping: the value that asks for nothing.
    pub fn is_off(&self) -> bool {
        self.is_nothing()
            || self.boolean() == Some(false)
            || match &self.node.value {
                Value::Scalar { .. } => false,
                Value::List(items) => items.is_empty(),
                Value::Map(entries) => entries.is_empty(),
            }
    }

    pub fn boolean(&self) -> Option<bool> {
        match &self.node.value {
            Value::Scalar { text, plain: true } if TRUE.contains(&text.as_str()) => Some(true),
            Value::Scalar { text, plain: true } if FALSE.contains(&text.as_str()) => Some(false),
            _ => None,
        }
    }

    /// The boolean of a property that takes one. dstack takes its words in quotes there too, in any case, and the digits 1 and 0.
    pub fn lenient_boolean(&self) -> Option<bool> {
        let text = self.text("").ok()?.to_ascii_lowercase();
        match text.as_str() {
            "true" | "yes" | "on" | "y" | "t" | "1" => Some(true),
            "false" | "no" | "off" | "n" | "f" | "0" => Some(false),
            _ => None,
        }
    }

    pub fn require_boolean(&self) -> Result<bool, Fault> {
        self.lenient_boolean().ok_or_else(|| self.invalid("true or false"))
    }

    /// The text as it is written. Numbers and booleans have a text too.
    pub fn text(&self, expected: &str) -> Result<&'a str, Fault> {
        match &self.node.value {
            Value::Scalar { text, .. } if !self.is_nothing() => Ok(text),
            _ => Err(self.invalid(expected)),
        }
    }

    /// One of a closed set of words.
    pub fn word(&self, words: &[&'static str]) -> Result<&'static str, Fault> {
        let found = match &self.node.value {
            Value::Scalar { text, .. } => words.iter().find(|word| *word == text),
            _ => None,
        };
        found.copied().ok_or_else(|| self.invalid(format!("one of {}", words.join(", "))))
    }

    /// A whole number within bounds, both inclusive.
    pub fn integer(&self, min: i64, max: i64) -> Result<i64, Fault> {
        let expected = || match max {
            i64::MAX => format!("a whole number, {min} or more"),
            _ => format!("a whole number from {min} to {max}"),
        };
        let number = self.text("").ok().and_then(|text| whole_number(text.trim()).parse().ok());
        match number {
            Some(n) if (min..=max).contains(&n) => Ok(n),
            _ => Err(self.invalid(expected())),
        }
    }

    /// The name of a property of this mapping.
    pub fn child_name(&self, key: &str) -> String {
        match self.name.as_str() {
            "" => key.to_owned(),
            parent => format!("{parent}.{key}"),
        }
    }

    pub fn list(&self, expected: &str) -> Result<Vec<Field<'a>>, Fault> {
        let Value::List(items) = &self.node.value else {
            return Err(self.invalid(expected));
        };
        let each = items
            .iter()
            .enumerate()
            .map(|(i, node)| Field { node, name: format!("{}[{i}]", self.name) });
        Ok(each.collect())
    }

    pub fn texts(&self, expected: &str) -> Result<Vec<String>, Fault> {
        let items = self.list(expected)?;
        items.iter().map(|item| item.text("text").map(str::to_owned)).collect()
    }

    /// The value of this key; `None` where the mapping has none, and of what is no mapping.
    pub fn child(&self, key: &str) -> Option<Field<'a>> {
        let Value::Map(entries) = &self.node.value else { return None };
        let entry = entries.iter().find(|entry| entry.key == key)?;
        Some(Field { node: &entry.value, name: self.child_name(key) })
    }

    /// The mapping's own keys with their values, whatever the keys are.
    pub fn entries(&self, expected: &str) -> Result<Vec<(&'a str, Position, Field<'a>)>, Fault> {
        let Value::Map(entries) = &self.node.value else {
            return Err(self.invalid(expected));
        };
        let field = |Entry { key, position, value }: &'a Entry| {
            (key.as_str(), *position, Field { node: value, name: self.child_name(key) })
        };
        Ok(entries.iter().map(field).collect())
    }

    pub fn duration(&self) -> Result<Duration, Fault> {
        let expected = "a duration such as 30s, 5m, 2h, 1d or 1w";
        let text = self.text(expected)?;
        let parsed = model::time::parse_duration(text).map_err(|e| self.grammar(e))?;
        parsed.ok_or_else(|| self.invalid(expected))
    }

    /// Whether the value switches a duration off.
    pub fn says_off(&self) -> bool {
        self.boolean() == Some(false) || self.text("") == Ok("off")
    }

    pub fn bytes(&self) -> Result<Bytes, Fault> {
        let text = self.text("a size such as 512MB, 16GB or 1TB")?;
        Bytes::parse_dstack(text).map_err(|e| self.grammar(e))
    }

    pub fn count_range(&self) -> Result<Ends<u32>, Fault> {
        let expected = "a count or a range such as 4, 4.., ..8 or 4..8";
        self.range(expected, |text| Range::parse_count("count", text))
    }

    pub fn bytes_range(&self) -> Result<Ends<Bytes>, Fault> {
        let expected = "a size or a range such as 16GB, 16GB.. or 16GB..32GB";
        self.range(expected, |text| Range::parse("size", text, Bytes::parse_dstack))
    }

    /// A range as text, or as a mapping of `min` and `max`.
    fn range<T: Ord + Clone + Default>(
        &self,
        expected: &str,
        parse: impl Fn(&str) -> Result<Range<T>, GrammarError>,
    ) -> Result<Ends<T>, Fault> {
        if !self.is_map() {
            let text = self.text(expected)?;
            return parse(text).map(|range| Ends::of(text, range)).map_err(|e| self.grammar(e));
        }
        let (mut min, mut max) = (None, None);
        for (key, position, end) in self.entries(expected)? {
            let place = match key {
                "min" => &mut min,
                "max" => &mut max,
                _ => {
                    let property = end.name.clone();
                    return Err(Fault::new(position, Problem::Unknown { property, nearest: None }));
                }
            };
            if end.is_nothing() {
                continue;
            }
            let bound = parse(end.text(expected)?).map_err(|e| end.grammar(e))?;
            if !bound.is_exact() {
                return Err(end.invalid("one end of the range"));
            }
            *place = Some(bound.min);
        }
        match (&min, &max) {
            (None, None) => Err(self.invalid(expected)),
            (Some(least), Some(most)) if most < least => Err(self.invalid("`min` not above `max`")),
            _ => Ok(Ends { min, max }),
        }
    }
}

/// A range as it was written: either end may be open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ends<T> {
    pub min: Option<T>,
    pub max: Option<T>,
}

impl<T> Ends<T> {
    /// The range that the text was read as.
    pub fn of(text: &str, range: Range<T>) -> Self {
        let open = text.trim_start().starts_with("..");
        Self { min: (!open).then_some(range.min), max: range.max }
    }
}
