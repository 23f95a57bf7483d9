//! Makes and removes the folders of a job: its scratch folder, and the folder that holds its versions of private
//! folders. Both are reached by directory descriptors, so that no path can redirect root.

use crate::ownership::give_to_user;
use crate::supervisor::folders::quota::{self, Project};
use crate::supervisor::folders::remove_tree::remove_tree;
use model::amount::Bytes;
use model::id::AttemptId;
use model::site::Site;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, fchmod, fstat, mkdirat};
use nix::unistd::{Uid, UnlinkatFlags, unlinkat};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use wire::order::UserIds;

const FOLDER: OFlag =
    OFlag::O_DIRECTORY.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC).union(OFlag::O_RDONLY);

/// The name of the scratch location among the node's own files.
const OWN_NAME: &str = "scratch";
/// That of the files that are written for runs.
const RUN_FILES_NAME: &str = "run-files";
/// Other users may pass through, but not list it.
const PASSABLE: Mode = Mode::from_bits_truncate(0o711);

/// The folder of one job, inside the folder of its node's jobs.
pub(crate) struct Scratch {
    jobs: OwnedFd,
    name: CString,
    path: PathBuf,
    /// Its quota, where the file system has quotas.
    project: Option<Project>,
}

impl Scratch {
    /// Makes the folder of an attempt. Without an owner it belongs to this process's user, and others may pass through
    /// it.
    pub fn make(
        location: &ScratchLocation,
        attempt: AttemptId,
        owner: Option<&UserIds>,
    ) -> Result<(Scratch, OwnedFd), String> {
        let path = location.path();
        let failed = |e: Errno| format!("cannot make a folder in {}: {}", path.display(), e.desc());
        let jobs = jobs_folder(location).map_err(failed)?;
        let name = name_of(attempt);
        // A folder of that name was left before a reboot and is not this job's.
        if let Err(Errno::EEXIST) = mkdirat(&jobs, name.as_c_str(), Mode::S_IRWXU) {
            discard(jobs.as_fd(), &name).map_err(failed)?;
            mkdirat(&jobs, name.as_c_str(), Mode::S_IRWXU).map_err(failed)?;
        }
        let own = openat(&jobs, name.as_c_str(), FOLDER, Mode::empty()).map_err(failed)?;
        match owner {
            Some(user) => give_to_user(&own, user.uid, user.gid),
            None => fchmod(&own, PASSABLE),
        }
        .map_err(failed)?;
        let path = path.join(name.to_string_lossy().as_ref());
        Ok((Scratch { jobs, name, path, project: None }, own))
    }

    /// Sets a disk quota. A folder of the same job and file system shares its quota. A file system without quotas sets
    /// none; the node reports that.
    pub fn limit(
        &mut self,
        own: &OwnedFd,
        limit: Bytes,
        job: (&str, AttemptId),
        beside: Option<&Scratch>,
    ) -> Result<(), String> {
        let device = |folder: BorrowedFd<'_>| fstat(folder).map(|stat| stat.st_dev);
        let near = beside.filter(|near| device(near.jobs.as_fd()) == device(own.as_fd()));
        let held = match near.and_then(|near| near.project) {
            Some(project) => quota::join(own.as_fd(), project).map(|()| Some(project)),
            None => quota::limit_folder(self.jobs.as_fd(), own.as_fd(), limit, job.0, job.1),
        };
        self.project = held.map_err(|e| {
            format!("cannot hold {} to {} bytes: {}", self.path.display(), limit.0, e.desc())
        })?;
        Ok(())
    }

    /// Writes a new file of the owner's into the folder, which `own` is. Returns its path.
    pub fn write(
        &self,
        own: &OwnedFd,
        name: &str,
        text: &str,
        mode: u32,
        owner: &UserIds,
    ) -> Result<PathBuf, String> {
        let path = self.path.join(name);
        let failed = |e: io::Error| format!("cannot write {}: {e}", path.display());
        // Processes of the same user may be in the folder already: no link of theirs is followed.
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let file = openat(own, name, flags, Mode::from_bits_truncate(0o600));
        let mut file = File::from(file.map_err(|e| failed(e.into()))?);
        fchmod(&file, Mode::from_bits_truncate(mode)).map_err(|e| failed(e.into()))?;
        file.write_all(text.as_bytes()).map_err(failed)?;
        give_to_user(&file, owner.uid, owner.gid).map_err(|e| failed(e.into()))?;
        Ok(path)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the folder if it is empty. Returns whether it is gone.
    pub fn remove_empty(&self) -> bool {
        let removed = unlinkat(&self.jobs, self.name.as_c_str(), UnlinkatFlags::RemoveDir);
        let gone = matches!(removed, Ok(()) | Err(Errno::ENOENT));
        if gone {
            self.release();
        }
        gone
    }

    fn release(&self) {
        if let Some(project) = self.project {
            quota::release(self.jobs.as_fd(), project);
        }
    }

    pub fn remove(&self) -> Result<(), String> {
        let removed = remove_tree(self.jobs.as_fd(), &self.name);
        self.release();
        removed.map_err(|e| format!("cannot remove all of {}: {}", self.path.display(), e.desc()))
    }
}

/// Where the folders of a node's jobs are: a folder of ours inside an existing one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScratchLocation {
    base: PathBuf,
    name: String,
}

impl ScratchLocation {
    /// The location of scratch folders: the site's, or else among the node's own files.
    pub fn scratch(site: &Site, node: &Path, group_root: &str) -> ScratchLocation {
        match &site.scratch {
            Some(base) => ScratchLocation::in_base(base, group_root),
            None => ScratchLocation { base: node.to_path_buf(), name: OWN_NAME.into() },
        }
    }

    /// The location of the files that are written for runs.
    pub fn run_files(node: &Path) -> ScratchLocation {
        ScratchLocation { base: node.to_path_buf(), name: RUN_FILES_NAME.into() }
    }

    /// The location of private folders where the site configures none.
    fn default_private(node: &Path, group_root: &str) -> ScratchLocation {
        ScratchLocation { base: node.to_path_buf(), name: group_root.to_owned() }
    }

    /// A location in a folder that other nodes and clusters may share.
    pub fn in_base(base: &str, group_root: &str) -> ScratchLocation {
        ScratchLocation { base: base.into(), name: group_root.to_owned() }
    }

    fn path(&self) -> PathBuf {
        self.base.join(&self.name)
    }

    /// Removes our folder there if it is empty.
    pub fn remove(&self) {
        // Fails harmlessly if it holds a job's folder or does not exist.
        let _ = std::fs::remove_dir(self.path());
    }
}

fn name_of(attempt: AttemptId) -> CString {
    CString::new(attempt.to_string()).unwrap_or_default()
}

/// Removes a folder by its name, and releases its quota: by the project that the folder says, which its user may have set to that of
/// another's job.
fn discard(jobs: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    let folder = openat(jobs, name, FOLDER, Mode::empty()).ok();
    let project = folder.as_ref().and_then(|folder| quota::project_of(folder.as_fd()));
    drop(folder);
    let removed = remove_tree(jobs, name);
    if let Some(project) = project {
        quota::release_unused(jobs, project);
    }
    removed
}

/// Opens or makes the folder of a node's jobs, to which only this process's user can write.
fn jobs_folder(location: &ScratchLocation) -> Result<OwnedFd, Errno> {
    let name = location.name.as_str();
    let base = open(&location.base, OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    match openat(&base, name, FOLDER, Mode::empty()) {
        Err(Errno::ENOENT) => {}
        found => return found.and_then(check_ours),
    }
    match mkdirat(&base, name, PASSABLE) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(errno) => return Err(errno),
    }
    let made = check_ours(openat(&base, name, FOLDER, Mode::empty())?)?;
    fchmod(&made, PASSABLE)?;
    Ok(made)
}

/// Checks that the folder is ours: in a world-writable base another user may have made it first.
fn check_ours(folder: OwnedFd) -> Result<OwnedFd, Errno> {
    let stat = fstat(&folder)?;
    let strange = stat.st_uid != Uid::effective().as_raw() || stat.st_mode & 0o022 != 0;
    if strange { Err(Errno::EPERM) } else { Ok(folder) }
}

/// Removes the folders that an attempt without its supervisor has left.
pub(crate) fn remove_leftovers(
    locations: &[ScratchLocation],
    attempt: AttemptId,
) -> Result<(), Errno> {
    for location in locations {
        match open(&location.path(), FOLDER, Mode::empty()).and_then(check_ours) {
            Ok(jobs) => discard(jobs.as_fd(), &name_of(attempt))?,
            Err(Errno::ENOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// All locations where an attempt of this node may have a folder.
pub(crate) fn locations(site: &Site, node: &Path, group_root: &str) -> Vec<ScratchLocation> {
    let private = site.private.as_ref().map(|p| ScratchLocation::in_base(&p.base, group_root));
    let own = [
        ScratchLocation::scratch(site, node, group_root),
        ScratchLocation::run_files(node),
        ScratchLocation::default_private(node, group_root),
    ];
    own.into_iter().chain(private).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::tests::{attempt, record};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn scratch_folder_is_empty_at_the_start_and_removed_at_the_end() {
        let base = tempfile::tempdir().expect("a scratch folder");
        let user = record(attempt(7, 1)).launch.user;
        let location = ScratchLocation::scratch(&Site::default(), base.path(), "sluice-n1");
        let make = || Scratch::make(&location, attempt(7, 1), Some(&user));
        let (scratch, _) = make().expect("a folder");
        std::fs::write(scratch.path().join("left"), "x").expect("a file");
        assert!(!scratch.remove_empty());
        let (again, _) = make().expect("a folder");
        let left = std::fs::read_dir(again.path()).expect("the folder").count();
        assert_eq!(left, 0, "what an earlier one left is gone");
        std::fs::write(again.path().join("left"), "x").expect("a file");
        assert_eq!(again.remove(), Ok(()));
        assert!(!again.path().exists() && again.remove_empty());
        location.remove();
        assert!(!location.path().exists(), "nor a folder for them");
    }

    #[test]
    fn folder_that_others_may_write_to_is_refused() {
        let base = tempfile::tempdir().expect("a scratch folder");
        let user = record(attempt(7, 1)).launch.user;
        let site = Site { scratch: Some(base.path().display().to_string()), ..Site::default() };
        let location = ScratchLocation::scratch(&site, Path::new("/nowhere"), "sluice-n1");
        let trap = base.path().join("sluice-n1");
        std::fs::create_dir(&trap).expect("a folder");
        std::fs::set_permissions(&trap, std::fs::Permissions::from_mode(0o777)).expect("a mode");
        let refused = Scratch::make(&location, attempt(7, 1), Some(&user));
        assert!(refused.is_err_and(|why| why.contains("cannot make a folder")));
    }
}
