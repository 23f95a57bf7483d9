//! Work in the server's folder before the server runs. The folder belongs to the server's user, who may have put links and files
//! there: root reads and mends nothing in it, but has a process of that user do so.

use super::server_user::{self, ServerUser};
use super::state_dir::StateDir;
use crate::command::verb::VerbError;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fchdir, fork};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

/// How much of a refusal is read.
const REFUSAL_BYTES_MAX: u64 = 64 << 10;

/// Does the work with a path of the server's folder, as the server's user if this process is root. The caller must have one
/// thread.
pub fn run(
    state: &StateDir,
    work: impl FnOnce(&Path) -> Result<(), VerbError>,
) -> Result<(), VerbError> {
    let dir = state.server_dir();
    let Some(user) = server_user::server_user(&state.path, &dir)? else { return work(&dir) };
    // As at each start: what root has put there, from a backup for one, is that user's to read.
    state.give_server_dir(user)?;
    let folder = state.trusted()?.folder("server", 0o700).map_err(VerbError::file(&dir))?;
    in_child(&folder, user, work)
}

fn in_child(
    folder: &OwnedFd,
    user: ServerUser,
    work: impl FnOnce(&Path) -> Result<(), VerbError>,
) -> Result<(), VerbError> {
    let failed = |why: String| VerbError::Message(format!("the state cannot be looked at: {why}"));
    let (reader, mut writer) = std::io::pipe().map_err(|e| failed(e.to_string()))?;
    // SAFETY: this process has one thread, so the child finds no lock held by another, and it ends below.
    match unsafe { fork() }.map_err(|e| failed(e.to_string()))? {
        ForkResult::Child => {
            drop(reader);
            // From within the folder, no folder above it need be open to the user.
            let entered = fchdir(folder).map_err(|e| failed(e.to_string()));
            let done = entered
                .and_then(|()| server_user::give_up_root(user))
                .and_then(|()| work(Path::new(".")));
            let code = match done {
                Ok(()) => 0,
                Err(why) => {
                    // A parent that is gone does not read it.
                    let _ = writer.write_all(why.to_string().as_bytes());
                    1
                }
            };
            // SAFETY: ends the child at once; exit handlers are its parent's.
            unsafe { libc::_exit(code) }
        }
        ForkResult::Parent { child } => {
            drop(writer);
            let mut why = String::new();
            let read = reader.take(REFUSAL_BYTES_MAX).read_to_string(&mut why);
            match waitpid(child, None) {
                Ok(WaitStatus::Exited(_, 0)) => Ok(()),
                Ok(WaitStatus::Exited(..)) if read.is_ok() && !why.is_empty() => {
                    Err(VerbError::Message(why))
                }
                ended => Err(failed(format!("its process ended: {ended:?}"))),
            }
        }
    }
}
