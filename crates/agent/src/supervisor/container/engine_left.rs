//! Removes the containers that an engine still has of an attempt: those whose command was killed.

use super::engine::{Engine, Kind, LOGIN, Left, RECORD};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// How long an engine may take to remove the containers of a step.
const TIMEOUT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);
/// What Docker says of a container that it is removing already.
const IN_PROGRESS: &str = "already in progress";
const TRIES_MAX: usize = 100;
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(100);
/// The file of what the engine says, and the bytes of it that are read.
const ERRORS: &str = "removal";
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
            Kind::Docker => (TRIES_MAX, &["rm", "--force", "--volumes"]),
            // Podman notices at the first try that the container's monitor was killed.
            Kind::Podman => (2, &["rm", "--force", "--volumes", "--ignore"]),
        };
        let names = || left.iter().map(|left| left.name.as_str());
        let words: Vec<&str> = options.iter().copied().chain(names()).collect();
        let deadline = Instant::now() + TIMEOUT;
        let is_removed = (0..tries).find_map(|_| {
            match call(&first.engine, &container, &words, deadline) {
                Ok(()) => Some(true),
                // A daemon that removes it by itself refuses until it has.
                Err(said) if first.engine.kind == Kind::Podman || said.contains(IN_PROGRESS) => {
                    std::thread::sleep(PAUSE);
                    (Instant::now() > deadline).then_some(false)
                }
                Err(_) => Some(false),
            }
        });
        if is_removed != Some(true) {
            none_is_left = false;
            // The records stay; the user's login does not.
            let _ = fs::remove_file(container.join(LOGIN));
        }
    }
    none_is_left
}

/// Calls the engine. A container that it does not know is removed; else the error is what it says.
fn call(engine: &Engine, folder: &Path, words: &[&str], deadline: Instant) -> Result<(), String> {
    let mut command = engine.call(folder);
    // Not a pipe, whose end may be awaited for as long as anything that the engine started.
    let errors = folder.join(ERRORS);
    let file = File::create(&errors).map_err(|e| e.to_string())?;
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
    let mut child = command.spawn().map_err(|e| e.to_string())?;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => std::thread::sleep(POLL),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return Err("it does not answer".into());
            }
        }
    };
    let mut said = String::new();
    if let Ok(file) = File::open(&errors) {
        let _ = file.take(ERROR_BYTES_MAX).read_to_string(&mut said);
    }
    let is_unknown = |line: &str| line.to_lowercase().contains("no such container");
    let mut lines = said.lines().filter(|line| !line.trim().is_empty()).peekable();
    let is_gone = status.success() || (lines.peek().is_some() && lines.all(is_unknown));
    if is_gone { Ok(()) } else { Err(said) }
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
