//! Clones the repository of a run in a container: on the node, whose `git` it takes, since an image need not have any.

use super::{RunWorkspace, clone};
use crate::supervisor::process::credentials::become_user;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::prctl::set_no_new_privs;
use nix::sys::stat::{Mode, umask};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork, pipe2};
use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use wire::order::UserIds;

/// In the run's scratch folder, which no other user can enter and which goes with the run.
const FOLDER: &str = ".sluice-repository";
/// The longest error that is taken from the process that clones.
const REASON_BYTES_MAX: u64 = 4096;

impl RunWorkspace {
    /// Where the node's clone is; `None` if there is no repository, or no scratch folder for it.
    pub fn node_clone(&self, scratch: Option<&str>) -> Option<String> {
        self.workspace.repository.as_ref()?;
        scratch.map(|scratch| format!("{scratch}/{FOLDER}"))
    }

    /// Clones the repository, if there is one, to [`RunWorkspace::node_clone`]. A child of this process does it, in the
    /// same groups: it becomes the user for good, and this process stays root.
    pub fn clone_on_node(
        &self,
        scratch: Option<&str>,
        user: &UserIds,
        environment: &[CString],
    ) -> Result<(), String> {
        let Some(repository) = &self.workspace.repository else { return Ok(()) };
        let folder = self.node_clone(scratch);
        let folder = folder.ok_or("`repos`: there is no scratch folder to clone to")?;
        let failed = |e: Errno| format!("`repos`: cannot clone {}: {}", repository.url, e.desc());
        let (said, say) = pipe2(OFlag::O_CLOEXEC).map_err(failed)?;
        // SAFETY: this process has one thread, and the child ends below.
        match unsafe { fork() }.map_err(failed)? {
            ForkResult::Child => {
                // The container's user need not be the job's, and reads it too.
                umask(Mode::from_bits_truncate(0o022));
                let became = become_user(user).and_then(|()| set_no_new_privs()).map_err(failed);
                let cloned = became.and_then(|()| {
                    let (folder, given) = (Path::new(&folder), self.git_credentials.as_ref());
                    clone::clone(repository, folder, given, environment)
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
