//! Programs before a task, run as its user in its own process just before it becomes the task. What they print may set,
//! unset and say things for it.

use std::ffi::{CString, OsStr};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

/// What a prolog may say: more is cut.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;
/// The exit of a task whose prolog could not be run, or was killed.
const NOT_RUN: i32 = 1;

/// Runs one; the environment becomes what it makes of it. A status other than success is the task's own exit.
pub(crate) fn run(program: &str, environment: &mut Vec<CString>) -> Result<(), i32> {
    let (said, status) = output_of(program, environment).unwrap_or_else(|error| {
        // There is nobody but the task's own reader to tell.
        let _ = writeln!(std::io::stderr(), "{program}: {error}");
        (Vec::new(), NOT_RUN)
    });
    apply(&said, environment, &mut std::io::stdout());
    if status == 0 { Ok(()) } else { Err(status) }
}

fn output_of(program: &str, environment: &[CString]) -> std::io::Result<(Vec<u8>, i32)> {
    let pairs = environment.iter().filter_map(|entry| {
        let bytes = entry.to_bytes();
        let at = bytes.iter().position(|byte| *byte == b'=')?;
        Some((OsStr::from_bytes(&bytes[..at]), OsStr::from_bytes(&bytes[at + 1..])))
    });
    let mut child = Command::new(program)
        .env_clear()
        .envs(pairs)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(OUTPUT_BYTES_MAX).read_to_end(&mut said)?;
    }
    Ok((said, child.wait()?.code().unwrap_or(NOT_RUN)))
}

/// `export NAME=value`, `unset NAME`, `print words`; all else it prints is for nobody.
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
            // A task that cannot be heard runs all the same.
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
    fn what_a_prolog_prints_changes_the_task() {
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
    fn a_prolog_that_fails_or_is_not_there_is_an_error() {
        let mut environment = Vec::new();
        for (program, status) in [("/bin/false", 1), ("/nowhere/p", NOT_RUN)] {
            assert_eq!(run(program, &mut environment), Err(status), "{program}");
        }
        assert_eq!(run("/bin/true", &mut environment), Ok(()));
    }
}
