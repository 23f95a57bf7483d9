//! Option values that depend on more than their text: on the time, the calling user, or a file.

use jiff::tz::TimeZone;
use model::time::Timestamp;

use crate::option::error::OptionError;

type Result<T> = std::result::Result<T, OptionError>;

/// What the calling process knows and the values of some options need.
pub trait ValueContext {
    fn now(&self) -> Timestamp;
    fn time_zone(&self) -> &TimeZone;
    fn is_root(&self) -> bool;
    /// The id of a user by name or number.
    fn user_id(&self, name: &str) -> Option<u32>;
    /// The id of a group by name or number.
    fn group_id(&self, name: &str) -> Option<u32>;
    fn read_file(&self, path: &str) -> std::io::Result<String>;
}

/// `--begin` and `--deadline`.
pub fn when(context: &dyn ValueContext, text: &str, option: &'static str) -> Result<Timestamp> {
    model::time_spec::parse_time_spec(text, context.now(), context.time_zone())
        .map_err(|_| OptionError::Time { option, value: text.to_owned() })
}

/// A list of hosts, or the path of a file that has one. A text with a slash is a path: host names have none.
pub fn hosts(context: &dyn ValueContext, text: &str) -> Result<Vec<String>> {
    if text.contains('/') {
        return node_file(context, text);
    }
    super::hosts(text)
}

/// Hosts separated by commas or white space.
pub fn node_file(context: &dyn ValueContext, path: &str) -> Result<Vec<String>> {
    let text = context.read_file(path).map_err(|error| {
        let why = match error.kind() {
            std::io::ErrorKind::NotFound => "No such file or directory".to_owned(),
            std::io::ErrorKind::PermissionDenied => "Permission denied".to_owned(),
            _ => error.to_string(),
        };
        OptionError::Value(vec![
            format!("slurm_allocate_resources error opening file {path}, {why}"),
            "Invalid --nodefile node file".to_owned(),
        ])
    })?;
    let list: Vec<&str> = text.split_whitespace().collect();
    super::hosts(&list.join(","))
}

/// `--uid`.
pub fn user(context: &dyn ValueContext, name: &str) -> Result<u32> {
    root_only(context, "uid")?;
    context.user_id(name).ok_or(OptionError::Specification("uid"))
}

/// `--gid`.
pub fn group(context: &dyn ValueContext, name: &str) -> Result<u32> {
    root_only(context, "gid")?;
    context.group_id(name).ok_or(OptionError::Specification("gid"))
}

fn root_only(context: &dyn ValueContext, option: &str) -> Result<()> {
    if context.is_root() {
        return Ok(());
    }
    Err(OptionError::value(format!("--{option} only permitted by root user")))
}
