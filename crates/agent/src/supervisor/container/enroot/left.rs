//! Removes the containers that Enroot has of an attempt, when the job has ended.

use crate::supervisor::process::credentials::become_user;
use model::container::Mount;
use model::search_path::SYSTEM_PATH;
use nix::sys::prctl::set_no_new_privs;
use serde::{Deserialize, Serialize};
use std::ffi::CString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use wire::order::UserIds;

/// The record of a container that Enroot may have, in the folder of that container.
pub(super) const RECORD: &str = "enroot.json";
/// How long Enroot may take to remove the containers of an attempt.
const TIMEOUT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);
/// Variables of the job that say where its user's containers are. No other one is passed on: some name code that Enroot
/// would run, and the job has ended.
const PLACES: [&str; 8] = [
    "HOME",
    "TMPDIR",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "ENROOT_CACHE_PATH",
    "ENROOT_DATA_PATH",
    "ENROOT_RUNTIME_PATH",
];

/// What is needed to remove a container.
#[derive(Serialize, Deserialize)]
pub(super) struct Left {
    program: PathBuf,
    pub name: String,
    user: UserIds,
    places: Vec<(String, String)>,
    /// The step that made it.
    pub step: String,
    /// What that step asked to have mounted; `None` where an earlier agent has made it.
    #[serde(default)]
    pub mounts: Option<Vec<Mount>>,
}

impl Left {
    pub fn new(
        program: &Path,
        name: &str,
        step: &str,
        mounts: &[Mount],
        user: &UserIds,
        job: &[CString],
    ) -> Left {
        let place = |entry: &CString| {
            let (name, value) = entry.to_str().ok()?.split_once('=')?;
            PLACES.contains(&name).then(|| (name.to_owned(), value.to_owned()))
        };
        Left {
            program: program.to_owned(),
            name: name.to_owned(),
            user: user.clone(),
            places: job.iter().filter_map(place).collect(),
            step: step.to_owned(),
            mounts: Some(mounts.to_vec()),
        }
    }

    /// The record in a container's folder.
    pub fn read(folder: &Path) -> Option<Left> {
        serde_json::from_slice(&fs::read(folder.join(RECORD)).ok()?).ok()
    }

    pub fn write(&self, folder: &Path) -> Result<(), String> {
        let failed = |e: std::io::Error| format!("cannot write the container's record: {e}");
        let text = serde_json::to_vec(self).map_err(|e| failed(e.into()))?;
        fs::write(folder.join(RECORD), text).map_err(failed)
    }

    /// Returns whether Enroot has answered: it has removed the container, or has none.
    fn remove(&self, deadline: Instant) -> bool {
        let mut command = Command::new(&self.program);
        command.args(["remove", "--force", &self.name]).env_clear().env("PATH", SYSTEM_PATH);
        command.envs(self.places.iter().cloned()).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let user = self.user.clone();
        // SAFETY: calls the kernel alone, in a child that was just forked.
        unsafe {
            command.pre_exec(move || {
                become_user(&user).and_then(|()| set_no_new_privs()).map_err(Into::into)
            });
        }
        let Ok(mut child) = command.spawn() else { return false };
        loop {
            match child.try_wait() {
                Ok(Some(_)) => return true,
                Ok(None) if Instant::now() < deadline => std::thread::sleep(POLL),
                _ => {
                    let _ = child.kill();
                    // One that the kernel holds is not waited for: the job would not end.
                    let _ = child.try_wait();
                    return false;
                }
            }
        }
    }
}

/// Removes the containers of an attempt, whose folder this is. Returns whether none is left; else their records stay, and a
/// later call tries again.
pub(in crate::supervisor::container) fn remove(attempt: &Path) -> bool {
    let deadline = Instant::now() + TIMEOUT;
    let mut none_is_left = true;
    for container in fs::read_dir(attempt).into_iter().flatten().flatten() {
        let Some(left) = Left::read(&container.path()) else { continue };
        if left.remove(deadline) {
            let _ = fs::remove_file(container.path().join(RECORD));
        } else {
            none_is_left = false;
        }
    }
    none_is_left
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_record_stays_until_enroot_has_answered_and_gets_no_variable_of_the_job() {
        let node = tempfile::tempdir().expect("scratch folder");
        let container = node.path().join("attempt/0");
        fs::create_dir_all(&container).expect("made");
        fs::set_permissions(node.path(), PermissionsExt::from_mode(0o777)).expect("a mode");
        let program = node.path().join("enroot");
        let own = (nix::unistd::Uid::current().as_raw(), nix::unistd::Gid::current().as_raw());
        let user = UserIds { name: "kim".into(), uid: own.0, gid: own.1, groups: Vec::new() };
        let job = [c"HOME=/home/kim", c"ENROOT_LIBRARY_PATH=/its", c"BASH_ENV=/its"];
        let job: Vec<CString> = job.into_iter().map(Into::into).collect();
        Left::new(&program, "pyxis_7.0", "0", &[], &user, &job).write(&container).expect("written");
        assert!(!remove(&node.path().join("attempt")), "no Enroot");
        let said = node.path().join("said");
        let text = format!(
            "#!/bin/sh\necho \"$* $HOME ${{ENROOT_LIBRARY_PATH-unset}} ${{BASH_ENV-unset}}\" > {}\n",
            said.display()
        );
        fs::write(&program, text).expect("written");
        fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("executable");
        assert!(remove(&node.path().join("attempt")));
        assert!(!container.join(RECORD).exists());
        assert_eq!(
            fs::read_to_string(said).expect("called"),
            "remove --force pyxis_7.0 /home/kim unset unset\n"
        );
    }
}
