//! Runs inside a container, as its user, between the runtime and the program: enters the working directory, and places
//! what the run brings along. A runtime would enter it as root, and make what is missing of it, in mounted folders of the
//! node too.

use super::assembly::WORKSPACE;
use super::files::{ENTER, own_program};
use crate::supervisor::workspace::RunWorkspace;
use model::os_text;
use nix::errno::Errno;
use nix::unistd::{chdir, execvp};
use std::env::{remove_var, set_var};
use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;

/// The program's verb for it.
pub const VERB: &str = "container-exec";

/// Before all other words: they and the variables came as text that stands for other bytes (`model::os_text`). A runtime's
/// configuration is JSON, which has no bytes.
const BYTES: &str = "--bytes";

/// Before the working directory: it is made if it is missing, and the run's files are placed.
const PLACE: &str = "--workspace";

/// The arguments that enter the working directory and execute `argv` there.
pub(super) fn in_work_dir(work_dir: &str, argv: &[String]) -> Vec<String> {
    called_with(&[work_dir], argv)
}

/// The same by the small program, which starts the whole one only where it cannot do it.
pub(super) fn in_work_dir_fast(work_dir: &str, argv: &[String]) -> Vec<String> {
    std::iter::once(ENTER.to_owned()).chain(in_work_dir(work_dir, argv)).collect()
}

/// The same, with the run's files placed before.
pub(super) fn in_workspace(work_dir: &str, argv: &[String]) -> Vec<String> {
    called_with(&[PLACE, work_dir], argv)
}

/// The same with words or variables that stand for other bytes; the run's files are placed before where it has any.
pub(super) fn with_bytes(places: bool, work_dir: &str, argv: &[String]) -> Vec<String> {
    let words: &[&str] = if places { &[BYTES, PLACE, work_dir] } else { &[BYTES, work_dir] };
    called_with(words, argv)
}

fn called_with(words: &[&str], argv: &[String]) -> Vec<String> {
    let words = words.iter().map(|word| (*word).to_owned());
    own_program(VERB).into_iter().chain(words).chain(argv.iter().cloned()).collect()
}

/// Takes the working directory and the command, after the words that say how. Returns the exit code of a failure.
pub fn run(args: &[String]) -> i32 {
    match args {
        [first, rest @ ..] if first == BYTES => {
            restore_variables();
            enter_and_execute(&rest.iter().map(|word| restored(word)).collect::<Vec<_>>())
        }
        all => enter_and_execute(all),
    }
}

/// A word that came as text which stands for other bytes. It was taken for the program's own text when it was read.
fn restored(word: &str) -> String {
    String::from_utf8_lossy(&os_text::to_bytes(word)).into_owned()
}

/// Gives the variables of this process the bytes that their text stands for.
fn restore_variables() {
    for (name, value) in std::env::vars_os() {
        let (Some(from), Some(value)) = (name.to_str(), value.to_str()) else { continue };
        // A name with `=` at its start cannot be set.
        if from.contains('=') || !(os_text::has_bytes(from) || os_text::has_bytes(value)) {
            continue;
        }
        // SAFETY: this process has one thread.
        unsafe {
            remove_var(from);
            set_var(&*os_text::to_os(from), &*os_text::to_os(value));
        }
    }
}

fn enter_and_execute(args: &[String]) -> i32 {
    let (places, args) = match args {
        [first, rest @ ..] if first == PLACE => (true, rest),
        all => (false, all),
    };
    let [work_dir, argv @ ..] = args else { return Errno::EINVAL as i32 };
    let folder = os_text::to_os(work_dir);
    let failed = |what: &str, name: &str, errno: Errno| {
        eprintln!("sluice: cannot {what} {name}: {}", errno.desc());
        errno as i32
    };
    if places {
        // What cannot be made is said when it is entered.
        let _ = std::fs::create_dir_all(&*folder);
    }
    if let Err(errno) = chdir(&*folder) {
        return failed("enter the working directory", work_dir, errno);
    }
    if places {
        match place() {
            // SAFETY: this process has one thread.
            Ok(more) => more.iter().for_each(|(name, value)| unsafe { set_var(name, value) }),
            Err(why) => {
                eprintln!("sluice: {why}");
                return NOT_PLACED;
            }
        }
    }
    let words: Result<Vec<CString>, _> =
        argv.iter().map(|word| CString::new(os_text::to_bytes(word))).collect();
    let (Ok(words), Some(program)) = (words, argv.first()) else { return Errno::EINVAL as i32 };
    match execvp(&words[0], &words) {
        Ok(never) => match never {},
        Err(errno) => failed("execute", program, errno),
    }
}

/// The exit code of a run whose files could not be placed.
const NOT_PLACED: i32 = 1;

/// Returns the variables that the script gets besides.
fn place() -> Result<Vec<(String, String)>, String> {
    let text = std::fs::read(WORKSPACE).map_err(|error| format!("{WORKSPACE}: {error}"))?;
    let workspace: RunWorkspace =
        serde_json::from_slice(&text).map_err(|error| format!("{WORKSPACE}: {error}"))?;
    let entry = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        CString::new([name.into_vec(), value.into_vec()].join(&b'=')).ok()
    };
    let environment: Vec<CString> = std::env::vars_os().filter_map(entry).collect();
    workspace.place(&environment)
}

#[cfg(test)]
mod tests {
    use super::super::files::ENTER_PROGRAM;
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::process::{Command, Output};

    /// Runs the small program in `folder` as a container does, with another program in the place of the whole one.
    fn enter(folder: &Path, work_dir: &str, argv: &[&str]) -> Output {
        let (bytes, program) = (folder.join("bytes"), folder.join("enter"));
        std::fs::write(&bytes, ENTER_PROGRAM).expect("written");
        std::fs::set_permissions(&bytes, PermissionsExt::from_mode(0o755)).expect("a mode");
        // By another process: a file that this one wrote may be open in a child that another test has just forked, and what is
        // open to be written to cannot be executed.
        let copied = Command::new("/bin/cp").args([&bytes, &program]).status();
        assert!(copied.expect("copied").success());
        let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
        let words = in_work_dir_fast(work_dir, &argv);
        let mut command = Command::new(program);
        // The word after its own name is what is executed where something fails.
        command.arg("/bin/echo").args(&words[2..]).env_clear();
        command.env("OTHER", "1").env("PATH", "/nowhere:/usr/bin:/bin").env("LAST", "2");
        command.output().expect("executed")
    }

    #[test]
    fn words_that_came_as_text_are_the_bytes_that_they_stand_for() {
        for bytes in [&b"gr\xfcn"[..], b"plain", "grün \u{10fffc}".as_bytes()] {
            let sent = os_text::from_bytes(bytes.to_vec());
            let read = os_text::from_bytes(sent.into_bytes());
            assert_eq!(*os_text::to_bytes(&restored(&read)), *bytes);
        }
    }

    #[test]
    fn small_program_enters_the_working_directory_and_leaves_failures_to_the_whole_one() {
        let dir = tempfile::tempdir().expect("scratch folder");
        let folder = dir.path().canonicalize().expect("a path");
        let work_dir = folder.to_str().expect("a text");
        let said = |work_dir: &str, argv: &[&str]| {
            let output = enter(&folder, work_dir, argv);
            (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
        };
        assert_eq!(said(work_dir, &["pwd"]), (Some(0), format!("{work_dir}\n")));
        let words = ["/bin/sh", "-c", "echo $0 $1 $OTHER $LAST; exit 3", "a", "b"];
        assert_eq!(said(work_dir, &words), (Some(3), "a b 1 2\n".to_owned()));
        let failures = [("/nowhere", "pwd"), (work_dir, "no-such"), (work_dir, "./no-such")];
        for (work_dir, program) in failures {
            let (code, text) = said(work_dir, &[program]);
            assert_eq!(code, Some(0), "{program}");
            assert!(text.ends_with(&format!("{VERB} {work_dir} {program}\n")), "{text}");
        }
    }
}
