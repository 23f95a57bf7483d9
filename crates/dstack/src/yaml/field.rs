//! One property's value on its way into a type: it knows its name and its position for the error line.

use super::fault::{Fault, Position, Problem};
use super::node::{Entry, Node, Value};
use super::property::{self, Property};
use model::amount::Bytes;
use model::grammar::GrammarError;
use model::range::Range;
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

    pub fn require_boolean(&self) -> Result<bool, Fault> {
        self.boolean().ok_or_else(|| self.invalid("true or false"))
    }

    /// The text as it is written. Numbers and booleans have a text too.
    pub fn text(&self, expected: &str) -> Result<&'a str, Fault> {
        match &self.node.value {
            Value::Scalar { text, .. } if !self.is_nothing() => Ok(text),
            _ => Err(self.invalid(expected)),
        }
    }

    /// One of a closed set of words.
    pub fn word<T: Copy>(&self, words: &[(&str, T)]) -> Result<T, Fault> {
        let listed = || {
            let names: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            format!("one of {}", names.join(", "))
        };
        let Value::Scalar { text, .. } = &self.node.value else {
            return Err(self.invalid(listed()));
        };
        let found = words.iter().find(|(word, _)| word == text);
        found.map(|(_, value)| *value).ok_or_else(|| self.invalid(listed()))
    }

    /// A whole number within bounds, both inclusive.
    pub fn integer(&self, min: u32, max: u32) -> Result<u32, Fault> {
        let expected = || match max {
            u32::MAX => format!("a whole number, {min} or more"),
            _ => format!("a whole number from {min} to {max}"),
        };
        let number = self.text("").ok().and_then(|text| text.trim().parse().ok());
        match number {
            Some(n) if (min..=max).contains(&n) => Ok(n),
            _ => Err(self.invalid(expected())),
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

    /// The mapping's own keys with their values, whatever the keys are.
    pub fn entries(&self, expected: &str) -> Result<Vec<(&'a str, Position, Field<'a>)>, Fault> {
        let Value::Map(entries) = &self.node.value else {
            return Err(self.invalid(expected));
        };
        let field = |Entry { key, position, value }: &'a Entry| {
            let name = match self.name.as_str() {
                "" => key.clone(),
                parent => format!("{parent}.{key}"),
            };
            (key.as_str(), *position, Field { node: value, name })
        };
        Ok(entries.iter().map(field).collect())
    }

    /// The mapping's properties that say something, each found in the table of those it may have.
    pub fn properties(
        &self,
        table: &'static [Property],
        expected: &str,
    ) -> Result<Vec<(&'static Property, Field<'a>)>, Fault> {
        let mut found = Vec::new();
        for (key, position, field) in self.entries(expected)? {
            let Some(property) = table.iter().find(|p| p.name == key) else {
                return Err(Fault::new(position, property::unknown(table, key, &field.name)));
            };
            if !field.is_nothing() {
                found.push((property, field));
            }
        }
        Ok(found)
    }

    pub fn duration(&self) -> Result<Duration, Fault> {
        let expected = "a duration such as 30s, 5m, 2h, 1d or 1w";
        let text = self.text(expected)?;
        let parsed = model::time::parse_duration(text).map_err(|e| self.grammar(e))?;
        parsed.ok_or_else(|| self.invalid(expected))
    }

    /// A duration that may be switched off. `true` leaves the default.
    pub fn duration_or_off(&self, default: Option<Duration>) -> Result<Option<Duration>, Fault> {
        match (self.boolean(), self.text("")) {
            (Some(true), _) => Ok(default),
            (Some(false), _) | (None, Ok("off")) => Ok(None),
            _ => self.duration().map(Some),
        }
    }

    pub fn bytes(&self) -> Result<Bytes, Fault> {
        let text = self.text("a size such as 512MB, 16GB or 1TB")?;
        Bytes::parse_dstack(text).map_err(|e| self.grammar(e))
    }

    pub fn count_range(&self) -> Result<Range<u32>, Fault> {
        let expected = "a count or a range such as 4, 4.., ..8 or 4..8";
        self.range(expected, |text| Range::parse_count("count", text))
    }

    pub fn bytes_range(&self) -> Result<Range<Bytes>, Fault> {
        let expected = "a size or a range such as 16GB, 16GB.. or 16GB..32GB";
        self.range(expected, |text| Range::parse("size", text, Bytes::parse_dstack))
    }

    /// A range as text, or as a mapping of `min` and `max`.
    fn range<T: Ord + Clone + Default>(
        &self,
        expected: &str,
        parse: impl Fn(&str) -> Result<Range<T>, GrammarError>,
    ) -> Result<Range<T>, Fault> {
        if !self.is_map() {
            return parse(self.text(expected)?).map_err(|e| self.grammar(e));
        }
        let mut range = Range::at_least(T::default());
        for (property, end) in self.properties(property::RANGE, expected)? {
            let bound = parse(end.text(expected)?).map_err(|e| end.grammar(e))?;
            if !bound.is_exact() {
                return Err(end.invalid("one end of the range"));
            }
            match property.name {
                "min" => range.min = bound.min,
                _ => range.max = bound.max,
            }
        }
        match &range.max {
            Some(max) if *max < range.min => Err(self.invalid("`min` not above `max`")),
            _ => Ok(range),
        }
    }
}
