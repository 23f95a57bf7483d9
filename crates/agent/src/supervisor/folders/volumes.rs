//! Volumes of a job that runs among the node's own files: each is mounted over a folder, in the job's mount namespace alone.
//!
//! What a program with further rights trusts must not be covered by a user's files, so a volume is shown only over a folder of
//! the user's own, or over an empty one in a place that systems keep for mounts.

use crate::supervisor::mount_calls::{Tree, open_without_links};
use crate::supervisor::process::credentials::as_user;
use crate::volume;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, fstat, mkdirat};
use nix::sys::statfs::{
    CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, FsType, PROC_SUPER_MAGIC, SYSFS_MAGIC, fstatfs,
};
use std::os::fd::OwnedFd;
use std::path::Path;
use wire::order::UserIds;
use wire::volume::LaunchVolume;

/// Folders below which, and over which, a site mounts what it likes: no program with further rights reads its settings there.
const FOR_MOUNTS: [&str; 8] =
    ["/mnt", "/media", "/srv", "/data", "/volumes", "/scratch", "/workspace", "/workflow"];

/// Programs with further rights trust what the kernel shows there, also in folders that belong to a user, as /proc/PID.
const KERNELS_OWN: [FsType; 5] =
    [PROC_SUPER_MAGIC, SYSFS_MAGIC, CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, DEVPTS_SUPER_MAGIC];
const OF_SYSTEM: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];
const DEVPTS_SUPER_MAGIC: FsType = FsType(0x1cd1);

const HANDLE: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY);

/// A volume that is to be shown, taken before anything is mounted over the path to its folder.
pub(super) struct Taken<'a> {
    volume: &'a LaunchVolume,
    tree: Tree,
}

/// Opens the folder of a volume in this mount namespace.
pub(super) fn take<'a>(
    volume: &'a LaunchVolume,
    node: &Path,
    user: &UserIds,
) -> Result<Taken<'a>, String> {
    let failed = |why: String| format!("volume {}: {why}", volume.name);
    let folder = volume::open(node, &volume.folder, user).map_err(failed)?;
    let tree = Tree::copy_alone(&folder).and_then(|tree| {
        tree.restrict(volume.read_only)?;
        Ok(tree)
    });
    let tree = tree.map_err(|e| failed(e.desc().to_owned()))?;
    Ok(Taken { volume, tree })
}

impl Taken<'_> {
    pub fn show(self, user: &UserIds) -> Result<(), String> {
        let Taken { volume, tree } = self;
        let path = &volume.path;
        let failed = |why: &str| format!("volume {} at {path}: {why}", volume.name);
        let target = as_user(user, || open_or_make(Path::new(path))).and_then(|opened| opened);
        let target = target.map_err(|errno| match errno {
            Errno::ELOOP => failed("the path leads through a link"),
            Errno::ENOENT => failed("there is no such folder, and its parent is not there either"),
            errno => failed(errno.desc()),
        })?;
        may_be_covered(&target, Path::new(path), user).map_err(|why| failed(&why))?;
        tree.show_at(target).map_err(|e| failed(e.desc()))
    }
}

/// The folder at the path, made where only its last part is missing. With the user's rights.
fn open_or_make(path: &Path) -> nix::Result<OwnedFd> {
    match open_without_links(path, HANDLE) {
        Err(Errno::ENOENT) => {}
        opened => return opened,
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::ENOENT);
    };
    let parent = open_without_links(parent, HANDLE)?;
    mkdirat(&parent, name, Mode::S_IRWXU)?;
    openat(&parent, name, HANDLE | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())
}

fn may_be_covered(target: &OwnedFd, path: &Path, user: &UserIds) -> Result<(), String> {
    let owner = fstat(target).map_err(|e| e.desc().to_owned())?.st_uid;
    let kind = fstatfs(target).map_err(|e| e.desc().to_owned())?.filesystem_type();
    if KERNELS_OWN.contains(&kind) || OF_SYSTEM.iter().any(|place| path.starts_with(place)) {
        return Err("the kernel's own folders are not covered".to_owned());
    }
    if owner == user.uid {
        return Ok(());
    }
    let is_for_mounts = FOR_MOUNTS.iter().any(|place| path.starts_with(place));
    if is_for_mounts && owner == 0 && is_empty(target).unwrap_or(false) {
        return Ok(());
    }
    Err("without an image a volume is shown over a folder of your own, or over an empty one below \
         /mnt, /media, /srv, /data, /volumes, /scratch, /workspace or /workflow"
        .to_owned())
}

fn is_empty(folder: &OwnedFd) -> nix::Result<bool> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut entries = Dir::from_fd(openat(folder, ".", flags, Mode::empty())?)?;
    let is_own = |name: &std::ffi::CStr| matches!(name.to_bytes(), b"." | b"..");
    Ok(entries.iter().all(|entry| entry.is_ok_and(|entry| is_own(entry.file_name()))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, symlink};

    const STRANGER: u32 = 5;

    fn handle(path: &Path) -> OwnedFd {
        open_without_links(path, HANDLE).expect("opened")
    }

    fn user(uid: u32) -> UserIds {
        UserIds { name: "me".into(), uid, gid: uid, groups: vec![uid] }
    }

    #[test]
    fn folder_of_somebody_else_is_not_covered() {
        if !nix::unistd::Uid::effective().is_root() {
            return;
        }
        let base = tempfile::tempdir().expect("a folder");
        let own = base.path().join("own");
        std::fs::create_dir(&own).expect("made");
        chown(&own, Some(STRANGER), None).expect("given");
        assert!(may_be_covered(&handle(&own), &own, &user(STRANGER)).is_ok());
        for path in ["/etc", "/usr/lib", "/", "/var/tmp", "/root"] {
            let path = Path::new(path);
            let refused = may_be_covered(&handle(path), path, &user(STRANGER));
            assert!(refused.is_err(), "{}", path.display());
        }
        assert!(may_be_covered(&handle(base.path()), base.path(), &user(STRANGER)).is_err());
        // Its owner is the process's user.
        let process = Path::new("/proc/self").canonicalize().expect("a path");
        let refused = may_be_covered(&handle(&process), &process, &user(0));
        assert!(refused.is_err_and(|why| why.contains("the kernel's own")));
        let elsewhere = may_be_covered(&handle(&process), Path::new("/mnt/x"), &user(0));
        assert!(elsewhere.is_err_and(|why| why.contains("the kernel's own")));
    }

    #[test]
    fn path_through_a_link_is_refused_and_a_last_part_is_made() {
        let base = tempfile::tempdir().expect("a folder");
        let base = base.path().canonicalize().expect("a path");
        std::fs::create_dir(base.join("real")).expect("made");
        symlink("real", base.join("link")).expect("a link");
        for path in ["link", "link/inside"] {
            let refused = open_or_make(&base.join(path)).map(drop);
            assert_eq!(refused, Err(Errno::ELOOP), "{path}");
        }
        assert!(!base.join("real/inside").exists());
        assert!(open_or_make(&base.join("real/inside")).is_ok());
        assert!(base.join("real/inside").is_dir());
        assert_eq!(open_or_make(&base.join("none/inside")).map(drop), Err(Errno::ENOENT));
    }
}
