//! `volumes`, `files` and `repos`: what is brought into a run, as short texts or as mappings.

use crate::configuration::fault::Fault;
use crate::configuration::field::Field;
use crate::configuration::property::{Default, Form, Table, acts};
use crate::configuration::reader::mapping;
use crate::configuration::reading::Reading;
use crate::configuration::value::Value;
use model::interpolation::{self, Place};

static VOLUME_MOUNT: Table = Table {
    of: "volume",
    sections: &[&[
        acts("name", Form::Shape(volume_names)).or(Default::Required("a volume's name")),
        acts("path", Form::Shape(absolute_path)).or(Default::Required("an absolute path")),
        // Ours: a folder of the node under this name, in place of a volume of the network.
        acts("instance", Form::Bool).or(Default::Absent),
    ]],
};

static INSTANCE_MOUNT: Table = Table {
    of: "volume",
    sections: &[&[
        acts("instance_path", Form::Shape(absolute_path)).or(Default::Required("an absolute path")),
        acts("path", Form::Shape(absolute_path)).or(Default::Required("an absolute path")),
        acts("optional", Form::Bool).or(Default::Written("false")),
    ]],
};

static FILE: Table = Table {
    of: "file",
    sections: &[&[
        acts("local_path", Form::Text).or(Default::Required("a path on your machine")),
        acts("path", Form::Shape(file_path)).or(Default::Required("a path in the run")),
    ]],
};

const IF_EXISTS: &[&str] = &["error", "skip"];

static REPO: Table = Table {
    of: "repo",
    sections: &[&[
        acts("local_path", Form::Text),
        acts("url", Form::Text),
        acts("branch", Form::Text),
        acts("hash", Form::Text),
        acts("path", Form::Shape(repo_path)).or(Default::Written(".")),
        acts("if_exists", Form::Words(IF_EXISTS)).or(Default::Written("error")),
    ]],
};

/// An absolute path that does not lead upwards.
pub fn absolute_path(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    path(field, field.text("an absolute path")?).map(Value::text)
}

fn path<'a>(field: &Field<'_>, path: &'a str) -> Result<&'a str, Fault> {
    if !path.starts_with('/') || path.contains('\0') {
        return Err(field.invalid("an absolute path"));
    }
    if path.split('/').any(|part| part == "..") {
        return Err(field.invalid("an absolute path without .."));
    }
    Ok(path)
}

/// `NAME:/path`, `/path/on/the/node:/path`, or a mapping.
pub fn volume(field: &Field<'_>, reading: &mut Reading) -> Result<Value, Fault> {
    let expected = "NAME:/path, /path/on/the/node:/path, or a mapping";
    if field.is_map() {
        let on_node = field.entries(expected)?.iter().any(|(key, ..)| *key == "instance_path");
        return mapping(field, if on_node { &INSTANCE_MOUNT } else { &VOLUME_MOUNT }, reading);
    }
    let Some((source, target)) = field.text(expected)?.split_once(':') else {
        return Err(field.invalid(expected));
    };
    if target.contains(':') {
        return Err(field.invalid(format!("{expected}: there are no further options")));
    }
    let target = Value::text(path(field, target)?);
    if source.contains('/') {
        return Ok(Value::map([
            ("instance_path", Value::text(path(field, source)?)),
            ("path", target),
            ("optional", Value::Bool(false)),
        ]));
    }
    Ok(Value::map([("name", Value::text(volume_name(field, source)?)), ("path", target)]))
}

/// One name, or several of which the one in the node's region is taken.
fn volume_names(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    let expected = "a volume's name, or a list of names";
    if !field.is_list() {
        return volume_name(field, field.text(expected)?).map(Value::text);
    }
    let names = field.list(expected)?;
    if names.is_empty() {
        return Err(field.invalid(expected));
    }
    let each = names.iter().map(|item| volume_name(item, item.text(expected)?).map(Value::text));
    each.collect::<Result<_, _>>().map(Value::List)
}

fn volume_name<'a>(field: &Field<'_>, name: &'a str) -> Result<&'a str, Fault> {
    let pieces = interpolation::parse(name, Place::VolumeName);
    pieces.map_err(|error| field.refused(error.to_string()))?;
    if name.trim().is_empty() { Err(field.invalid("a volume's name")) } else { Ok(name) }
}

/// `local`, `local:path`, or a mapping. A drive's letter is part of its path.
pub fn file(field: &Field<'_>, reading: &mut Reading) -> Result<Value, Fault> {
    if field.is_map() {
        return mapping(field, &FILE, reading);
    }
    let expected = "LOCAL, LOCAL:PATH, or a mapping of local_path and path";
    let (local, path) = match &split(field.text(expected)?)[..] {
        [local] => (*local, *local),
        [local, path] => (*local, *path),
        _ => return Err(field.invalid(expected)),
    };
    if local.is_empty() || path.is_empty() {
        return Err(field.invalid(expected));
    }
    let path = without_drive(field, path)?;
    Ok(Value::map([("local_path", Value::text(local)), ("path", Value::text(path))]))
}

fn file_path(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    without_drive(field, field.text("a path in the run")?).map(Value::text)
}

/// dstack's client cannot read a run that has another.
fn without_drive<'a>(field: &Field<'_>, path: &'a str) -> Result<&'a str, Fault> {
    if has_drive(path) || path.starts_with(r"\\") {
        return Err(field.invalid("a path in the run without a drive, as in LOCAL:/path"));
    }
    Ok(path)
}

/// `C:\` or `C:/`
fn has_drive(path: &str) -> bool {
    matches!(path.as_bytes(), [letter, b':', b'\\' | b'/', ..] if letter.is_ascii_alphabetic())
}

/// The parts between colons; that of a drive begins a path.
fn split(text: &str) -> Vec<&str> {
    let from = if has_drive(text) { 2 } else { 0 };
    let Some(colon) = text[from..].find(':') else { return vec![text] };
    let (first, rest) = text.split_at(from + colon);
    let mut parts = vec![first];
    parts.extend(rest[1..].split(':'));
    parts
}

/// A folder or the address of a repository, with `:path` behind it; or a mapping.
pub fn repo(field: &Field<'_>, reading: &mut Reading) -> Result<Value, Fault> {
    let expected =
        "a folder or the address of a repository, as in .:code or https://host/repo:code";
    if field.is_map() {
        let repo = mapping(field, &REPO, reading)?;
        return match (repo.get("local_path").is_null(), repo.get("url").is_null()) {
            (false, false) => Err(field.invalid("`local_path` or `url`, not both")),
            (true, true) => Err(field.invalid("`local_path` or `url`")),
            _ => Ok(repo),
        };
    }
    let text = field.text(expected)?;
    // The address itself has a colon: behind its scheme, or between its host and its path.
    let own_colons = usize::from(text.contains("://") || is_scp_address(text));
    let parts: Vec<&str> = if own_colons > 0 { text.split(':').collect() } else { split(text) };
    let (source, path) = match parts.len() - 1 - own_colons.min(parts.len() - 1) {
        0 => (text, "."),
        1 => text.rsplit_once(':').unwrap_or((text, ".")),
        _ => return Err(field.invalid(expected)),
    };
    if source.is_empty() || path.is_empty() {
        return Err(field.invalid(expected));
    }
    let path = of_own_home(field, path)?;
    let (local, url) = if own_colons > 0 { (None, Some(source)) } else { (Some(source), None) };
    Ok(Value::map([
        ("local_path", Value::optional_text(local)),
        ("url", Value::optional_text(url)),
        ("branch", Value::Null),
        ("hash", Value::Null),
        ("path", Value::text(path)),
        ("if_exists", Value::text("error")),
    ]))
}

fn repo_path(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    of_own_home(field, field.text("a path in the run")?).map(Value::text)
}

/// dstack's client cannot read a run whose repository is in another user's home.
fn of_own_home<'a>(field: &Field<'_>, path: &'a str) -> Result<&'a str, Fault> {
    let behind = path.strip_prefix('~').unwrap_or_default();
    if behind.is_empty() || behind.starts_with('/') {
        return Ok(path);
    }
    Err(field.invalid("a path in the run without another user's home, as in ~/path or /path"))
}

/// `git@host:path`
fn is_scp_address(text: &str) -> bool {
    text.split_once(':').is_some_and(|(host, _)| host.contains('@') && !host.contains('/'))
}
