//! Executes a program, searched for as a shell does, and names what is missing where that fails.

use model::os_text;
use nix::errno::Errno;
use nix::unistd::{execve, getcwd};
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes of a script that are searched for its interpreter.
const INTERPRETER_BYTES_MAX: usize = 256;

/// The `argv[0]` of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Argv0 {
    /// The word as it was given in the command.
    AsGiven,
    /// The path at which the program was found, as Slurm's tasks have it.
    ResolvedPath,
}

/// Executes the program. Returns only on failure: the most telling error among the tried paths, and its path.
pub(super) fn execute(argv: &[String], environment: &[CString], argv0: Argv0) -> (Errno, String) {
    let given = argv.first().cloned().unwrap_or_default();
    let words: Result<Vec<CString>, _> =
        argv.iter().map(|word| CString::new(os_text::to_bytes(word))).collect();
    let Ok(mut words) = words else { return (Errno::EINVAL, given) };
    let Some(program) = words.first().cloned() else { return (Errno::EINVAL, given) };
    if program.is_empty() {
        // An empty word joined to a folder of `PATH` would name the folder itself.
        return (Errno::ENOENT, given);
    }
    let mut try_path = |path: &CString| {
        if argv0 == Argv0::ResolvedPath {
            words[0] = absolute(path);
        }
        match execve(path, &words, environment) {
            Ok(never) => match never {},
            Err(errno) => errno,
        }
    };
    if given.contains('/') {
        return (try_path(&program), given);
    }
    let path = environment.iter().find_map(|entry| entry.to_bytes().strip_prefix(b"PATH="));
    let mut worst = (Errno::ENOENT, given);
    for folder in path.unwrap_or(b"/usr/bin:/bin").split(|byte| *byte == b':') {
        let folder = if folder.is_empty() { b".".as_slice() } else { folder };
        let Ok(candidate) = CString::new([folder, b"/", program.to_bytes()].concat()) else {
            continue;
        };
        match try_path(&candidate) {
            Errno::ENOENT | Errno::ENOTDIR => {}
            // EACCES counts only if the file exists: a folder that may not be searched says nothing about the program.
            Errno::EACCES if is_file(&candidate) => worst = (Errno::EACCES, shown(&candidate)),
            Errno::EACCES => {}
            errno => return (errno, shown(&candidate)),
        }
    }
    worst
}

fn shown(path: &CStr) -> String {
    path.to_string_lossy().into_owned()
}

fn is_file(path: &CStr) -> bool {
    Path::new(OsStr::from_bytes(path.to_bytes())).is_file()
}

/// The path as Slurm's tasks see it: absolute, but not normalised.
fn absolute(path: &CStr) -> CString {
    let bytes = path.to_bytes();
    let here = if bytes.starts_with(b"/") { None } else { getcwd().ok() };
    let joined = here.map(|here| [here.as_os_str().as_bytes(), b"/", bytes].concat());
    joined.and_then(|joined| CString::new(joined).ok()).unwrap_or_else(|| path.to_owned())
}

/// The missing file behind ENOENT: the program itself, or the interpreter that its first line names.
pub(super) fn culprit(program: &str, errno: Errno) -> String {
    let interpreter = || {
        let mut head = vec![0; INTERPRETER_BYTES_MAX];
        let length =
            std::io::Read::read(&mut std::fs::File::open(program).ok()?, &mut head).ok()?;
        let line =
            head[..length].split(|byte| *byte == b'\n').next()?.strip_prefix(b"#!")?.to_vec();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.split_whitespace().next().map(str::to_owned)
    };
    match (errno == Errno::ENOENT).then(interpreter).flatten() {
        Some(interpreter) => format!("bad interpreter({interpreter})"),
        None => program.to_owned(),
    }
}
