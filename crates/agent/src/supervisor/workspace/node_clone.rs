//! Clones the repository of a run in a container: on the node, whose `git` it takes, since an image need not have any.
//!
//! It is cloned before the container is made, so that a failure costs no pull. Only a repository whose folder may be used
//! as it is (`if_exists: skip`) is cloned afterwards, if that folder is not in the container.

use super::{RunWorkspace, clone};
use crate::supervisor::process::credentials::{as_user, become_user};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::prctl::set_no_new_privs;
use nix::sys::stat::Mode;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork, mkdir, pipe2};
use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use wire::order::UserIds;
use wire::workspace::Repository;

/// In the run's scratch folder, which no other user can enter and which goes with the run.
const FOLDER: &str = ".sluice-repository";
const NO_SCRATCH: &str = "`repos`: there is no scratch folder to clone to";
/// The longest error that is taken from the process that clones.
const REASON_BYTES_MAX: u64 = 4096;

impl RunWorkspace {
    /// Where the node's clone is; `None` if there is no repository, or no scratch folder for it.
    pub fn node_clone(&self, scratch: Option<&str>) -> Option<String> {
        self.workspace.repository.as_ref()?;
        scratch.map(|scratch| format!("{scratch}/{FOLDER}"))
    }

    /// The repository whose folder is looked for in the container before it is cloned.
    pub fn cloned_late(&self) -> Option<&Repository> {
        self.workspace.repository.as_ref().filter(|repository| repository.skip_if_exists)
    }

    /// Clones the repository to [`RunWorkspace::node_clone`], or makes that folder if it is cloned late: the container is
    /// to show it.
    pub fn clone_early(
        &self,
        scratch: Option<&str>,
        user: &UserIds,
        environment: &[CString],
    ) -> Result<(), String> {
        if self.workspace.repository.is_none() {
            return Ok(());
        }
        if self.cloned_late().is_none() {
            return self.clone_on_node(scratch, user, environment, || Ok(()));
        }
        let folder = self.node_clone(scratch).ok_or(NO_SCRATCH)?;
        let made = as_user(user, || mkdir(folder.as_str(), Mode::from_bits_truncate(0o755)));
        made.and_then(|made| made).map_err(|e| format!("`repos`: {folder}: {}", e.desc()))
    }

    /// Clones the repository, if there is one. A child of this process does it, in the same groups: it becomes the user for
    /// good, and this process stays root. `prepare` is called in the child while it is root.
    pub fn clone_on_node(
        &self,
        scratch: Option<&str>,
        user: &UserIds,
        environment: &[CString],
        prepare: impl FnOnce() -> nix::Result<()>,
    ) -> Result<(), String> {
        let Some(repository) = &self.workspace.repository else { return Ok(()) };
        let folder = self.node_clone(scratch).ok_or(NO_SCRATCH)?;
        let failed = |e: Errno| format!("`repos`: cannot clone {}: {}", repository.url, e.desc());
        let (said, say) = pipe2(OFlag::O_CLOEXEC).map_err(failed)?;
        // SAFETY: this process has one thread, and the child ends below.
        match unsafe { fork() }.map_err(failed)? {
            ForkResult::Child => {
                let became = prepare().and_then(|()| become_user(user));
                let became = became.and_then(|()| set_no_new_privs()).map_err(failed);
                let cloned = became.and_then(|()| {
                    clone::clone(repository, Path::new(&folder), self.clone_options(), environment)
                        .map_err(|why| format!("`repos`: {why}"))
                });
                let why = cloned.err();
                let _ = File::from(say).write_all(why.as_deref().unwrap_or_default().as_bytes());
                // SAFETY: ends the child without the exit handlers of its parent.
                unsafe { libc::_exit(i32::from(why.is_some())) }
            }
            ForkResult::Parent { child } => {
                drop(say);
                let mut why = Vec::new();
                let _ = File::from(said).take(REASON_BYTES_MAX).read_to_end(&mut why);
                match waitpid(child, None).map_err(failed)? {
                    WaitStatus::Exited(_, 0) => Ok(()),
                    _ if why.is_empty() => {
                        Err(format!("`repos`: cannot clone {}: git was killed", repository.url))
                    }
                    _ => Err(String::from_utf8_lossy(&why).into_owned()),
                }
            }
        }
    }
}
