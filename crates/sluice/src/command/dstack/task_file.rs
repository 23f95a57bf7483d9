//! The file that `sluice apply` is given: a configuration, together with a profile.

use crate::command::verb::VerbError;
use ::dstack::configuration::load::Override;
use ::dstack::configuration::task::Task;
use ::dstack::configuration::value::Value;
use ::dstack::configuration::{Configuration, Loaded, load};
use ::dstack::name::{RULE, is_valid};
use std::fs::File;
use std::io::{ErrorKind, Read, stdin};
use std::path::PathBuf;

/// Bounds what is read of a file; a file near this size is refused by the YAML parser.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// What `sluice apply` reads where no file is named.
pub const DEFAULT_FILE: &str = ".dstack.yml";

const PROFILES: &str = ".dstack/profiles.yml";

/// The configuration, with these values and variables in place of its own; what it says in vain is told on standard error.
pub fn read(
    file: &str,
    profile_name: Option<&str>,
    overrides: &[Override],
    variables: &[String],
) -> Result<Loaded, VerbError> {
    let mut bytes = Vec::new();
    let read = match file {
        "-" => stdin().lock().take(FILE_BYTES_MAX).read_to_end(&mut bytes),
        path => File::open(path).and_then(|f| f.take(FILE_BYTES_MAX).read_to_end(&mut bytes)),
    };
    read.map_err(|error| match error.kind() {
        ErrorKind::NotFound if file == DEFAULT_FILE => {
            message(format!("{file} is not here: name the configuration with -f FILE"))
        }
        _ => VerbError::file(file)(error),
    })?;
    let profile = profile(profile_name)?;
    let loaded = load::parse_with_env(file, &bytes, profile.as_ref(), overrides, variables);
    let loaded = loaded.map_err(|error| match error.others.count() {
        0 => message(error),
        others => message(format!("{error} ({others} more: sluice check {file})")),
    })?;
    for notice in &loaded.notices {
        eprintln!("{}", notice.in_file(file));
    }
    Ok(loaded)
}

pub fn applicable<'l>(loaded: &'l Loaded, file: &str) -> Result<&'l Configuration, VerbError> {
    loaded.applicable().map_err(|fault| message(fault.in_file(file)))
}

/// The task, and the configuration in dstack's own form.
///
/// `name` is the run's, whatever the configuration says.
pub fn task_of(
    loaded: &Loaded,
    file: &str,
    name: Option<&str>,
) -> Result<(Task, Value), VerbError> {
    let Some(mut task) = applicable(loaded, file)?.task() else {
        let types = "`type: task`, `type: dev-environment`, `type: service` or `type: fleet`";
        return Err(VerbError::Message(format!("{file}: expected {types}")));
    };
    if let Some(given) = name {
        if !is_valid(given) {
            return Err(VerbError::Message(format!("--name {given:?}: expected {}", RULE)));
        }
        task.name = Some(given.to_owned());
    }
    Ok((task, loaded.value.clone()))
}

/// The profile of this name, or the default one: of the `profiles.yml` of this folder, or else, where that has none, of the
/// user's home.
pub fn profile(name: Option<&str>) -> Result<Option<Value>, VerbError> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let mut looked_in = Vec::new();
    let folders = [Some(PathBuf::new()), home].into_iter().flatten();
    for file in folders.map(|folder| folder.join(PROFILES)) {
        let mut bytes = Vec::new();
        match File::open(&file).and_then(|f| f.take(FILE_BYTES_MAX).read_to_end(&mut bytes)) {
            Ok(_) => {}
            // After `su`, the home may be another's: a file that cannot be seen is not there.
            Err(_) if file.metadata().is_err() => continue,
            Err(error) => return Err(VerbError::file(file)(error)),
        }
        let shown = file.display().to_string();
        let profiles = load::parse_profiles(&shown, &bytes).map_err(message)?;
        if let Some(found) = load::select_profile(&profiles, name) {
            return Ok(Some(found.clone()));
        }
        looked_in.push(shown);
    }
    match (name, &looked_in[..]) {
        (None, _) => Ok(None),
        (Some(name), []) => Err(VerbError::Message(format!(
            "profile {name}: there is no {PROFILES} here or in your home"
        ))),
        (Some(name), files) => {
            let files = files.join(", ");
            Err(VerbError::Message(format!("{files}: there is no profile {name}")))
        }
    }
}

fn message(error: impl std::fmt::Display) -> VerbError {
    VerbError::Message(error.to_string())
}
