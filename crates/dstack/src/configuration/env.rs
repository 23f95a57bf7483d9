//! The variables of a run.

use super::fault::{Fault, Position, Problem};
use super::value;
use model::interpolation::{self, Place};

/// The variables in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Env(pub Vec<Variable>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    pub name: String,
    pub value: Value,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// It may hold `${{ secrets.NAME }}`.
    Text(String),
    /// A bare `NAME`: taken from the environment of the client that submits.
    FromClient(Position),
}

/// A variable on its way to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedVariable {
    pub name: String,
    pub value: String,
    /// The value has references that the server fills in.
    pub has_secrets: bool,
}

/// The text that a run gets, unless it refers to something. It was checked when the configuration was read.
fn without_references(text: &str) -> Option<String> {
    let pieces = interpolation::parse(text, Place::Environment).ok()?;
    interpolation::fill(&pieces, |_| None).ok()
}

/// The text with the value of each `${{ env.NAME }}` that is in it; the first name without a value is the error. All else stays as it
/// is: other references, and `$$`, behind which no reference begins.
pub fn fill_variables(
    text: &str,
    value: &dyn Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let (mut filled, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('$') {
        filled.push_str(&rest[..at]);
        rest = &rest[at..];
        let reference = rest.strip_prefix("${{").and_then(|inside| inside.split_once("}}"));
        let variable = reference.and_then(|(name, after)| {
            let name = name.trim().strip_prefix("env.")?;
            Some((name, after))
        });
        if let Some((name, after)) = variable {
            filled.push_str(&value(name).ok_or_else(|| name.to_owned())?);
            rest = after;
        } else {
            let kept = if rest.starts_with("$$") { 2 } else { 1 };
            filled.push_str(&rest[..kept]);
            rest = &rest[kept..];
        }
    }
    filled.push_str(rest);
    Ok(filled)
}

impl Env {
    pub(super) fn of(env: &value::Value, from_client: &[(String, Position)]) -> Self {
        let variable = |(name, value): &(value::Key, value::Value)| {
            let named = from_client.iter().find(|(known, _)| known == name);
            let position = named.map_or(Position::NONE, |(_, position)| *position);
            let value = value.as_owned_text();
            let value = value.map_or(Value::FromClient(position), Value::Text);
            Variable { name: name.to_string(), value }
        };
        Self(env.entries().iter().map(variable).collect())
    }

    /// The variables as the run gets them; `lookup` is the client's environment, whose values are taken as they are. A
    /// text that refers to secrets stays as it is, with its `$$`; any other has its `$$` replaced.
    pub fn resolve(
        &self,
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<Vec<ResolvedVariable>, Fault> {
        let each = self.0.iter().map(|Variable { name, value }| {
            let name = name.clone();
            match value {
                Value::Text(text) => Ok(match without_references(text) {
                    Some(value) => ResolvedVariable { name, value, has_secrets: false },
                    None => ResolvedVariable { name, value: text.clone(), has_secrets: true },
                }),
                Value::FromClient(position) => match lookup(&name) {
                    Some(value) => Ok(ResolvedVariable { name, value, has_secrets: false }),
                    None => Err(Fault::new(*position, Problem::NotInEnvironment { name })),
                },
            }
        });
        each.collect()
    }
}
