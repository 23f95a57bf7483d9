//! Errors of a configuration file with their position: one line for each.

use model::grammar::GrammarError;
use std::fmt;

/// A position in the file; line and column count from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A configuration that cannot be taken, as the user is told of it: `FILE:LINE:COLUMN: what is wrong`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{fault}")]
pub struct ConfigurationError {
    pub file: String,
    #[source]
    pub fault: Fault,
}

/// A problem at its position, before the file's name is known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{position}: {}", one_line(.problem))]
pub struct Fault {
    pub position: Position,
    #[source]
    pub problem: Box<Problem>,
}

/// Names and texts out of the file may hold anything, and be long.
const LINE_CHARS_MAX: usize = 400;

fn one_line(problem: &Problem) -> String {
    let text = problem.to_string();
    let safe = text.chars().map(|c| if c.is_control() { '?' } else { c });
    safe.take(LINE_CHARS_MAX).collect()
}

impl Fault {
    pub(crate) fn new(position: Position, problem: Problem) -> Self {
        Self { position, problem: Box::new(problem) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("the file has {bytes} bytes: expected at most {limit}")]
    TooLarge { bytes: usize, limit: usize },
    #[error("the file is not UTF-8 text")]
    NotText,
    #[error("the file is empty: expected properties, the first of them `type: task`")]
    Empty,
    #[error("not YAML: {0}")]
    Syntax(String),
    #[error("too many {what}: expected at most {limit} once every alias is expanded")]
    TooMany { what: &'static str, limit: usize },
    #[error("nested too deep: expected at most {limit} levels")]
    TooDeep { limit: usize },
    #[error("a second document: expected one configuration in a file")]
    SecondDocument,
    #[error("tag `{0}`: expected no tags")]
    Tag(String),
    #[error("an alias inside the value that it names: expected an alias to a finished value")]
    AliasOfItself,
    #[error("a list or a mapping as a key: expected a property's name")]
    KeyNotText,
    #[error("`<<` takes a mapping, or a list of mappings")]
    Merge,
    #[error("`{property}` is given twice: it is already in line {first}")]
    Repeated { property: String, first: usize },
    #[error("unknown property `{property}`{}", Nearest(*.nearest))]
    Unknown { property: String, nearest: Option<&'static str> },
    #[error("`{property}` is a property of {owner}: a task has none")]
    OfAnotherType { property: String, owner: &'static str },
    #[error("`{property}` is missing: expected {expected}")]
    Missing { property: String, expected: &'static str },
    #[error("`{property}`: invalid {value}: expected {expected}")]
    Invalid { property: String, value: String, expected: String },
    #[error("`{property}`: {source}")]
    Grammar { property: String, source: GrammarError },
    #[error("`{property}`: {why}")]
    Refused { property: String, why: String },
    #[error("type {0} is not supported yet: expected `type: task`")]
    TypeNotSupported(&'static str),
    #[error(
        "`{name}` is to be taken from the environment, where it is not set: set it, or write `{name}=VALUE`"
    )]
    NotInEnvironment { name: String },
}

/// The tail of a line about an unknown name: a suggestion where one is near.
struct Nearest(Option<&'static str>);

impl fmt::Display for Nearest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => write!(f, ": did you mean `{name}`?"),
            None => Ok(()),
        }
    }
}
