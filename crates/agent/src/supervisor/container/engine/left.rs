//! Removes the containers that an engine still has of an attempt: those whose command was killed.

use super::call::Patience;
use super::login::LOGIN;
use super::{Engine, Left, RECORD};
use crate::supervisor::container::process_folder;
use model::run::ExitStatus;
use model::site::EngineKind;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the engines of a node may take to remove the containers of an attempt.
const TIMEOUT: Duration = Duration::from_secs(30);
/// What Docker says of a container that it is removing already.
const IN_PROGRESS: &str = "already in progress";
const TRIES_MAX: usize = 100;
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(100);
/// The name of the files of what the engine says.
const REMOVAL: &str = "removal";
/// Containers that are named in one call: a command line is bounded.
const NAMES_MAX: usize = 1000;
/// The exit code of an engine's command that failed itself: the container may still be there.
const ENGINE_FAILED: i32 = 125;

/// Removes the record of a process's container when the engine's command has ended by itself: it ends after the container
/// is removed. `attempt` is the folder of the attempt's containers.
pub(in crate::supervisor::container) fn forget(
    attempt: &Path,
    step: &str,
    process: u32,
    exit: ExitStatus,
) {
    if exit.signal == 0 && exit.code != ENGINE_FAILED {
        let record = process_folder(&attempt.join(step), step, process).join(RECORD);
        // A container of another runtime has none.
        let _ = fs::remove_file(record);
    }
}

/// Returns whether the engines have none left; else the records stay, and a later call tries again.
pub(in crate::supervisor::container) fn remove(attempt: &Path) -> bool {
    remove_until(attempt, Instant::now() + TIMEOUT)
}

fn remove_until(attempt: &Path, deadline: Instant) -> bool {
    let folders = |path: &Path| {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let mut engines: Vec<(Engine, Vec<(PathBuf, String)>)> = Vec::new();
    for container in folders(attempt) {
        for entry in folders(&container) {
            if entry.file_name().is_some_and(|name| name.as_bytes().starts_with(LOGIN.as_bytes())) {
                // The records may have to stay; the user's login does not.
                let _ = fs::remove_file(entry);
                continue;
            }
            let record = entry.join(RECORD);
            let left = fs::read(&record).ok();
            let left = left.and_then(|text| serde_json::from_slice::<Left>(&text).ok());
            let Some(Left { engine, name }) = left else { continue };
            match engines.iter_mut().find(|(known, _)| *known == engine) {
                Some((_, containers)) => containers.push((record, name)),
                None => engines.push((engine, vec![(record, name)])),
            }
        }
    }
    let mut none_is_left = true;
    for (engine, containers) in &engines {
        for containers in containers.chunks(NAMES_MAX) {
            let names: Vec<&str> = containers.iter().map(|(_, name)| name.as_str()).collect();
            if remove_named(engine, attempt, &names, deadline) {
                containers.iter().for_each(|(record, _)| _ = fs::remove_file(record));
            } else {
                none_is_left = false;
            }
        }
    }
    none_is_left
}

/// Returns whether the engine has none of the named containers any more.
fn remove_named(engine: &Engine, folder: &Path, names: &[&str], deadline: Instant) -> bool {
    let (tries, options): (_, &[&str]) = match engine.kind {
        EngineKind::Docker => (TRIES_MAX, &["rm", "--force", "--volumes"]),
        // Podman notices at the first try that the container's monitor was killed.
        EngineKind::Podman => (2, &["rm", "--force", "--volumes", "--ignore"]),
    };
    let words: Vec<&str> = options.iter().chain(names).copied().collect();
    for _ in 0..tries {
        if Instant::now() >= deadline {
            return false;
        }
        match call(engine, folder, &words, deadline) {
            Ok(()) => return true,
            // A daemon that removes it by itself refuses until it has.
            Err(said) if engine.kind == EngineKind::Podman || said.contains(IN_PROGRESS) => {
                std::thread::sleep(PAUSE);
            }
            Err(_) => return false,
        }
    }
    false
}

/// Calls the engine. A container that it does not know is removed; else the error is what it says.
fn call(engine: &Engine, folder: &Path, words: &[&str], deadline: Instant) -> Result<(), String> {
    let answer = engine.ask(folder, REMOVAL, words, Patience::Until(deadline))?;
    let said = String::from_utf8_lossy(&answer.errors).into_owned();
    let is_unknown = |line: &str| line.to_lowercase().contains("no such container");
    let mut lines = said.lines().filter(|line| !line.trim().is_empty()).peekable();
    let is_gone = answer.is_success || (lines.peek().is_some() && lines.all(is_unknown));
    if is_gone { Ok(()) } else { Err(said) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    struct Node(tempfile::TempDir);

    impl Node {
        fn new() -> Node {
            Node(tempfile::tempdir().expect("scratch folder"))
        }

        fn attempt(&self) -> PathBuf {
            self.0.path().join("attempt")
        }

        fn program(&self) -> PathBuf {
            self.0.path().join("docker")
        }

        /// A container of one process of a step, named as its step.
        fn leave(&self, step: &str) -> PathBuf {
            let folder = process_folder(&self.attempt().join(step), step, 0);
            fs::create_dir_all(&folder).expect("made");
            let engine = Engine { kind: EngineKind::Docker, program: self.program() };
            let text = serde_json::to_vec(&Left { engine, name: step.into() }).expect("json");
            fs::write(folder.join(RECORD), text).expect("written");
            folder.join(RECORD)
        }

        fn set_engine(&self, line: &str) {
            let script = self.0.path().join("script");
            fs::write(&script, format!("#!/bin/sh\n{line}\n")).expect("written");
            fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).expect("executable");
            fs::rename(&script, self.program()).expect("placed");
        }
    }

    #[test]
    fn a_record_stays_until_the_engine_has_removed_its_container() {
        let node = Node::new();
        node.leave("n");
        assert!(!remove(&node.attempt()), "no engine");
        let removes = |line: &str| {
            node.leave("n");
            node.set_engine(line);
            let record = node.leave("n");
            let is_removed = remove(&node.attempt());
            assert_ne!(record.exists(), is_removed, "{line}");
            is_removed
        };
        assert!(!removes("echo Cannot connect to the Docker daemon >&2; exit 1"));
        assert!(!removes("exit 1"));
        assert!(removes("echo Error: No such container: n >&2; exit 1"));
        assert!(removes("[ \"$*\" = 'rm --force --volumes n' ]"));
    }

    #[test]
    fn the_containers_of_all_steps_are_removed_in_one_call() {
        let node = Node::new();
        let calls = node.0.path().join("calls");
        node.set_engine(&format!("echo $# >> {}", calls.display()));
        for step in ["0", "1", "batch"] {
            node.leave(step);
        }
        assert!(remove(&node.attempt()));
        assert_eq!(fs::read_to_string(calls).expect("called"), "6\n");
    }

    #[test]
    fn an_engine_that_hangs_has_one_deadline_for_all_steps() {
        let node = Node::new();
        let calls = node.0.path().join("calls");
        // The call goes on until the deadline ends it.
        node.set_engine(&format!("echo called >> {}; exec sleep 600", calls.display()));
        let records = ["0", "1"].map(|step| node.leave(step));
        let login = node.attempt().join("0").join(LOGIN);
        fs::write(&login, "{}").expect("written");
        assert!(!remove_until(&node.attempt(), Instant::now() + Duration::from_secs(1)));
        assert!(records.iter().all(|record| record.exists()));
        assert!(!login.exists(), "the user's login does not stay");
        assert_eq!(fs::read_to_string(calls).expect("called"), "called\n");
    }

    #[test]
    fn a_record_goes_when_the_command_ends_by_itself() {
        let node = Node::new();
        let stays = |code: i32, signal: i32| {
            let record = node.leave("0");
            forget(&node.attempt(), "0", 0, ExitStatus { code, signal });
            record.exists()
        };
        assert!(!stays(0, 0) && !stays(137, 0));
        assert!(stays(0, libc::SIGKILL) && stays(ENGINE_FAILED, 0));
    }
}
