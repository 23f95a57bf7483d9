//! The variables of a run.

use super::fault::{Fault, Position, Problem};
use super::value;

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

impl Env {
    pub(super) fn of(env: &value::Value, from_client: &[(String, Position)]) -> Self {
        let variable = |(name, value): &(String, value::Value)| {
            let named = from_client.iter().find(|(known, _)| known == name);
            let position = named.map_or(Position::NONE, |(_, position)| *position);
            let value = value.as_owned_text();
            let value = value.map_or(Value::FromClient(position), Value::Text);
            Variable { name: name.clone(), value }
        };
        Self(env.entries().iter().map(variable).collect())
    }

    /// The variables as the run gets them; `lookup` is the client's environment.
    pub fn resolve(
        &self,
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<Vec<(String, String)>, Fault> {
        let each = self.0.iter().map(|Variable { name, value }| match value {
            Value::Text(text) => Ok((name.clone(), text.clone())),
            Value::FromClient(position) => match lookup(name) {
                Some(value) => Ok((name.clone(), value)),
                None => {
                    let name = name.clone();
                    Err(Fault::new(*position, Problem::NotInEnvironment { name }))
                }
            },
        });
        each.collect()
    }
}
