//! Errors and notices of a configuration with their position: one line for each.

use model::grammar::GrammarError;
use std::fmt;

/// A position in the file; line and column count from one. What came as JSON has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

impl Position {
    pub const NONE: Self = Self { line: 0, column: 0 };
    pub const START: Self = Self { line: 1, column: 1 };

    /// The start of a line: the position and a colon, where there is one.
    fn prefix(self) -> String {
        match self {
            Self::NONE => String::new(),
            Self { line, column } => format!("{line}:{column}: "),
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A configuration that cannot be taken, as the user is told of it: `FILE:LINE:COLUMN: what is wrong`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", in_file(.file, .fault.position, .fault))]
pub struct ConfigurationError {
    pub file: String,
    /// The one that was found first.
    #[source]
    pub fault: Fault,
    pub others: OtherFaults,
}

impl ConfigurationError {
    /// Every fault as a line about its file, in the order of the file.
    pub fn lines(&self) -> Vec<String> {
        let mut all: Vec<&Fault> = std::iter::once(&self.fault).chain(&self.others.named).collect();
        all.sort_by_key(|fault| fault.position);
        let mut lines: Vec<String> = all.iter().map(|fault| fault.in_file(&self.file)).collect();
        if self.others.left_out > 0 {
            lines.push(format!(
                "{}: {} more that are not named here",
                self.file, self.others.left_out
            ));
        }
        lines
    }
}

/// What is wrong with a configuration beside its first fault.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OtherFaults {
    pub named: Vec<Fault>,
    /// How many are beyond the bound.
    pub left_out: usize,
}

impl OtherFaults {
    pub fn count(&self) -> usize {
        self.named.len() + self.left_out
    }
}

/// All that is wrong with a configuration: at least one fault, in the order in which they were found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults {
    pub first: Fault,
    pub others: OtherFaults,
}

impl From<Fault> for Faults {
    fn from(first: Fault) -> Self {
        Self { first, others: OtherFaults::default() }
    }
}

impl Faults {
    pub(super) fn in_file(self, file: &str) -> ConfigurationError {
        let Self { first: fault, others } = self;
        ConfigurationError { file: file.to_owned(), fault, others }
    }
}

/// `FILE:LINE:COLUMN: …`, and `FILE: …` for what has no position.
fn in_file(file: &str, position: Position, line: &dyn fmt::Display) -> String {
    match position {
        Position::NONE => format!("{file}: {line}"),
        _ => format!("{file}:{line}"),
    }
}

/// A problem at its position, before the file's name is known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}", .position.prefix(), one_line(.problem))]
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

    /// The fault as a line about its file.
    pub fn in_file(&self, file: &str) -> String {
        in_file(file, self.position, self)
    }
}

/// A property that changes nothing here, or not yet, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub position: Position,
    pub property: String,
    pub why: String,
}

impl Notice {
    /// The notice as a line about its file.
    pub fn in_file(&self, file: &str) -> String {
        in_file(file, self.position, self)
    }

    /// The notice of something that is not available, as the reason why the configuration is refused.
    pub fn refusal(&self) -> Fault {
        let (property, why) = (self.property.clone(), self.why.clone());
        Fault::new(self.position, Problem::Refused { property, why })
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}`{}`: {}", self.position.prefix(), self.property, self.why)
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
    #[error("`{property}` is given twice{}", Earlier(*.first))]
    Repeated { property: String, first: usize },
    #[error("unknown property `{property}`{}", Nearest(*.nearest))]
    Unknown { property: String, nearest: Option<&'static str> },
    #[error("`{property}` is a property of {owner}: a {of} has none")]
    OfAnotherType { property: String, owner: &'static str, of: &'static str },
    #[error("`{property}` is missing: expected {expected}")]
    Missing { property: String, expected: &'static str },
    #[error("`{property}`: invalid {value}: expected {expected}")]
    Invalid { property: String, value: String, expected: String },
    #[error("`{property}`: {source}")]
    Grammar { property: String, source: GrammarError },
    #[error("`{property}`: {why}")]
    Refused { property: String, why: String },
    /// Not shown: the faults of a value's parts are told by themselves.
    #[error("its parts are wrong")]
    OfParts,
    #[error(
        "`{name}` is to be taken from the environment, where it is not set: set it, or write `{name}=VALUE`"
    )]
    NotInEnvironment { name: String },
}

impl Problem {
    /// Whether it is about this property, by its whole name, or about a part of it, or about a word that was meant to be it.
    pub(super) fn is_about(&self, name: &str) -> bool {
        let property = match self {
            Self::Unknown { nearest, .. } => {
                let last = name.rsplit('.').next().unwrap_or(name);
                return *nearest == Some(last);
            }
            Self::Repeated { property, .. }
            | Self::OfAnotherType { property, .. }
            | Self::Missing { property, .. }
            | Self::Invalid { property, .. }
            | Self::Grammar { property, .. }
            | Self::Refused { property, .. } => property,
            _ => return false,
        };
        let rest = property.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    }
}

/// The tail of a line about a repetition: where it is the first time, if that has a line.
struct Earlier(usize);

impl fmt::Display for Earlier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str(": expected once"),
            line => write!(f, ": it is already in line {line}"),
        }
    }
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
