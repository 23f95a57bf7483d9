//! What is left of the containers of an attempt when their processes have ended: OOM kills that an engine's group counted,
//! containers that an engine did not remove, and folders.

use super::assembly::{self, Assembled};
use super::engine::left;
use super::holder::close_all_but;
use super::{FOLDER, enroot, group_trees, save};
use crate::supervisor::folders::remove_tree::remove_tree;
use model::id::AttemptId;
use model::run::ExitStatus;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::{ForkResult, Pid, fork};
use std::ffi::CString;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The file beside the containers of an attempt that counts the OOM kills of one process. An engine removes the group
/// in which the kernel counted them.
pub(super) fn oom_mark(step: &str, process: u32) -> String {
    format!("oom-{step}-{process}")
}

/// The OOM kills of a step that engines have hidden. `folder` is that of the attempt's containers.
pub(crate) fn oom_kills(folder: &Path, step: &str) -> u64 {
    let of_step = oom_mark(step, 0);
    let of_step = of_step.trim_end_matches('0');
    let marks = fs::read_dir(folder).into_iter().flatten().flatten();
    let marks = marks.filter(|mark| mark.file_name().as_bytes().starts_with(of_step.as_bytes()));
    marks.filter_map(|mark| fs::read_to_string(mark.path()).ok()?.parse::<u64>().ok()).sum()
}

/// Called when a process in a container has ended; `folder` is that of the attempt's containers. Until then its engine may
/// have to be told to remove the container.
pub(crate) fn on_process_ended(folder: &Path, step: &str, process: u32, exit: ExitStatus) {
    left::forget(folder, step, process, exit);
}

/// The process that holds the namespaces of the container that a step of this name has made; `attempt` is the folder of the
/// attempt's containers.
pub(crate) fn holder_of(attempt: &Path, step: &str) -> Option<i32> {
    Assembled::read(&attempt.join(step)).map(|there| there.holder.pid)
}

/// Removes the files of the container that a step of this name has made by an OCI runtime, in a child process, because that
/// may take long. `None` if there is none: what an engine or Enroot has is theirs to remove. What cannot be removed now is
/// removed with the attempt's other folders.
pub(crate) fn begin_removal(attempt: &Path, step: &str) -> Option<Pid> {
    let folder = attempt.join(step);
    if !assembly::is_made_in(&folder) {
        return None;
    }
    // SAFETY: a supervisor has one thread, and the child ends below.
    match unsafe { fork() }.ok()? {
        ForkResult::Child => {
            // Clients await the end of connections that it has inherited.
            close_all_but(std::iter::empty());
            remove_folder(&folder);
            // SAFETY: ends the child without the exit handlers of its parent.
            unsafe { libc::_exit(0) }
        }
        ForkResult::Parent { child } => Some(child),
    }
}

/// Removes the folders of an attempt's containers; `groups` are those of the job.
pub(crate) fn remove(folder: &Path, groups: &[String]) {
    let none_is_left = left::remove(folder) & enroot::left::remove(folder);
    save::remove_partial_files(folder);
    group_trees::remove_foreign(groups);
    if none_is_left {
        remove_folder(folder);
    }
}

/// The folders of containers of attempts that are not in `held`: an engine did not answer when they ended.
pub(crate) fn folders_of_others(node: &Path, held: &[AttemptId]) -> Vec<PathBuf> {
    let held: Vec<PathBuf> =
        held.iter().map(|one| node.join(FOLDER).join(one.to_string())).collect();
    let entries = fs::read_dir(node.join(FOLDER)).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).filter(|path| !held.contains(path)).collect()
}

/// Removes what is left of the containers of an attempt whose supervisor was killed; `groups` are those of the job.
pub(crate) fn remove_leftovers(node: &Path, attempt: AttemptId, groups: &[String]) {
    let folder = node.join(FOLDER).join(attempt.to_string());
    if folder.exists() {
        remove(&folder, groups);
    }
}

/// What cannot be removed now is removed when the next agent starts ([`folders_of_others`]).
fn remove_folder(folder: &Path) {
    let name = folder.file_name().and_then(|name| CString::new(name.as_bytes()).ok());
    let (Some(above), Some(name)) = (folder.parent(), name) else { return };
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    if let Ok(above) = open(above, flags, Mode::empty()) {
        let _ = remove_tree(above.as_fd(), &name);
    }
}
