//! Names, commands, shells and users of a run, and the properties that are ours.

use crate::configuration::fault::Fault;
use crate::configuration::field::Field;
use crate::configuration::reading::Reading;
use crate::configuration::value::Value;
use crate::{name, words};
use model::array::ArraySpec;
use model::interpolation::{self, Place};

pub const PYTHONS: &[&str] = &["3.9", "3.10", "3.11", "3.12", "3.13", "3.14"];
/// Slurm's words for what a run waits for; `afterok` where none is given.
pub const DEPENDENCIES: &[&str] = &["afterok", "afterany", "afternotok", "after"];

/// No array here has an index above this; the cluster's own limit is checked at submit.
const ARRAY_INDEX_MAX: u32 = 4_000_000;

pub fn run_name(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    let text = field.text(name::RULE)?;
    if name::is_valid(text) { Ok(Value::text(text)) } else { Err(field.invalid(name::RULE)) }
}

/// The name of a group of nodes or of replicas.
pub fn group_name(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    let expected = "a name of 1 to 40 lower-case letters, digits and -, of which the first is no -";
    let text = field.text(expected)?;
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let is_good =
        (1..=40).contains(&text.len()) && text.bytes().all(letter) && !text.starts_with('-');
    if is_good { Ok(Value::text(text)) } else { Err(field.invalid(expected)) }
}

pub fn command(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    if field.is_map() {
        // `- echo a: b` is a mapping to YAML, which is seldom what its author meant.
        return Err(field.invalid("a shell command: put quotes around one that contains `: `"));
    }
    let text = field.text("a shell command")?;
    if text.contains('\0') {
        return Err(field.invalid("a shell command without a NUL character"));
    }
    let pieces = interpolation::parse(text, Place::Command);
    pieces.map_err(|error| field.refused(error.to_string()))?;
    Ok(Value::text(text))
}

/// The name of an image in a registry, or its path, by the grammar that nodes read it with.
pub fn image_name(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    let text = field.text("an image such as alpine:3.20, or its path")?;
    text.parse::<image::Source>().map_err(|error| field.refused(error.to_string()))?;
    Ok(Value::text(text))
}

/// The program that runs instead of a shell, and its first arguments.
pub fn entrypoint(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    let expected = "a program with its arguments, and an end for each quote";
    let text = field.text(expected)?;
    let is_good = !text.contains('\0') && words::split(text).is_some_and(|words| !words.is_empty());
    if is_good { Ok(Value::text(text)) } else { Err(field.invalid(expected)) }
}

pub fn absolute_path(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    let expected = "an absolute path";
    match field.text(expected)? {
        path if path.starts_with('/') && !path.contains('\0') => Ok(Value::text(path)),
        _ => Err(field.invalid(expected)),
    }
}

pub fn shell(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    let expected = "sh, bash, or an absolute path";
    match field.text(expected)? {
        known @ ("sh" | "bash") => Ok(Value::text(known)),
        path if path.starts_with('/') && !path.contains(char::is_whitespace) => {
            Ok(Value::text(path))
        }
        _ => Err(field.invalid(expected)),
    }
}

/// `name`, `name:group`, `1000:1000`
pub fn user(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    let expected = "a user, or USER:GROUP, by name or number";
    let text = field.text(expected)?;
    let parts: Vec<&str> = text.split(':').collect();
    let is_part = |part: &&str| !part.is_empty() && !part.parse::<i64>().is_ok_and(|id| id < 0);
    let good = parts.len() <= 2 && parts.iter().all(is_part);
    if good { Ok(Value::text(text)) } else { Err(field.invalid(expected)) }
}

/// YAML reads `3.10` as the number 3.1, and so does dstack's client before it sends it.
pub fn python(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    match field.text("") {
        Ok("3.1") => Ok(Value::text("3.10")),
        _ => field.word(PYTHONS).map(Value::text),
    }
}

/// One name or a list: `NAME`, `afterany:NAME`, or a job's number in place of the name.
pub fn depends_on(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    let expected =
        "a run's name or a job's number, as in prepare or afterany:prepare, or a list of them";
    let one = |field: &Field<'_>| {
        let text = field.text(expected)?;
        let (kind, run) = text.split_once(':').unwrap_or((DEPENDENCIES[0], text));
        let known = name::is_valid(run) || run.parse::<u32>().is_ok_and(|id| id > 0);
        if !known || !DEPENDENCIES.contains(&kind) {
            return Err(field.invalid(expected));
        }
        Ok(Value::Text(format!("{kind}:{run}")))
    };
    if field.is_list() {
        let items = field.list(expected)?;
        return items.iter().map(one).collect::<Result<_, _>>().map(Value::List);
    }
    one(field).map(|only| Value::List(vec![only]))
}

/// As `--array`: `0-9`, `1,3,5`, `0-99%4`.
pub fn array(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    let text = field.text("indices as in 0-9, 1,3,5 or 0-99%4")?;
    let spec = ArraySpec::parse(text, ARRAY_INDEX_MAX).map_err(|e| field.grammar(e))?;
    Ok(Value::text(spec.text))
}
