//! A `.dstack.yml` file: which type of configuration it holds, read into its type.

use super::fault::{ConfigurationError, Fault, Problem};
use super::field::Field;
use super::node;
use super::notice::{Notice, Notices};
use super::task::{self, Task};

/// A configuration that was read, with notices on the properties that have no effect.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    pub configuration: Configuration,
    pub notices: Vec<Notice>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Configuration {
    Task(Box<Task>),
}

#[derive(Clone, Copy)]
enum Type {
    Task,
    NotYet(&'static str),
}

/// All of dstack's types.
const TYPES: &[(&str, Type)] = &[
    ("task", Type::Task),
    ("dev-environment", Type::NotYet("dev-environment")),
    ("service", Type::NotYet("service")),
    ("fleet", Type::NotYet("fleet")),
    ("gateway", Type::NotYet("gateway")),
    ("volume", Type::NotYet("volume")),
    ("preset", Type::NotYet("preset")),
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
        Type::NotYet(name) => return Err(field.fault(Problem::TypeNotSupported(name))),
    };
    Ok(Loaded { configuration, notices: notices.into_vec() })
}
