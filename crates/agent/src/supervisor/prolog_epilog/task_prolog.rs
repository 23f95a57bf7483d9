//! Runs the task prolog: as the task's user, in its process, just before it executes the task. What the prolog prints
//! may change the task's environment or be shown to the user.

use crate::supervisor::process::credentials::become_user;
use model::os_text;
use nix::sys::prctl::set_no_new_privs;
use std::ffi::{CString, OsStr};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use wire::order::UserIds;

/// Output of a prolog; more is cut off.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;
/// The exit of a task whose prolog could not be run, or was killed.
const NOT_RUN: i32 = 1;

/// Runs one prolog and applies its output to the environment. A failed prolog's status is the task's exit code.
///
/// `owner` is the task's user where this process is not that user yet.
pub(crate) fn run(
    program: &str,
    environment: &mut Vec<CString>,
    owner: Option<&UserIds>,
) -> Result<(), i32> {
    let (said, status) = output_of(program, environment, owner).unwrap_or_else(|error| {
        // Only the task's own standard error can show it.
        let _ = writeln!(std::io::stderr(), "{program}: {error}");
        (Vec::new(), NOT_RUN)
    });
    apply(&said, environment, &mut std::io::stdout());
    if status == 0 { Ok(()) } else { Err(status) }
}

fn output_of(
    program: &str,
    environment: &[CString],
    owner: Option<&UserIds>,
) -> std::io::Result<(Vec<u8>, i32)> {
    let pairs = environment.iter().filter_map(|entry| {
        let bytes = entry.to_bytes();
        let at = bytes.iter().position(|byte| *byte == b'=')?;
        Some((OsStr::from_bytes(&bytes[..at]), OsStr::from_bytes(&bytes[at + 1..])))
    });
    let mut command = Command::new(os_text::to_os(program));
    command.env_clear().envs(pairs).stdin(Stdio::null()).stdout(Stdio::piped());
    if let Some(owner) = owner.cloned() {
        // SAFETY: this process has one thread, so that its forked child may allocate.
        unsafe {
            command.pre_exec(move || {
                become_user(&owner)?;
                // The files of the container are in reach of it, set-user-ID ones too.
                Ok(set_no_new_privs()?)
            })
        };
    }
    let mut child = command.spawn()?;
    let mut said = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(OUTPUT_BYTES_MAX).read_to_end(&mut said)?;
    }
    Ok((said, child.wait()?.code().unwrap_or(NOT_RUN)))
}

/// Applies `export NAME=value`, `unset NAME` and `print TEXT`; ignores other lines.
fn apply(said: &[u8], environment: &mut Vec<CString>, stdout: &mut impl Write) {
    for line in BufReader::new(said).split(b'\n').map_while(Result::ok) {
        if let Some(pair) = line.strip_prefix(b"export ") {
            let pair = pair.trim_ascii_start();
            let Some(at) = pair.iter().position(|byte| *byte == b'=').filter(|at| *at > 0) else {
                continue;
            };
            remove(environment, &pair[..at]);
            environment.extend(CString::new(pair));
        } else if let Some(name) = line.strip_prefix(b"unset ") {
            remove(environment, name.trim_ascii());
        } else if let Some(words) = line.strip_prefix(b"print ") {
            // A task runs even if its standard output cannot be written.
            let _ = stdout.write_all(words).and_then(|()| stdout.write_all(b"\n"));
        }
    }
    let _ = stdout.flush();
}

fn remove(environment: &mut Vec<CString>, name: &[u8]) {
    environment.retain(|entry| {
        let rest = entry.to_bytes().strip_prefix(name);
        rest.is_none_or(|rest| rest.first() != Some(&b'='))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prolog_output_changes_the_tasks_environment() {
        let entries = ["A=1", "AB=2", "C=3"].map(|entry| CString::new(entry).expect("no NUL"));
        let mut environment = entries.to_vec();
        let mut printed = Vec::new();
        let said = b"export A=x y=z\nunset C\nprint hello  there\nexport =bad\nnoise\nexport D=";
        apply(said, &mut environment, &mut printed);
        let texts: Vec<_> = environment.iter().map(|e| e.to_string_lossy().into_owned()).collect();
        assert_eq!(texts, ["AB=2", "A=x y=z", "D="]);
        assert_eq!(printed, b"hello  there\n");
    }

    #[test]
    fn prolog_that_fails_or_does_not_exist_is_an_error() {
        let mut environment = Vec::new();
        for (program, status) in [("/bin/false", 1), ("/nowhere/p", NOT_RUN)] {
            assert_eq!(run(program, &mut environment, None), Err(status), "{program}");
        }
        assert_eq!(run("/bin/true", &mut environment, None), Ok(()));
    }
}
