//! The environment of a user's own shell on this node, added to that of his script. The shell runs as the user and inside the
//! job's groups, in the process that is to execute the script: what its files do, the job could do as well.

use model::run::LoginEnvironment;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::stat::Mode;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{
    ForkResult, Pid, Uid, User, chdir, dup2_stderr, dup2_stdin, dup2_stdout, execve, fork, setpgid,
};
use std::ffi::CString;
use std::io::{PipeReader, PipeWriter, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::time::{Duration, Instant};

/// What the shell and its files print; more is an error.
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// How often a shell that prints nothing is looked at: its end, too, ends the wait.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Stands between what the files of the shell print and the environment.
const MARK: &str = "SLUICE-LOGIN-ENVIRONMENT";
/// Read by every shell, those of csh's family too.
const COMMAND: &str = "echo SLUICE-LOGIN-ENVIRONMENT; /usr/bin/env -0";
const DEFAULT_SHELL: &str = "/bin/sh";
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Variables that say something of the shell itself.
const OF_THE_SHELL: [&[u8]; 4] = [b"_", b"OLDPWD", b"PWD", b"SHLVL"];

/// Adds the variables that the environment does not have. The error says why none was added.
pub(super) fn add(
    environment: &mut Vec<CString>,
    uid: u32,
    asked: LoginEnvironment,
) -> Result<(), String> {
    let said = shell_output(uid, asked)?;
    let found = variables(&said).ok_or("its shell prints no environment")?;
    for entry in found {
        let name = name_of(&entry);
        if !environment.iter().any(|known| name_of(known.to_bytes()) == name) {
            environment.extend(CString::new(entry));
        }
    }
    Ok(())
}

/// `NAME` of `NAME=value`.
fn name_of(entry: &[u8]) -> &[u8] {
    entry.split(|byte| *byte == b'=').next().unwrap_or_default()
}

/// The entries after the mark that are whole: what a logout prints has no NUL after it. `None` without a mark.
fn variables(said: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mark = format!("{MARK}\n");
    let at = said.windows(mark.len()).rposition(|window| window == mark.as_bytes())?;
    let mut entries: Vec<&[u8]> = said[at + mark.len()..].split(|byte| *byte == 0).collect();
    entries.pop();
    let is_wanted = |entry: &&[u8]| {
        let name = name_of(entry);
        !name.is_empty() && name.len() < entry.len() && !OF_THE_SHELL.contains(&name)
    };
    Some(entries.into_iter().filter(is_wanted).map(<[u8]>::to_vec).collect())
}

fn shell_output(uid: u32, asked: LoginEnvironment) -> Result<Vec<u8>, String> {
    let (reader, writer) = std::io::pipe().map_err(|error| error.to_string())?;
    // SAFETY: this process has one thread, and the child executes or exits.
    match unsafe { fork() }.map_err(|errno| errno.desc().to_owned())? {
        ForkResult::Child => {
            let _ = execute_shell(uid, asked.login, &writer);
            // SAFETY: ends the child without running exit handlers of the process it was forked from.
            unsafe { libc::_exit(1) }
        }
        ForkResult::Parent { child } => {
            drop(writer);
            let said = read(reader, child, asked.timeout_s);
            if said.is_err() {
                // The child makes its group itself, and may not have come to it.
                let _ = setpgid(child, child);
                let _ = killpg(child, Signal::SIGKILL);
            }
            // A shell that has said all there is to say is not waited for any longer.
            let _ = kill(child, Signal::SIGKILL);
            let _ = waitpid(child, None);
            said
        }
    }
}

/// Executes the shell of the user. Looking the user up may take long too, and is done here, in the process that is waited for.
fn execute_shell(uid: u32, login: bool, output: &PipeWriter) -> Result<(), Errno> {
    let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
    let null = open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())?;
    dup2_stdin(&null)?;
    dup2_stderr(&null)?;
    dup2_stdout(output)?;
    let user = User::from_uid(Uid::from_raw(uid))?.ok_or(Errno::ENOENT)?;
    // Files of a shell may name others beside them; a user without a home has none of them.
    let _ = chdir(&user.dir);
    let text = |bytes: Vec<u8>| CString::new(bytes).map_err(|_| Errno::EINVAL);
    let shell = Some(user.shell.into_os_string().into_vec()).filter(|shell| !shell.is_empty());
    let shell = shell.unwrap_or_else(|| DEFAULT_SHELL.into());
    let variable = |name: &str, value: &[u8]| text([name.as_bytes(), &b"="[..], value].concat());
    let home = user.dir.into_os_string().into_vec();
    let environment = [
        variable("HOME", &home)?,
        variable("SHELL", &shell)?,
        variable("USER", user.name.as_bytes())?,
        variable("LOGNAME", user.name.as_bytes())?,
        variable("PATH", DEFAULT_PATH.as_bytes())?,
    ];
    // By its name a shell knows that it is that of a login.
    let base = shell.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let name = if login { [&b"-"[..], base].concat() } else { base.to_vec() };
    let words = [text(name)?, text(b"-c".to_vec())?, text(COMMAND.into())?];
    execve(&text(shell)?, &words, &environment).map(|never| match never {})
}

/// Reads until the shell has closed its output or ended, within the time.
fn read(mut output: PipeReader, shell: Pid, timeout_s: u32) -> Result<Vec<u8>, String> {
    let deadline = Instant::now() + Duration::from_secs(timeout_s.into());
    let mut said = Vec::new();
    let mut chunk = [0; 8192];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(format!("its shell takes longer than {timeout_s} s"));
        }
        let wait = PollTimeout::try_from(left.min(LOOK_INTERVAL)).unwrap_or(PollTimeout::ZERO);
        match poll(&mut [PollFd::new(output.as_fd(), PollFlags::POLLIN)], wait) {
            // A program that one of its files has left behind may hold the output open.
            Ok(0) if has_ended(shell) => return Ok(said),
            Ok(0) | Err(Errno::EINTR) => continue,
            Ok(_) => {}
            Err(errno) => return Err(errno.desc().to_owned()),
        }
        match output.read(&mut chunk).map_err(|error| error.to_string())? {
            0 => return Ok(said),
            count => said.extend_from_slice(&chunk[..count]),
        }
        if said.len() > OUTPUT_BYTES_MAX {
            return Err(format!("its shell prints more than {OUTPUT_BYTES_MAX} bytes"));
        }
    }
}

/// Looks without waiting for it, so that its number stays its own.
fn has_ended(shell: Pid) -> bool {
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    !matches!(waitid(Id::Pid(shell), look), Ok(WaitStatus::StillAlive))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(list: &[&str]) -> Vec<CString> {
        list.iter().map(|entry| CString::new(*entry).expect("no NUL")).collect()
    }

    #[test]
    fn variables_are_those_after_the_last_mark_and_not_the_shells_own() {
        assert!(COMMAND.contains(MARK));
        let said = format!(
            "Welcome\nA=0\0{MARK}\nnoise\n{MARK}\nA=1\0B=x\ny\0_=/usr/bin/env\0SHLVL=1\0=bad\0bare\0bye\n"
        );
        let found = variables(said.as_bytes()).expect("a mark");
        let found: Vec<String> =
            found.into_iter().map(|entry| String::from_utf8(entry).expect("text")).collect();
        assert_eq!(found, ["A=1", "B=x\ny"]);
        assert_eq!(variables(b"This account is not available.\n"), None);
    }

    #[test]
    fn what_the_environment_has_is_kept_and_the_rest_is_added() {
        let mut environment = entries(&["HOME=/elsewhere", "A="]);
        let asked = LoginEnvironment { timeout_s: 60, login: false };
        add(&mut environment, nix::unistd::getuid().as_raw(), asked).expect("a shell");
        let value = |name: &str| {
            let of = |entry: &&CString| name_of(entry.to_bytes()) == name.as_bytes();
            let found: Vec<_> = environment.iter().filter(of).collect();
            assert_eq!(found.len(), 1, "{name}: {environment:?}");
            found[0].to_string_lossy().into_owned()
        };
        assert_eq!((value("HOME").as_str(), value("A").as_str()), ("HOME=/elsewhere", "A="));
        assert!(value("LOGNAME").len() > "LOGNAME=".len());
    }

    #[test]
    fn shell_that_takes_too_long_is_ended() {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let mut child = std::process::Command::new("sleep").arg("600").spawn().expect("sleep");
        let shell = Pid::from_raw(child.id() as i32);
        let said = read(reader, shell, 0);
        assert_eq!(said, Err("its shell takes longer than 0 s".to_owned()));
        // A shell that has ended while somebody else holds its output open is not waited for.
        let (held, _writer) = std::io::pipe().expect("a pipe");
        child.kill().expect("killed");
        assert_eq!(read(held, shell, 60), Ok(Vec::new()));
        child.wait().expect("it was looked at, and not waited for");
        drop(writer);
    }
}
