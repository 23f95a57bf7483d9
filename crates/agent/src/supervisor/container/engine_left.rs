//! Removes the containers that an engine still has of an attempt: those whose command was killed.

use super::engine::{Engine, Kind, LOGIN, Left, RECORD};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// How long an engine may take to remove the containers of a step.
const TIMEOUT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes of an engine's error that are read.
const ERROR_BYTES_MAX: u64 = 64 << 10;

/// Returns whether the engine has none left; else the records stay, and a later call tries again.
pub(super) fn remove(attempt: &Path) -> bool {
    let folders = |path: &Path| {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let record = |process: PathBuf| {
        let text = fs::read(process.join(RECORD)).ok()?;
        serde_json::from_slice::<Left>(&text).ok()
    };
    let mut none_is_left = true;
    for container in folders(attempt) {
        let left: Vec<Left> = folders(&container).into_iter().filter_map(record).collect();
        let Some(first) = left.first() else { continue };
        let (tries, options): (_, &[&str]) = match first.engine.kind {
            // The daemon may be about to remove it by itself, and refuses until it has.
            Kind::Docker => (30, &["rm", "--force", "--volumes"]),
            // Podman notices at the first try that the container's monitor was killed.
            Kind::Podman => (2, &["rm", "--force", "--volumes", "--ignore"]),
        };
        let names = || left.iter().map(|left| left.name.as_str());
        let words: Vec<&str> = options.iter().copied().chain(names()).collect();
        let deadline = Instant::now() + TIMEOUT;
        let is_removed = (0..tries).any(|number| {
            if number > 0 {
                std::thread::sleep(PAUSE);
            }
            Instant::now() < deadline && call(&first.engine, &container, &words, deadline)
        });
        if !is_removed {
            none_is_left = false;
            // The records stay; the user's login does not.
            let _ = fs::remove_file(container.join(LOGIN));
        }
    }
    none_is_left
}

/// Whether the engine has removed the containers, or does not know them.
fn call(engine: &Engine, folder: &Path, words: &[&str], deadline: Instant) -> bool {
    let mut command = engine.call(folder);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else { return false };
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => std::thread::sleep(POLL),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return false;
            }
        }
    };
    let mut said = String::new();
    if let Some(error) = child.stderr.take() {
        let _ = error.take(ERROR_BYTES_MAX).read_to_string(&mut said);
    }
    let is_unknown = |line: &str| line.to_lowercase().contains("no such container");
    let mut lines = said.lines().filter(|line| !line.trim().is_empty()).peekable();
    status.success() || (lines.peek().is_some() && lines.all(is_unknown))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_record_stays_until_the_engine_has_removed_its_container() {
        let dir = tempfile::tempdir().expect("scratch folder");
        let container = dir.path().join("attempt/batch");
        fs::create_dir_all(container.join("process-batch-0")).expect("made");
        let program = dir.path().join("docker");
        let left = Left {
            engine: Engine { kind: Kind::Docker, program: program.clone() },
            name: "n".into(),
        };
        let text = serde_json::to_vec(&left).expect("json");
        fs::write(container.join("process-batch-0").join(RECORD), text).expect("written");
        let attempt = dir.path().join("attempt");
        assert!(!remove(&attempt), "no engine");
        let removes = |line: &str| {
            let script = dir.path().join("script");
            fs::write(&script, format!("#!/bin/sh\n{line}\n")).expect("written");
            fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).expect("executable");
            fs::rename(&script, &program).expect("placed");
            remove(&attempt)
        };
        assert!(!removes("echo Cannot connect to the Docker daemon >&2; exit 1"));
        assert!(!removes("exit 1"));
        assert!(removes("echo Error: No such container: n >&2; exit 1"));
        assert!(removes("[ \"$*\" = 'rm --force --volumes n' ]"));
    }
}
