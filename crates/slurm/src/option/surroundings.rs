//! What option values depend on besides their text: the time, the user, files.

use jiff::tz::TimeZone;
use model::time::Timestamp;

use super::error::OptionError;
use super::value;

type Result<T> = std::result::Result<T, OptionError>;

/// What the values of some options depend on.
pub trait Surroundings {
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
pub fn when(
    surroundings: &dyn Surroundings,
    text: &str,
    option: &'static str,
) -> Result<Timestamp> {
    model::time_spec::parse_time_spec(text, surroundings.now(), surroundings.time_zone())
        .map_err(|_| OptionError::Time { option, value: text.to_owned() })
}

/// A list of hosts, or the path of a file that holds one: only paths have slashes.
pub fn hosts(surroundings: &dyn Surroundings, text: &str) -> Result<Vec<String>> {
    if text.contains('/') {
        return node_file(surroundings, text);
    }
    value::hosts(text)
}

/// Hosts separated by commas or white space.
pub fn node_file(surroundings: &dyn Surroundings, path: &str) -> Result<Vec<String>> {
    let text = surroundings.read_file(path).map_err(|error| {
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
    value::hosts(&list.join(","))
}

/// `--uid`.
pub fn user(surroundings: &dyn Surroundings, name: &str) -> Result<u32> {
    root_only(surroundings, "uid")?;
    surroundings.user_id(name).ok_or(OptionError::Specification("uid"))
}

/// `--gid`.
pub fn group(surroundings: &dyn Surroundings, name: &str) -> Result<u32> {
    root_only(surroundings, "gid")?;
    surroundings.group_id(name).ok_or(OptionError::Specification("gid"))
}

fn root_only(surroundings: &dyn Surroundings, option: &str) -> Result<()> {
    if surroundings.is_root() {
        return Ok(());
    }
    Err(OptionError::value(format!("--{option} only permitted by root user")))
}
