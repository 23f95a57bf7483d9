//! Runs inside a container, as its user, between the runtime and the program: enters the working directory. A runtime
//! does that as root, and makes what is missing of it, in mounted folders of the node too.

use super::files::{OWN, PROGRAM};
use nix::errno::Errno;
use nix::unistd::{chdir, execvp};
use std::ffi::CString;

/// The program's verb for it.
pub const VERB: &str = "container-exec";

/// The arguments that enter the working directory and execute `argv` there.
pub(super) fn in_work_dir(work_dir: &str, argv: &[String]) -> Vec<String> {
    let own = [
        format!("{OWN}/lib/loader"),
        "--library-path".to_owned(),
        format!("{OWN}/lib"),
        PROGRAM.to_owned(),
        VERB.to_owned(),
        work_dir.to_owned(),
    ];
    own.into_iter().chain(argv.iter().cloned()).collect()
}

/// Takes the working directory and the command. Returns the exit code of a failure.
pub fn run(args: &[String]) -> i32 {
    let [work_dir, argv @ ..] = args else { return Errno::EINVAL as i32 };
    let failed = |what: &str, name: &str, errno: Errno| {
        eprintln!("sluice: cannot {what} {name}: {}", errno.desc());
        errno as i32
    };
    if let Err(errno) = chdir(work_dir.as_str()) {
        return failed("enter the working directory", work_dir, errno);
    }
    let words: Result<Vec<CString>, _> =
        argv.iter().map(|word| CString::new(word.as_str())).collect();
    let (Ok(words), Some(program)) = (words, argv.first()) else { return Errno::EINVAL as i32 };
    match execvp(&words[0], &words) {
        Ok(never) => match never {},
        Err(errno) => failed("execute", program, errno),
    }
}
