//! A program of the site on the server's own machine, run as the server's user with a time limit.

use model::printable::printable;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::io::{PipeReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The interval at which a program with a time limit is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How much of its output is kept for the log: bytes in all, and of one line.
const OUTPUT_MAX: usize = 8 << 10;
const LINE_MAX: usize = 500;

/// How often its pipe is read at each look.
const READS_MAX: usize = 16;

/// A program with all that it needs.
pub struct SiteProgram {
    pub program: String,
    pub arguments: Vec<String>,
    pub environment: Vec<(String, String)>,
    pub limit: Option<Duration>,
    /// What sets the limit, as the error names it.
    pub limit_name: &'static str,
    /// Whether what it prints goes to the log.
    pub logs_output: bool,
}

impl SiteProgram {
    /// Runs the program; an error if it failed or took too long.
    pub fn run(self) -> Result<(), String> {
        let failed = |what: String| format!("{} {what}", self.program);
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).env_clear().envs(self.environment.iter().cloned());
        command.current_dir("/").process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut output = None;
        if self.logs_output {
            let (reader, writer) = std::io::pipe().map_err(|e| failed(e.to_string()))?;
            fcntl(&reader, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))
                .map_err(|e| failed(e.to_string()))?;
            let errors = writer.try_clone().map_err(|e| failed(e.to_string()))?;
            command.stdout(writer).stderr(errors);
            output = Some(Output { reader, kept: Vec::new() });
        }
        let child = command.spawn();
        // The command holds the pipe's other end until it is dropped.
        drop(command);
        let mut child = child.map_err(|e| format!("{}: {e}", self.program))?;
        let ended = self.await_end(&mut child, &mut output).map_err(failed);
        if let Some(mut output) = output {
            output.read();
            output.log(&self.program);
        }
        ended
    }

    fn await_end(&self, child: &mut Child, output: &mut Option<Output>) -> Result<(), String> {
        let until = self.limit.map(|limit| Instant::now() + limit);
        if until.is_none() && output.is_none() {
            let status = child.wait().map_err(|e| e.to_string())?;
            return if status.success() { Ok(()) } else { Err(format!("ended: {status}")) };
        }
        loop {
            output.iter_mut().for_each(Output::read);
            match child.try_wait().map_err(|e| e.to_string())? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("ended: {status}")),
                None if until.is_some_and(|until| Instant::now() >= until) => {
                    let _ = killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
                    let _ = child.wait();
                    return Err(format!("took longer than {}", self.limit_name));
                }
                None => std::thread::sleep(POLL_INTERVAL),
            }
        }
    }
}

/// What a program prints. It is read so that nobody waits for the pipe, and only its beginning is kept. What processes that it
/// leaves behind print after its end is not read.
struct Output {
    reader: PipeReader,
    kept: Vec<u8>,
}

impl Output {
    /// Reads what is there, and no more than a part of it at once: a program that prints without end is to meet its limit.
    fn read(&mut self) {
        let mut buffer = [0; 4 << 10];
        for _ in 0..READS_MAX {
            let Ok(count @ 1..) = self.reader.read(&mut buffer) else { return };
            let room = OUTPUT_MAX.saturating_sub(self.kept.len());
            self.kept.extend_from_slice(&buffer[..count.min(room)]);
        }
    }

    fn log(&self, program: &str) {
        for line in String::from_utf8_lossy(&self.kept).lines().filter(|line| !line.is_empty()) {
            let line: String = line.chars().take(LINE_MAX).collect();
            tracing::info!("{program}: {}", printable(&line));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &str) -> (tempfile::TempDir, String) {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("program");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("a script");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(&path, mode).expect("a mode");
        let path = path.display().to_string();
        (dir, path)
    }

    fn run(program: &str, limit: Option<Duration>, logs_output: bool) -> Result<(), String> {
        let environment = vec![("SECONDS".to_owned(), "60".to_owned())];
        let (program, limit_name) = (program.to_owned(), "TheTimeout");
        let arguments = Vec::new();
        SiteProgram { program, arguments, environment, limit, limit_name, logs_output }.run()
    }

    #[test]
    fn program_succeeds_fails_or_is_killed_at_its_limit() {
        let minute = Some(Duration::from_secs(60));
        for logs in [false, true] {
            assert_eq!(run("/bin/true", None, logs), Ok(()));
            assert_eq!(run("/bin/true", minute, logs), Ok(()));
            for limit in [None, minute] {
                let failed = run("/bin/false", limit, logs).expect_err("it fails");
                assert!(failed.starts_with("/bin/false ended: "), "{failed}");
            }
            assert!(run("/no/such/program", None, logs).is_err());
            let (_dir, sleeps) = script("sleep $SECONDS");
            let begun = Instant::now();
            let late = run(&sleeps, Some(Duration::from_millis(50)), logs);
            assert!(late.expect_err("too long").ends_with("took longer than TheTimeout"));
            assert!(begun.elapsed() < Duration::from_secs(30));
        }
    }

    #[test]
    fn program_that_prints_much_or_leaves_a_process_behind_ends_all_the_same() {
        let (_dir, much) = script("yes | head -c 1000000");
        assert_eq!(run(&much, None, true), Ok(()));
        let (_dir, leaves) = script("sleep 5 &");
        let begun = Instant::now();
        assert_eq!(run(&leaves, None, true), Ok(()));
        assert!(begun.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn program_that_prints_without_end_is_killed_at_its_limit() {
        let (_dir, endless) = script("exec yes");
        let late = run(&endless, Some(Duration::from_millis(50)), true);
        assert!(late.expect_err("too long").ends_with("took longer than TheTimeout"));
    }
}
