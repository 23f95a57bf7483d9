//! Runs inside a container that an engine made, as its first process and its user: asks the shim outside what to run,
//! runs it, passes signals on to it and reaps what it leaves. An engine's own first process would be the program itself,
//! which the kernel spares every signal that it does not handle.

use super::files::own_program;
use super::runtime_config::set_rlimit;
use nix::errno::Errno;
use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use nix::sys::stat::{Mode, umask};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, execvpe, fork, setpgid, tcsetpgrp};
use serde::{Deserialize, Serialize};
use std::ffi::CString;
use std::io::{IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;

/// The program's verb for it.
pub const VERB: &str = "container-init";
/// The folder of this process in the container, and the shim's socket in it.
pub(super) const FOLDER: &str = "/run/sluice/process";
pub(super) const SOCKET: &str = "socket";
/// Bytes of what the shim says: a whole environment.
const ORDERS_BYTES_MAX: u32 = 64 << 20;

/// What the shim says.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Orders {
    Run {
        arguments: Vec<String>,
        environment: Vec<String>,
        umask: u32,
        rlimits: Vec<(String, u64, u64)>,
    },
    /// Nothing can be run.
    Fail { line: String, code: i32 },
}

/// The arguments that an engine is given to run this.
pub(super) fn words() -> [String; 5] {
    own_program(VERB)
}

/// Returns the exit code of the program, or of the failure.
pub fn run() -> i32 {
    let failed = |e: std::io::Error| {
        eprintln!("sluice: the container is not told what to run: {e}");
        1
    };
    let mut shim = match UnixStream::connect(format!("{FOLDER}/{SOCKET}")) {
        Ok(stream) => stream,
        Err(error) => return failed(error),
    };
    let code = match read_orders(&mut shim) {
        Ok(Orders::Run { arguments, environment, umask: mask, rlimits }) => {
            umask(Mode::from_bits_truncate(mask & 0o777));
            // A limit that the engine set lower stays.
            rlimits.iter().for_each(|(name, soft, hard)| set_rlimit(name, *soft, *hard));
            run_program(&arguments, &environment).unwrap_or_else(|errno| errno as i32)
        }
        Ok(Orders::Fail { line, code }) => {
            eprintln!("{line}");
            code
        }
        Err(error) => return failed(error),
    };
    // The shim looks at the container's group while it is still there.
    let _ = shim.write_all(b"e").and_then(|()| shim.read(&mut [0]));
    code
}

fn read_orders(shim: &mut UnixStream) -> std::io::Result<Orders> {
    let mut length = [0; 4];
    shim.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length).min(ORDERS_BYTES_MAX);
    let mut text = vec![0; length as usize];
    shim.read_exact(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

fn run_program(arguments: &[String], environment: &[String]) -> nix::Result<i32> {
    let text = |words: &[String]| -> nix::Result<Vec<CString>> {
        let words = words.iter().map(|word| CString::new(word.as_str()));
        words.collect::<Result<_, _>>().map_err(|_| Errno::EINVAL)
    };
    let (words, variables) = (text(arguments)?, text(environment)?);
    let program = words.first().ok_or(Errno::EINVAL)?;
    // Blocked, a signal is kept for the wait below, also one that the kernel would spare the first process.
    SigSet::all().thread_block()?;
    // SAFETY: this process has one thread, and the child executes or exits.
    match unsafe { fork() }? {
        ForkResult::Child => {
            let errno =
                match become_foreground().and_then(|()| execute(program, &words, &variables)) {
                    Ok(never) => match never {},
                    Err(errno) => errno,
                };
            eprintln!("sluice: cannot execute {}: {}", program.to_string_lossy(), errno.desc());
            // SAFETY: ends the child without the exit handlers of its parent.
            unsafe { libc::_exit(errno as i32) }
        }
        ForkResult::Parent { child } => Ok(wait_for(child)),
    }
}

/// A group of its own, which has the terminal if there is one: the keys that signal reach it and not this process too.
fn become_foreground() -> nix::Result<()> {
    let own = Pid::from_raw(0);
    setpgid(own, own)?;
    if std::io::stdin().is_terminal() {
        // SAFETY: ignoring a signal runs no code of ours.
        unsafe { signal(Signal::SIGTTOU, SigHandler::SigIgn) }?;
        let _ = tcsetpgrp(std::io::stdin(), nix::unistd::getpgrp());
        // SAFETY: the default disposition runs no code of ours.
        unsafe { signal(Signal::SIGTTOU, SigHandler::SigDfl) }?;
    }
    SigSet::all().thread_unblock()
}

fn execute(
    program: &CString,
    words: &[CString],
    variables: &[CString],
) -> nix::Result<std::convert::Infallible> {
    // The search is by this process's own `PATH`.
    for entry in variables.iter().filter_map(|entry| entry.to_str().ok()) {
        if let Some(path) = entry.strip_prefix("PATH=") {
            // SAFETY: this process has one thread.
            unsafe { std::env::set_var("PATH", path) };
        }
    }
    execvpe(program, words, variables)
}

/// The next signal of those that are blocked: by its number, since real-time signals have no name.
fn wait_for_signal() -> nix::Result<i32> {
    let mut number = 0;
    // SAFETY: both are live values of the types asked for.
    match unsafe { libc::sigwait(SigSet::all().as_ref(), &mut number) } {
        0 => Ok(number),
        errno => Err(Errno::from_raw(errno)),
    }
}

/// Passes signals on, and reaps, until the program has ended. Returns its exit code.
fn wait_for(program: Pid) -> i32 {
    loop {
        match wait_for_signal() {
            Ok(libc::SIGCHLD) => {}
            Ok(libc::SIGTTIN | libc::SIGTTOU) | Err(_) => continue,
            Ok(other) => {
                // SAFETY: kill takes two integers and touches no memory of ours.
                unsafe { libc::kill(program.as_raw(), other) };
                continue;
            }
        }
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) if pid == program => return code,
                Ok(WaitStatus::Signaled(pid, number, _)) if pid == program => {
                    return 128 + number as i32;
                }
                Ok(WaitStatus::StillAlive) | Err(_) => break,
                Ok(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_without_a_name_are_passed_on_too() {
        SigSet::all().thread_block().expect("blocked");
        for number in [libc::SIGTERM, libc::SIGRTMIN(), libc::SIGRTMAX()] {
            // SAFETY: raise takes an integer; the signal is blocked in this thread.
            assert_eq!(unsafe { libc::raise(number) }, 0);
            assert_eq!(wait_for_signal(), Ok(number));
        }
    }
}
