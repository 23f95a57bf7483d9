//! `env`: a mapping of names to values, or a list of `NAME=value` and `NAME`.

use crate::configuration::env::fill_variables;
use crate::configuration::fault::{Fault, Problem};
use crate::configuration::field::Field;
use crate::configuration::reading::Reading;
use crate::configuration::value::{Key, Value};
use model::interpolation::{self, Place};

const NAME_RULE: &str = "a name of letters, digits and _ that starts with no digit";

/// The variables in the order of the file. One that the client's environment is to give is `{key: NAME}`.
pub fn env(field: &Field<'_>, reading: &mut Reading) -> Result<Value, Fault> {
    let expected = "a mapping of names to values, or a list of NAME=value and NAME";
    let mut variables: Vec<(Key, Value)> = Vec::new();
    if field.is_list() {
        let items = field.list(expected)?;
        for item in &items {
            let (name, value) = list_item(item, reading)?;
            if let Some(first) = variables.iter().position(|(known, _)| *known == name) {
                return Err(item.fault(Problem::Repeated {
                    property: format!("{}.{name}", field.name),
                    first: items[first].position().line,
                }));
            }
            variables.push((name.into(), value));
        }
        return Ok(Value::Map(variables));
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
        let read = if is_from_client(&value, name) {
            from_client(name, &value, reading)
        } else {
            let text = value.text("text, or \"\" for an empty value")?;
            text_value(&value, text)?
        };
        variables.push((name.to_owned().into(), read));
    }
    Ok(Value::Map(variables))
}

/// `{key: NAME}`, dstack's own form of a bare `NAME`.
fn is_from_client(value: &Field<'_>, name: &str) -> bool {
    let entries = value.entries("").unwrap_or_default();
    matches!(&entries[..], [("key", _, key)] if key.text("") == Ok(name))
}

fn from_client(name: &str, field: &Field<'_>, reading: &mut Reading) -> Value {
    reading.from_client.push((name.to_owned(), field.position()));
    Value::map([("key", Value::text(name))])
}

fn list_item(item: &Field<'_>, reading: &mut Reading) -> Result<(String, Value), Fault> {
    let text = item.text("NAME=value or NAME")?;
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, text_value(item, value)?),
        None => (text, from_client(text, item, reading)),
    };
    if !is_name(name) {
        return Err(item.invalid(format!("NAME=value or NAME, {NAME_RULE}")));
    }
    Ok((name.to_owned(), value))
}

/// A text of `registry_auth`, which may refer to secrets and to variables of the run. That the run has these is checked beside the rules
/// between properties.
pub fn secret_text(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    let text = field.text("text")?;
    let of_name = |name: &str| is_name(name).then(String::new);
    let others = fill_variables(text, &of_name).map_err(|name| {
        field.refused(format!("`${{{{ env.{name} }}}}`: expected env.NAME, {NAME_RULE}"))
    })?;
    text_value(field, &others)?;
    Ok(Value::text(text))
}

fn text_value(field: &Field<'_>, text: &str) -> Result<Value, Fault> {
    if text.contains('\0') {
        return Err(field.invalid("text without a NUL character"));
    }
    interpolation::parse(text, Place::Environment)
        .map_err(|error| field.refused(error.to_string()))?;
    Ok(Value::text(text))
}

fn is_name(name: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    name.bytes().all(word) && !name.is_empty() && !name.as_bytes()[0].is_ascii_digit()
}
