//! Programs that prepare a run, in its environment: what they print is the run's output.

use super::variable;
use std::ffi::{CString, OsStr};
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The program's path by the run's `PATH`.
pub(super) fn found(name: &str, environment: &[CString]) -> Option<PathBuf> {
    let path = variable(environment, "PATH").unwrap_or(Path::new("/usr/bin:/bin"));
    std::env::split_paths(path).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// A command in the run's environment and nothing else.
pub(super) fn command(name: &str, environment: &[CString]) -> Command {
    let mut command = Command::new(name);
    command.env_clear().envs(pairs(environment));
    command
}

/// Runs the command to its end, with an input if there is one. The error says how it ended.
pub(super) fn wait(name: &str, mut command: Command, input: Option<&[u8]>) -> Result<(), String> {
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    let mut child = command.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => format!("there is no {name} here"),
        _ => format!("{name} cannot be run: {error}"),
    })?;
    if let (Some(input), Some(mut stdin)) = (input, child.stdin.take()) {
        // If the program ends early, its status says so.
        let _ = stdin.write_all(input);
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    if status.success() { Ok(()) } else { Err(format!("{name} ended with {status}")) }
}

pub(super) fn pairs(environment: &[CString]) -> impl Iterator<Item = (&OsStr, &OsStr)> {
    environment.iter().filter_map(|entry| {
        let bytes = entry.to_bytes();
        let at = bytes.iter().position(|byte| *byte == b'=')?;
        Some((OsStr::from_bytes(&bytes[..at]), OsStr::from_bytes(&bytes[at + 1..])))
    })
}
