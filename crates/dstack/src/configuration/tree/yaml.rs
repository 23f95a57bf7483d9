//! The tree of a YAML document.
//!
//! The parser hands out events; the tree is built here so that what it may grow to is bounded:
//! an alias is a copy, and a few lines of aliases to aliases would otherwise fill the memory.

use super::{Budget, Entry, MAX_BYTES, MAX_DEPTH, Node, Value};
use crate::configuration::fault::{Fault, Position, Problem};
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Tag};
use std::borrow::Cow;
use std::collections::HashMap;

/// Reads the one document of a file.
pub fn parse(bytes: &[u8]) -> Result<Node, Fault> {
    let mut repeated = Vec::new();
    let node = parse_all(bytes, &mut repeated)?;
    repeated.into_iter().next().map_or(Ok(node), Err)
}

/// Reads the one document of a file. A key that is given twice is noted in `repeated`, and its first value counts.
pub fn parse_all(bytes: &[u8], repeated: &mut Vec<Fault>) -> Result<Node, Fault> {
    let start = Position { line: 1, column: 1 };
    if bytes.len() > MAX_BYTES {
        let limit = MAX_BYTES;
        let bytes = bytes.len();
        return Err(Fault::new(start, Problem::TooLarge { bytes, limit }));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| Fault::new(start, Problem::NotText))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut builder = Builder::default();
    let mut documents = 0;
    // Each event consumes text or closes what an earlier one opened, and text is bounded.
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| {
            let problem = Problem::Syntax(error.info().to_owned());
            Fault::new(position_of(error.marker()), problem)
        })?;
        let position = position_of(&span.start);
        if let Event::DocumentStart(_) = event {
            documents += 1;
            if documents > 1 {
                return Err(Fault::new(position, Problem::SecondDocument));
            }
        }
        builder.take(event, position)?;
    }
    repeated.append(&mut builder.repeated);
    builder.root.ok_or(Fault::new(start, Problem::Empty))
}

fn position_of(marker: &Marker) -> Position {
    Position { line: marker.line(), column: marker.col() + 1 }
}

/// A list or mapping that has begun and not yet ended.
struct OpenNode {
    position: Position,
    anchor: usize,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Map { entries: Vec<Entry>, key: Option<(String, Position)> },
}

#[derive(Default)]
struct Builder {
    open: Vec<OpenNode>,
    anchors: HashMap<usize, Node>,
    budget: Budget,
    root: Option<Node>,
    /// Keys that are given twice.
    repeated: Vec<Fault>,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, position: Position) -> Result<(), Fault> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let plain = said_plain(tag, position)?.unwrap_or(style == ScalarStyle::Plain);
                let text = text.into_owned();
                self.budget.charge(1, text.len(), position)?;
                let value = Value::Scalar { text, plain };
                self.finish(Node { position, value }, anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                said_plain(tag, position)?;
                self.begin(position, anchor, Content::List(Vec::new()))
            }
            Event::MappingStart(anchor, tag) => {
                said_plain(tag, position)?;
                let entries = Vec::new();
                self.begin(position, anchor, Content::Map { entries, key: None })
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(position),
            Event::Alias(anchor) => {
                let named = self.anchors.get(&anchor);
                let (nodes, text_bytes) =
                    named.map(weight).ok_or(Fault::new(position, Problem::AliasOfItself))?;
                self.budget.charge(nodes, text_bytes, position)?;
                let value = self.anchors[&anchor].value.clone();
                self.attach(Node { position, value })
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => Ok(()),
        }
    }

    fn begin(&mut self, position: Position, anchor: usize, content: Content) -> Result<(), Fault> {
        if self.open.len() == MAX_DEPTH {
            let limit = MAX_DEPTH;
            return Err(Fault::new(position, Problem::TooDeep { limit }));
        }
        if let Some(OpenNode { content: Content::Map { key: None, .. }, .. }) = self.open.last() {
            return Err(Fault::new(position, Problem::KeyNotText));
        }
        self.budget.charge(1, 0, position)?;
        self.open.push(OpenNode { position, anchor, content });
        Ok(())
    }

    fn end(&mut self, position: Position) -> Result<(), Fault> {
        let Some(open) = self.open.pop() else {
            let problem = Problem::Syntax("an end without a beginning".into());
            return Err(Fault::new(position, problem));
        };
        let value = match open.content {
            Content::List(items) => Value::List(items),
            Content::Map { entries, .. } => Value::Map(merge(entries, &mut self.repeated)?),
        };
        let node = Node { position: open.position, value };
        self.finish(node, open.anchor)
    }

    fn finish(&mut self, node: Node, anchor: usize) -> Result<(), Fault> {
        if anchor > 0 {
            let (nodes, text_bytes) = weight(&node);
            self.budget.charge(nodes, text_bytes, node.position)?;
            self.anchors.insert(anchor, node.clone());
        }
        self.attach(node)
    }

    fn attach(&mut self, node: Node) -> Result<(), Fault> {
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.root = Some(node),
            Some(Content::List(items)) => items.push(node),
            Some(Content::Map { entries, key }) => match key.take() {
                Some((key, position)) => {
                    let value = node;
                    entries.push(Entry { key, position, value });
                }
                None => match node.value {
                    Value::Scalar { text, .. } => *key = Some((text, node.position)),
                    _ => return Err(Fault::new(node.position, Problem::KeyNotText)),
                },
            },
        }
        Ok(())
    }
}

/// What a tag of YAML's own says of a scalar: `!!str '5'` is text, `!!int '5'` is not. Any other tag is refused.
fn said_plain(tag: Option<Cow<'_, Tag>>, position: Position) -> Result<Option<bool>, Fault> {
    let Some(tag) = tag else { return Ok(None) };
    match tag.suffix.as_str() {
        "str" if tag.is_yaml_core_schema() => Ok(Some(false)),
        "int" | "float" | "bool" | "null" if tag.is_yaml_core_schema() => Ok(Some(true)),
        "seq" | "map" if tag.is_yaml_core_schema() => Ok(None),
        _ => Err(Fault::new(position, Problem::Tag(tag.suffix.clone()))),
    }
}

/// Nodes and bytes of text in a tree. May recurse: a chain of aliases runs out of `MAX_NODES` first.
fn weight(node: &Node) -> (usize, usize) {
    let add = |(nodes, bytes): (usize, usize), child: &Node| {
        let (n, b) = weight(child);
        (nodes + n, bytes + b)
    };
    match &node.value {
        Value::Scalar { text, .. } => (1, text.len()),
        Value::List(items) => items.iter().fold((1, 0), add),
        Value::Map(entries) => entries.iter().map(|e| &e.value).fold((1, 0), add),
    }
}

/// Resolves `<<` (what the mapping says itself wins) and notes a key that is given twice.
fn merge(entries: Vec<Entry>, repeated: &mut Vec<Fault>) -> Result<Vec<Entry>, Fault> {
    let (merges, mut own): (Vec<_>, Vec<_>) = entries.into_iter().partition(|e| e.key == "<<");
    let mut first: HashMap<String, usize> = HashMap::new();
    own.retain(|entry| match first.get(&entry.key) {
        Some(line) => {
            let problem = Problem::Repeated { property: entry.key.clone(), first: *line };
            repeated.push(Fault::new(entry.position, problem));
            false
        }
        None => {
            first.insert(entry.key.clone(), entry.position.line);
            true
        }
    });
    for Entry { position, value, .. } in merges {
        let sources = match value.value {
            Value::List(items) => items,
            value => vec![Node { position, value }],
        };
        for source in sources {
            let Value::Map(inherited) = source.value else {
                return Err(Fault::new(position, Problem::Merge));
            };
            for entry in inherited {
                if !first.contains_key(&entry.key) {
                    first.insert(entry.key.clone(), entry.position.line);
                    own.push(entry);
                }
            }
        }
    }
    Ok(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tree on one line, each value as `LINE:COLUMN=`.
    fn draw(node: &Node) -> String {
        let inner = match &node.value {
            Value::Scalar { text, plain: true } => text.clone(),
            Value::Scalar { text, plain: false } => format!("{text:?}"),
            Value::List(items) => {
                format!("[{}]", items.iter().map(draw).collect::<Vec<_>>().join(" "))
            }
            Value::Map(entries) => {
                let each = entries.iter().map(|e| format!("{} {}", e.key, draw(&e.value)));
                format!("{{{}}}", each.collect::<Vec<_>>().join(" "))
            }
        };
        format!("{}={inner}", node.position)
    }

    #[test]
    fn every_value_knows_its_position() {
        let cases = [
            ("a: 1\nb:\n  - x\n  - 'y'\n", "1:1={a 1:4=1 b 3:3=[3:5=x 4:5=\"y\"]}"),
            ("\u{feff}k: {m: [1, 2]}\r\n", "1:1={k 1:4={m 1:8=[1:9=1 1:12=2]}}"),
            ("x: &v 5\ny: *v\n", "1:1={x 1:4=5 y 2:4=5}"),
            ("c: |\n  one\n  two\n", "1:1={c 2:3=\"one\\ntwo\\n\"}"),
            ("v: !!str 5\n", "1:1={v 1:4=\"5\"}"),
            ("v: !!int '5'\n", "1:1={v 1:4=5}"),
            (
                "base: &b {p: 1, q: 2}\nown:\n  <<: *b\n  q: 3\n",
                "1:1={base 1:7={p 1:14=1 q 1:20=2} own 3:3={q 4:6=3 p 1:14=1}}",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(draw(&parse(text.as_bytes()).unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn file_that_is_not_one_plain_document_is_refused_at_its_position() {
        let deep = format!("{}1{}", "[".repeat(40), "]".repeat(40));
        let cases: [(&str, &str); 9] = [
            ("", "1:1: the file is empty: expected properties, the first of them `type: task`"),
            ("a: 1\na: 2\n", "2:1: `a` is given twice: it is already in line 1"),
            ("a: 1\n---\nb: 2\n", "2:1: a second document: expected one configuration in a file"),
            ("a: !!binary eA==\n", "1:4: tag `binary`: expected no tags"),
            (
                "a: &x [*x]\n",
                "1:8: an alias inside the value that it names: expected an alias to a finished value",
            ),
            ("? [1]\n: 2\n", "1:3: a list or a mapping as a key: expected a property's name"),
            ("a: {<<: 3}\n", "1:5: `<<` takes a mapping, or a list of mappings"),
            ("a: [1\n", "2:1: not YAML: "),
            (&deep, "1:33: nested too deep: expected at most 32 levels"),
        ];
        for (text, expected) in cases {
            let line = parse(text.as_bytes()).unwrap_err().to_string();
            assert!(line.starts_with(expected), "{text}: {line}");
            assert!(!line.contains('\n'), "{text}: {line}");
        }
    }

    #[test]
    fn what_a_file_may_grow_to_is_bounded() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..9 {
            let inner = vec![format!("*a{}", level - 1); 10].join(", ");
            bomb += &format!("a{level}: &a{level} [{inner}]\n");
        }
        let long_text = format!("a: &a {}\nb: [{}]\n", "x".repeat(900_000), "*a, ".repeat(10));
        let cases = [
            (bomb.into_bytes(), "too many values"),
            (long_text.into_bytes(), "too many bytes of text"),
            (vec![b'#'; MAX_BYTES + 1], "the file has 1048577 bytes"),
            (vec![0xff, 0xfe], "not UTF-8"),
        ];
        for (bytes, expected) in cases {
            let line = parse(&bytes).unwrap_err().to_string();
            assert!(line.contains(expected), "{line}");
        }
    }
}
