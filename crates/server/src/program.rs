//! A program of the site that the server runs on its own machine, as its own user.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The interval at which a program with a time limit is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A program with all that it needs. It has no input, its output is dropped, and it has a process group of its own.
pub struct ServerProgram {
    pub program: String,
    pub arguments: Vec<String>,
    /// The whole environment.
    pub environment: Vec<(String, String)>,
    pub limit: Option<TimeLimit>,
}

/// How long a program may take, and what a message calls that limit.
pub struct TimeLimit {
    pub duration: Duration,
    pub setting: &'static str,
}

impl ServerProgram {
    /// Runs the program to its end; an error if it failed, or took too long and was killed.
    pub fn run(self) -> Result<(), String> {
        let mut command = Command::new(&self.program);
        command.args(self.arguments).env_clear().envs(self.environment);
        command.current_dir("/").process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|e| format!("{}: {e}", self.program))?;
        let failed = |what: String| format!("{} {what}", self.program);
        let Some(limit) = self.limit else {
            let status = child.wait().map_err(|e| failed(e.to_string()))?;
            return if status.success() { Ok(()) } else { Err(failed(format!("ended: {status}"))) };
        };
        let until = Instant::now() + limit.duration;
        loop {
            match child.try_wait().map_err(|e| failed(e.to_string()))? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(failed(format!("ended: {status}"))),
                None if Instant::now() >= until => {
                    let _ = killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
                    let _ = child.wait();
                    return Err(failed(format!("took longer than {}", limit.setting)));
                }
                None => std::thread::sleep(POLL_INTERVAL),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_succeeds_fails_or_is_killed_at_its_limit() {
        let run = |program: &str, duration: Option<Duration>| {
            let environment = vec![("SECONDS".to_owned(), "60".to_owned())];
            let limit = duration.map(|duration| TimeLimit { duration, setting: "the limit" });
            ServerProgram { program: program.into(), arguments: Vec::new(), environment, limit }
                .run()
        };
        let minute = Some(Duration::from_secs(60));
        assert_eq!(run("/bin/true", None), Ok(()));
        assert_eq!(run("/bin/true", minute), Ok(()));
        for limit in [None, minute] {
            let failed = run("/bin/false", limit).expect_err("it fails");
            assert!(failed.starts_with("/bin/false ended: "), "{failed}");
        }
        assert!(run("/no/such/program", None).is_err());
        let begun = Instant::now();
        let dir = tempfile::tempdir().expect("a folder");
        let script = dir.path().join("prolog");
        std::fs::write(&script, "#!/bin/sh\nsleep $SECONDS\n").expect("a script");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(&script, mode).expect("a mode");
        let late = run(&script.display().to_string(), Some(Duration::from_millis(50)));
        assert!(late.expect_err("too long").ends_with("took longer than the limit"));
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
}
