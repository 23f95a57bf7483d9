//! Node features that a job requires: `--constraint=a100&ib`, `[rack1|rack2]`, `gpu*2&big*1`.

use crate::grammar::GrammarError;
use serde::{Deserialize, Serialize};
use std::fmt;

/// No expression may hold more words and marks than this, nor be nested deeper than [`DEPTH_MAX`].
const TOKENS_MAX: usize = 1_024;
const DEPTH_MAX: usize = 32;

const WHAT: &str = "constraint";

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Constraint {
    Feature(String),
    And(Vec<Constraint>),
    Or(Vec<Constraint>),
    /// `[a|b]`: all nodes of the job have the same one of these.
    Xor(Vec<Constraint>),
    /// `[a*2&b*1]`: every node of the job is one of these, and there are as many of each as counted.
    Sets(Vec<Constraint>),
    /// `a*2`: at least so many nodes of the job have it.
    Count {
        of: Box<Constraint>,
        nodes: u32,
    },
}

impl Constraint {
    /// `&` and `|` are taken from left to right without precedence, as Slurm does; parentheses group.
    pub fn parse(text: &str) -> Result<Self, GrammarError> {
        let refused = |expected: &str| GrammarError::new(WHAT, text, expected);
        let tokens = tokens(text)
            .ok_or_else(|| refused("feature names joined by &, |, *COUNT, ( ) and [ ]"))?;
        if tokens.len() > TOKENS_MAX {
            return Err(refused(&format!("at most {TOKENS_MAX} words and marks")));
        }
        let mut parser = Parser { tokens: &tokens, depth: 0, brackets: 0 };
        let constraint = parser.expression().ok_or_else(|| {
            refused(
                "a feature on each side of & and |, and balanced brackets, as in a100&(ib|roce)",
            )
        })?;
        match parser.tokens {
            [] => Ok(constraint),
            _ => Err(refused("& or | between features")),
        }
    }

    /// Whether a node with these features may serve. It must match one part of `[a|b]` or `[a*2&b*1]`; a count by
    /// itself excludes no node.
    pub fn matches(&self, features: &[String]) -> bool {
        match self {
            Constraint::Feature(name) => features.contains(name),
            Constraint::And(parts) => parts.iter().all(|part| part.matches(features)),
            Constraint::Or(parts) | Constraint::Xor(parts) => {
                parts.iter().any(|part| part.matches(features))
            }
            Constraint::Sets(parts) => parts.iter().any(|part| part.is_counted_in(features)),
            Constraint::Count { .. } => true,
        }
    }

    /// Whether a node with these features is one of those that are counted.
    pub fn is_counted_in(&self, features: &[String]) -> bool {
        match self {
            Constraint::Count { of, .. } => of.matches(features),
            other => other.matches(features),
        }
    }

    /// Each counted constraint with its number of nodes; alternatives that hold counts are left out.
    pub fn counts(&self) -> Vec<(&Constraint, u32)> {
        match self {
            Constraint::Count { of, nodes } => vec![(of, *nodes)],
            Constraint::And(parts) | Constraint::Sets(parts) => {
                parts.iter().flat_map(Constraint::counts).collect()
            }
            Constraint::Feature(_) | Constraint::Or(_) | Constraint::Xor(_) => Vec::new(),
        }
    }

    pub fn has_counts(&self) -> bool {
        !self.counts().is_empty()
    }

    /// The alternatives of which all nodes must share one: `[a|b]&c` gives `a&c` and `b&c`. Without brackets it is
    /// the constraint itself.
    pub fn alternatives(&self) -> Vec<Constraint> {
        match self {
            Constraint::Xor(parts) => parts.clone(),
            Constraint::And(parts) => {
                let bracket = parts.iter().enumerate().find_map(|(at, part)| match part {
                    Constraint::Xor(choices) => Some((at, choices)),
                    _ => None,
                });
                let Some((at, choices)) = bracket else { return vec![self.clone()] };
                let with = |choice: &Constraint| {
                    let mut parts = parts.clone();
                    parts[at] = choice.clone();
                    Constraint::And(parts)
                };
                choices.iter().map(with).collect()
            }
            whole => vec![whole.clone()],
        }
    }

    /// How many features it has, and marks between and around them. One that is sent as a structure was not counted when it
    /// was read.
    pub fn size(&self) -> usize {
        match self {
            Constraint::Feature(_) => 1,
            Constraint::And(parts)
            | Constraint::Or(parts)
            | Constraint::Xor(parts)
            | Constraint::Sets(parts) => 1 + parts.iter().map(Constraint::size).sum::<usize>(),
            Constraint::Count { of, .. } => 1 + of.size(),
        }
    }

    /// Every feature that is named.
    pub fn features(&self) -> Vec<&str> {
        match self {
            Constraint::Feature(name) => vec![name],
            Constraint::And(parts)
            | Constraint::Or(parts)
            | Constraint::Xor(parts)
            | Constraint::Sets(parts) => parts.iter().flat_map(Constraint::features).collect(),
            Constraint::Count { of, .. } => of.features(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Mark(char),
}

fn tokens(text: &str) -> Option<Vec<Token<'_>>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim();
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '&' | '|' | '*' | '(' | ')' | '[' | ']' => {
                tokens.push(Token::Mark(c));
                1
            }
            // A comma is how older scripts write it.
            ',' => {
                tokens.push(Token::Mark('&'));
                1
            }
            _ => {
                let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
                tokens.push(Token::Word(rest.get(..length).filter(|word| !word.is_empty())?));
                length
            }
        };
        rest = rest[length..].trim_start();
    }
    Some(tokens)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '=' | ':' | '/' | '+')
}

struct Parser<'a> {
    tokens: &'a [Token<'a>],
    depth: usize,
    /// Slurm takes one set of brackets.
    brackets: usize,
}

/// Brackets hold alternatives, or counts; around one feature they mean nothing.
fn bracketed(inside: Constraint) -> Option<Constraint> {
    let is_count = |part: &Constraint| matches!(part, Constraint::Count { .. });
    match inside {
        Constraint::Or(parts) => Some(Constraint::Xor(parts)),
        Constraint::And(parts) => parts.iter().all(is_count).then_some(Constraint::Sets(parts)),
        one @ Constraint::Count { .. } => Some(Constraint::Sets(vec![one])),
        one => Some(Constraint::Xor(vec![one])),
    }
}

impl<'a> Parser<'a> {
    fn next_if(&mut self, mark: char) -> bool {
        match self.tokens.split_first() {
            Some((Token::Mark(found), rest)) if *found == mark => {
                self.tokens = rest;
                true
            }
            _ => false,
        }
    }

    fn word(&mut self) -> Option<&'a str> {
        let (Token::Word(word), rest) = self.tokens.split_first()? else {
            return None;
        };
        self.tokens = rest;
        Some(word)
    }

    fn expression(&mut self) -> Option<Constraint> {
        let mut left = self.counted()?;
        loop {
            left = if self.next_if('&') {
                match (left, self.counted()?) {
                    (Constraint::And(mut parts), right) => {
                        parts.push(right);
                        Constraint::And(parts)
                    }
                    (left, right) => Constraint::And(vec![left, right]),
                }
            } else if self.next_if('|') {
                match (left, self.counted()?) {
                    (Constraint::Or(mut parts), right) => {
                        parts.push(right);
                        Constraint::Or(parts)
                    }
                    (left, right) => Constraint::Or(vec![left, right]),
                }
            } else {
                return Some(left);
            };
        }
    }

    fn counted(&mut self) -> Option<Constraint> {
        let of = self.single()?;
        if !self.next_if('*') {
            return Some(of);
        }
        let nodes = self.word()?.parse().ok().filter(|nodes| *nodes > 0)?;
        Some(Constraint::Count { of: Box::new(of), nodes })
    }

    fn single(&mut self) -> Option<Constraint> {
        if self.next_if('(') {
            self.nested(')')
        } else if self.next_if('[') {
            self.brackets += 1;
            bracketed(self.nested(']')?).filter(|_| self.brackets == 1)
        } else {
            self.word().map(|word| Constraint::Feature(word.to_owned()))
        }
    }

    fn nested(&mut self, close: char) -> Option<Constraint> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return None;
        }
        let inside = self.expression()?;
        self.depth -= 1;
        self.next_if(close).then_some(inside)
    }
}

impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined = |f: &mut fmt::Formatter<'_>, parts: &[Constraint], mark: &str| {
            for (at, part) in parts.iter().enumerate() {
                let mark = if at == 0 { "" } else { mark };
                match part {
                    Constraint::And(_) | Constraint::Or(_) => write!(f, "{mark}({part})")?,
                    part => write!(f, "{mark}{part}")?,
                }
            }
            Ok(())
        };
        match self {
            Constraint::Feature(name) => f.write_str(name),
            Constraint::And(parts) => joined(f, parts, "&"),
            Constraint::Or(parts) => joined(f, parts, "|"),
            Constraint::Xor(parts) => {
                f.write_str("[")?;
                joined(f, parts, "|")?;
                f.write_str("]")
            }
            Constraint::Sets(parts) => {
                f.write_str("[")?;
                joined(f, parts, "&")?;
                f.write_str("]")
            }
            Constraint::Count { of, nodes } => match **of {
                Constraint::And(_) | Constraint::Or(_) => write!(f, "({of})*{nodes}"),
                _ => write!(f, "{of}*{nodes}"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Constraint {
        Constraint::parse(text).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn expressions_choose_nodes() {
        let table = [
            ("a", "a b", true),
            ("a", "b", false),
            ("a&b", "a b", true),
            ("a&b", "a", false),
            ("a,b", "a b", true),
            ("a,b", "a", false),
            ("a|b", "b", true),
            ("a|b", "c", false),
            ("a|b&c", "a", false),
            ("a|(b&c)", "a", true),
            ("a&(b|c)", "a c", true),
            ("a & ( b | c )", "b c", false),
            ("[rack1|rack2]", "rack2", true),
            ("[rack1|rack2]", "rack3", false),
            ("gpu*2", "gpu", true),
            // Nodes beyond the counted ones need no feature.
            ("gpu*2", "big", true),
            ("ib&gpu*2", "ib", true),
            ("ib&gpu*2", "gpu", false),
            ("[a|b]&c", "b c", true),
            ("[a|b]&c", "b", false),
            ("[(a&c)*1&b*1]", "a", false),
            ("[gpu*2&big*1]", "big", true),
            ("ib&[gpu*2&big*1]", "gpu", false),
            ("a100-80gb.sxm", "a100-80gb.sxm", true),
        ];
        for (text, features, fits) in table {
            let features: Vec<String> = features.split(' ').map(str::to_owned).collect();
            assert_eq!(parsed(text).matches(&features), fits, "{text} on {features:?}");
        }
    }

    #[test]
    fn an_expression_shows_as_one_that_means_the_same() {
        for text in [
            "a",
            "a&b&c",
            "a|b|c",
            "(a|b)&c",
            "a&(b|c)",
            "[a|b]",
            "gpu*2&big*1",
            "[gpu*2&big*1]",
            "[(a|b)*1&c*2]",
            "(a&b)*4",
            "x&[a|(b&c)]",
            "[a|b]&c",
        ] {
            assert_eq!(parsed(text).to_string(), text);
            assert_eq!(parsed(&parsed(text).to_string()), parsed(text));
        }
        assert_eq!(parsed("[a|b]").alternatives().len(), 2);
        assert_eq!(parsed("a|b").alternatives().len(), 1);
        let of = |text: &str| -> Vec<String> {
            parsed(text).alternatives().iter().map(Constraint::to_string).collect()
        };
        assert_eq!(of("[a|b]&c"), ["a&c", "b&c"]);
        let counts: u32 = parsed("[a*2&b*3]").counts().iter().map(|(_, nodes)| nodes).sum();
        assert_eq!(counts, 5);
    }

    #[test]
    fn broken_expressions_are_refused() {
        let deep = "(".repeat(10_000);
        let long = ["a"; 2_000].join("&");
        for text in [
            "",
            "a&",
            "&a",
            "a||b",
            "(a",
            "a)",
            "[a|b",
            "[a)",
            "a*0",
            "a*x",
            "*2",
            "a b",
            "a,",
            "a!b",
            "[a&b]",
            "[a|b]&[c|d]",
            &deep,
            &long,
        ] {
            assert!(Constraint::parse(text).is_err(), "{text}");
        }
    }
}
