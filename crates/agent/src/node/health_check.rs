//! Runs the site's health check once: as root, in a control group of its own, with a timeout. Of what it prints only the
//! first line is kept.

use crate::cgroup::JobGroup;
use crate::killed_child::reap;
use crate::supervisor::prolog_epilog::programs;
use model::printable::printable;
use model::search_path::SYSTEM_PATH;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::io::{self, PipeReader, Read};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a check may take, as in Slurm.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
/// The longest failure, in characters.
const FAILURE_CHARS_MAX: usize = 200;
/// How much of the output may be the first line.
const LINE_BYTES_MAX: usize = 1024;
/// How long the processes of a check that took too long may take to die.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest time until an end without output is seen.
const POLL_PAUSE: Duration = Duration::from_millis(50);

/// A check's group, kept while processes that the check left in it may still do their work.
pub(crate) struct CheckGroup(JobGroup);

impl CheckGroup {
    pub fn new(group: JobGroup) -> CheckGroup {
        CheckGroup(group)
    }

    /// Kills what is left in the group and removes it.
    pub fn clear(&self) -> Result<(), crate::cgroup::CgroupError> {
        self.0.kill_all(KILL_TIMEOUT)?;
        self.0.remove()
    }

    /// Removes the group if nothing is in it any more. Returns whether it did.
    pub fn remove_if_empty(&self) -> bool {
        self.0.is_empty().unwrap_or(false) && self.0.remove().is_ok()
    }
}

/// Runs the program for a node and waits for its end. Returns why the node is unhealthy; `None` if it is well. Without a
/// group the program is a process group.
pub(crate) fn run(
    program: &str,
    node: &str,
    group: Option<&CheckGroup>,
    timeout: Duration,
) -> Option<String> {
    let failed = |why: String| Some(shown(&format!("HealthCheckProgram: {why}")));
    let path = match programs::find(&[program.to_owned()]).as_deref() {
        Ok([path]) => path.clone(),
        Ok(_) => return failed(format!("{program}: not one program")),
        Err(why) => return failed(why.clone()),
    };
    let (mut child, mut output) = match start(&path, node, group) {
        Ok(started) => started,
        Err(error) => return failed(format!("{program}: {error}")),
    };
    let mut line = FirstLine::default();
    match await_end(&mut child, &mut output, &mut line, Instant::now() + timeout) {
        Some(status) if status.success() => None,
        Some(status) => match line.text() {
            Some(text) => Some(text),
            None => failed(match (status.code(), status.signal()) {
                (Some(code), _) => format!("it ended with code {code}"),
                (None, signal) => format!("it was killed by signal {}", signal.unwrap_or(0)),
            }),
        },
        None => {
            if let Some(Err(error)) = group.map(CheckGroup::clear) {
                tracing::warn!(node, %error, "a health check cannot be killed");
            }
            // Its group is its own number, which nothing else has before it is waited for.
            let _ = killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
            // One that the kernel holds is given up: the next check would never come.
            reap(&mut child, KILL_TIMEOUT);
            failed(format!("it took longer than {} s", timeout.as_secs()))
        }
    }
}

fn start(path: &Path, node: &str, group: Option<&CheckGroup>) -> io::Result<(Child, PipeReader)> {
    let (output, input) = io::pipe()?;
    let mut command = Command::new(path);
    command.env_clear().env("PATH", SYSTEM_PATH).env("SLURMD_NODENAME", node).current_dir("/");
    command.stdin(Stdio::null()).stdout(input.try_clone()?).stderr(input).process_group(0);
    if let Some(CheckGroup(group)) = group {
        let entry = group.entry_fds().map_err(io::Error::other)?;
        // SAFETY: entering a group opens and writes files, which is safe between fork and exec.
        unsafe { command.pre_exec(move || Ok(entry.enter()?)) };
    }
    // The command holds the pipe's other end until it is dropped.
    let child = command.spawn();
    drop(command);
    Ok((child?, output))
}

/// The exit status, or `None` at the deadline. The output is read until then, so that nobody waits for the pipe; what
/// processes left behind print after the end is not.
fn await_end(
    child: &mut Child,
    output: &mut PipeReader,
    line: &mut FirstLine,
    deadline: Instant,
) -> Option<ExitStatus> {
    let mut open = true;
    loop {
        let ended = child.try_wait().ok().flatten();
        let is_over = Instant::now() >= deadline;
        // What was printed before the end is in the pipe.
        let is_wanted = ended.is_none() || !line.is_complete();
        let pause = if ended.is_some() { Duration::ZERO } else { POLL_PAUSE };
        if open && is_wanted && !is_over && is_readable(output, pause) {
            // One read a turn: who prints without end must not hide the end of the check.
            open = line.read(output);
            continue;
        }
        if ended.is_some() || is_over {
            return ended;
        }
        if !open {
            std::thread::sleep(POLL_PAUSE);
        }
    }
}

fn is_readable(output: &PipeReader, pause: Duration) -> bool {
    let mut fds = [PollFd::new(output.as_fd(), PollFlags::POLLIN)];
    let pause = PollTimeout::try_from(pause).unwrap_or(PollTimeout::ZERO);
    // A signal that interrupts it says nothing of the pipe: a read could wait for ever then.
    matches!(poll(&mut fds, pause), Ok(1..))
}

/// The first line of the output that is not blank.
#[derive(Default)]
struct FirstLine {
    kept: Vec<u8>,
    over: bool,
}

impl FirstLine {
    /// Reads once. Returns whether the pipe is still open.
    fn read(&mut self, output: &mut PipeReader) -> bool {
        let mut buffer = [0; 64 << 10];
        match output.read(&mut buffer) {
            Ok(0) => false,
            Ok(read) => {
                self.push(&buffer[..read]);
                true
            }
            Err(error) => error.kind() == io::ErrorKind::Interrupted,
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if self.over {
                return;
            }
            match byte {
                b'\n' if self.kept.trim_ascii().is_empty() => self.kept.clear(),
                b'\n' => self.over = true,
                _ => self.kept.push(byte),
            }
            self.over |= self.kept.len() >= LINE_BYTES_MAX;
        }
    }

    fn is_complete(&self) -> bool {
        self.over
    }

    fn text(&self) -> Option<String> {
        let text = String::from_utf8_lossy(self.kept.trim_ascii());
        (!text.is_empty()).then(|| shown(&text))
    }
}

/// One printable line of at most [`FAILURE_CHARS_MAX`] characters.
fn shown(text: &str) -> String {
    let text = printable(text);
    if text.chars().count() <= FAILURE_CHARS_MAX {
        return text.into_owned();
    }
    let cut: String =
        text.chars().take(FAILURE_CHARS_MAX - model::bounds::CUT_MARK.len()).collect();
    cut + model::bounds::CUT_MARK
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    struct Site(tempfile::TempDir);

    impl Site {
        fn with(script: &str) -> Site {
            let site = Site(tempfile::tempdir().expect("a scratch folder"));
            std::fs::write(site.program(), format!("#!/bin/sh\n{script}\n")).expect("a program");
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(site.program(), mode).expect("a mode");
            site
        }

        fn program(&self) -> String {
            self.0.path().join("check").display().to_string()
        }
    }

    fn check(script: &str) -> Option<String> {
        run(&Site::with(script).program(), "n1", None, Duration::from_secs(30))
    }

    #[test]
    fn check_fails_with_its_first_line_and_passes_whatever_it_prints() {
        assert_eq!(check("echo all is well"), None);
        assert_eq!(
            check("echo; echo no scratch; echo more >&2; exit 1"),
            Some("no scratch".into())
        );
        assert_eq!(check("echo $SLURMD_NODENAME is ill >&2; exit 2"), Some("n1 is ill".into()));
        assert_eq!(check("exit 3"), Some("HealthCheckProgram: it ended with code 3".into()));
        assert_eq!(
            check("kill -9 $$"),
            Some("HealthCheckProgram: it was killed by signal 9".into())
        );
    }

    #[test]
    fn megabyte_of_output_is_read_and_a_short_printable_line_is_kept() {
        assert_eq!(check("head -c 1000000 /dev/zero"), None);
        let long = check("head -c 1000000 /dev/zero | tr '\\0' x; exit 1").expect("a failure");
        assert_eq!((long.chars().count(), long.ends_with("xx...")), (200, true));
        let escape = check("printf 'a\\033[2Jb\\tc\\n'; exit 1").expect("a failure");
        assert_eq!(escape, "a\\u{1b}[2Jb\\tc");
        assert!(check("printf '\\377\\n'; exit 1").is_some());
    }

    #[test]
    fn hanging_check_is_killed_with_its_process_group() {
        let site = Site::with("sleep 600 & echo $! > $(dirname $0)/pid; wait");
        let failure = run(&site.program(), "n1", None, Duration::from_secs(4));
        assert_eq!(failure.as_deref(), Some("HealthCheckProgram: it took longer than 4 s"));
        let pid = std::fs::read_to_string(site.0.path().join("pid")).expect("a pid");
        let stat = format!("/proc/{}/stat", pid.trim());
        let is_dead = || {
            std::fs::read_to_string(&stat)
                .is_ok_and(|s| !s.contains(") Z "))
                .then_some(())
                .is_none()
        };
        let deadline = Instant::now() + Duration::from_secs(30);
        while !is_dead() {
            assert!(Instant::now() < deadline, "the child of a hanging check lives on");
            std::thread::yield_now();
        }
    }

    #[test]
    fn hanging_check_is_no_zombie_of_the_agents_afterwards() {
        let site = Site::with("echo $$ > $(dirname $0)/pid; exec sleep 600");
        assert!(run(&site.program(), "n1", None, Duration::from_secs(4)).is_some());
        let pid = std::fs::read_to_string(site.0.path().join("pid")).expect("a pid");
        assert!(!Path::new("/proc").join(pid.trim()).exists(), "it was waited for");
    }

    extern "C" fn on_signal(_: libc::c_int) {}

    /// The agent has handlers of signals, and the kernel chooses the thread that a signal interrupts.
    #[test]
    fn signal_to_the_thread_of_a_silent_check_does_not_take_its_timeout_away() {
        use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, sigaction};
        let handler = SigHandler::Handler(on_signal);
        let action = SigAction::new(handler, SaFlags::SA_RESTART, SigSet::empty());
        // SAFETY: the handler does nothing.
        unsafe { sigaction(Signal::SIGUSR1, &action) }.expect("a handler");
        let site = Site::with("touch $(dirname $0)/started; exec sleep 600");
        let (program, started) = (site.program(), site.0.path().join("started"));
        let (thread_in, thread) = std::sync::mpsc::channel();
        let check = std::thread::spawn(move || {
            // SAFETY: it takes nothing.
            thread_in.send(unsafe { libc::pthread_self() }).expect("heard");
            run(&program, "n1", None, Duration::from_secs(2))
        });
        let thread = thread.recv().expect("a thread");
        // A fork that is interrupted again and again would never be done.
        while !started.exists() {
            std::thread::yield_now();
        }
        while !check.is_finished() {
            // SAFETY: the thread is not joined yet, so that its number is its own.
            unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
            // Without a pause it would be in the handler and nowhere else.
            std::thread::sleep(Duration::from_millis(1));
        }
        let failure = check.join().expect("no panic");
        assert_eq!(failure.as_deref(), Some("HealthCheckProgram: it took longer than 2 s"));
    }

    #[test]
    fn background_process_that_keeps_the_pipe_open_does_not_delay_the_end() {
        let site = Site::with("sleep 600 & echo $! > $(dirname $0)/pid; echo ill; exit 1");
        let failure = run(&site.program(), "n1", None, Duration::from_secs(30));
        assert_eq!(failure.as_deref(), Some("ill"));
        let pid = std::fs::read_to_string(site.0.path().join("pid")).expect("a pid");
        let pid = Pid::from_raw(pid.trim().parse().expect("a pid"));
        nix::sys::signal::kill(pid, Signal::SIGKILL).expect("it still runs");
    }

    #[test]
    fn background_process_that_prints_without_end_does_not_hide_the_end() {
        let site = Site::with("yes & echo $! > $(dirname $0)/pid; exit 0");
        assert_eq!(run(&site.program(), "n1", None, Duration::from_secs(30)), None);
        let pid = std::fs::read_to_string(site.0.path().join("pid")).expect("a pid");
        // It may have ended by itself, because nobody reads what it prints any more.
        let _ = nix::sys::signal::kill(
            Pid::from_raw(pid.trim().parse().expect("a pid")),
            Signal::SIGKILL,
        );
    }

    #[test]
    fn program_that_cannot_be_run_is_a_failure() {
        let gone = run("/nowhere/check", "n1", None, TIMEOUT).expect("a failure");
        assert!(gone.starts_with("HealthCheckProgram: /nowhere/check: No such file"), "{gone}");
    }
}
