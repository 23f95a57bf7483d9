//! A `.dstack.yml` file: which type of configuration it holds, and what the user should know of it.

use super::fault::{ConfigurationError, Fault, Place, Problem};
use super::field::Field;
use super::node;
use super::task::{self, Task};
use std::fmt;

/// A configuration that was understood, with what it says to no effect.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    pub configuration: Configuration,
    pub notices: Vec<Notice>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Configuration {
    Task(Box<Task>),
}

/// A property that changes nothing here, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub place: Place,
    pub property: String,
    pub why: String,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: `{}`: {}", self.place, self.property, self.why)
    }
}

/// The notices of one file as they come up, in its order.
#[derive(Debug, Default)]
pub struct Notices(Vec<Notice>);

impl Notices {
    pub(super) fn add(&mut self, field: &Field<'_>, why: impl Into<String>) {
        self.0.push(Notice { place: field.place(), property: field.name.clone(), why: why.into() });
    }
}

#[derive(Clone, Copy)]
enum Type {
    Task,
    Later(&'static str),
}

/// All of dstack's types.
const TYPES: &[(&str, Type)] = &[
    ("task", Type::Task),
    ("dev-environment", Type::Later("dev-environment")),
    ("service", Type::Later("service")),
    ("fleet", Type::Later("fleet")),
    ("gateway", Type::Later("gateway")),
    ("volume", Type::Later("volume")),
    ("preset", Type::Later("preset")),
];

/// Reads the bytes of a configuration; `file` is its name as the user wrote it.
pub fn parse(file: &str, bytes: &[u8]) -> Result<Loaded, ConfigurationError> {
    read(bytes).map_err(|fault| ConfigurationError { file: file.to_owned(), fault })
}

fn read(bytes: &[u8]) -> Result<Loaded, Fault> {
    let document = node::parse(bytes)?;
    let top = Field::top(&document);
    if top.is_nothing() {
        return Err(top.fault(Problem::Empty));
    }
    let expected = "properties such as `type: task`";
    if !top.is_map() {
        return Err(top.fault(Problem::Syntax(format!("expected {expected}"))));
    }
    let entries = top.entries(expected)?;
    let Some((_, _, field)) = entries.into_iter().find(|(key, ..)| *key == "type") else {
        return Err(
            top.fault(Problem::Missing { property: "type".into(), expected: "`type: task`" })
        );
    };
    let mut notices = Notices::default();
    let configuration = match field.word(TYPES)? {
        Type::Task => Configuration::Task(Box::new(task::read(&top, &mut notices)?)),
        Type::Later(name) => return Err(field.fault(Problem::TypeNotSupported(name))),
    };
    Ok(Loaded { configuration, notices: notices.0 })
}
