//! `env`: the variables of a run, written as a mapping or as a list of `NAME=value` and `NAME`.

use super::fault::{Fault, Position, Problem};
use super::field::Field;

/// The variables in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Env(pub Vec<Variable>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    pub name: String,
    pub value: Value,
    pub position: Position,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Text(String),
    /// A bare `NAME`: taken from the environment of the client that submits.
    FromClient,
}

impl Env {
    /// The variables as the run gets them; `lookup` is the client's environment.
    pub fn resolve(
        &self,
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<Vec<(String, String)>, Fault> {
        let each = self.0.iter().map(|variable| {
            let name = variable.name.clone();
            let value = match &variable.value {
                Value::Text(text) => Some(text.clone()),
                Value::FromClient => lookup(&name),
            };
            match value {
                Some(value) => Ok((name, value)),
                None => Err(Fault::new(variable.position, Problem::NotInEnvironment { name })),
            }
        });
        each.collect()
    }
}

pub fn read(field: &Field<'_>) -> Result<Env, Fault> {
    let expected = "a mapping of names to values, or a list of NAME=value and NAME";
    let mut variables: Vec<Variable> = Vec::new();
    if field.is_list() {
        for item in field.list(expected)? {
            let variable = list_item(&item)?;
            if let Some(first) = variables.iter().find(|v| v.name == variable.name) {
                return Err(item.fault(Problem::Repeated {
                    property: format!("env.{}", variable.name),
                    first: first.position.line,
                }));
            }
            variables.push(variable);
        }
        return Ok(Env(variables));
    }
    for (name, position, value) in field.entries(expected)? {
        if !is_name(name) {
            let problem = Problem::Invalid {
                property: field.name.clone(),
                value: format!("{name:?}"),
                expected: NAME_RULE.into(),
            };
            return Err(Fault::new(position, problem));
        }
        // A bare `yes` would be a boolean to one reader and text to the next: dstack refuses it too.
        if value.boolean().is_some() {
            return Err(value.invalid("text: put the word in quotes"));
        }
        let text = value.text("text, or \"\" for an empty value")?;
        variables.push(Variable {
            name: name.to_owned(),
            value: text_value(&value, text)?,
            position,
        });
    }
    Ok(Env(variables))
}

fn list_item(item: &Field<'_>) -> Result<Variable, Fault> {
    let text = item.text("NAME=value or NAME")?;
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, text_value(item, value)?),
        None => (text, Value::FromClient),
    };
    if !is_name(name) {
        return Err(item.invalid(format!("NAME=value or NAME, {NAME_RULE}")));
    }
    Ok(Variable { name: name.to_owned(), value, position: item.position() })
}

fn text_value(field: &Field<'_>, text: &str) -> Result<Value, Fault> {
    if text.contains("${{") {
        return Err(field.refused("secrets and other `${{ }}` values are not available yet"));
    }
    if text.contains('\0') {
        return Err(field.invalid("text without a NUL character"));
    }
    Ok(Value::Text(text.to_owned()))
}

const NAME_RULE: &str = "a name of letters, digits and _ that starts with no digit";

fn is_name(name: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    name.bytes().all(word) && !name.is_empty() && !name.as_bytes()[0].is_ascii_digit()
}
