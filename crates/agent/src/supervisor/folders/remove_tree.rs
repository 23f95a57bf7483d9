//! Removes a folder that a user has filled: by directory descriptors only and never through a symbolic link, whatever
//! its names, depth, modes and mounts.

use crate::privilege;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::mount::{MntFlags, umount2};
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, fchmod, fchmodat, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Folders held open at once. Deeper folders are first moved to the top.
const DEPTH_MAX: usize = 32;
/// Names read from a folder at a time: bounds the memory for a folder of a million files.
const NAMES_MAX: usize = 1024;
/// Rounds over a folder in which nothing can be removed any more.
const BARREN_ROUNDS_MAX: u32 = 2;

const FOLDER: OFlag =
    OFlag::O_DIRECTORY.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC).union(OFlag::O_RDONLY);

/// Removes `name` in `parent` with all its contents. Succeeds if it does not exist.
pub(crate) fn remove_tree(parent: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    match unlinkat(parent, name, UnlinkatFlags::RemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => return Ok(()),
        Err(Errno::ENOTDIR) => return unlinkat(parent, name, UnlinkatFlags::NoRemoveDir),
        Err(_) => {}
    }
    unmount(parent, name);
    let top = enter(parent, name)?;
    allow_changes(top.as_fd());
    let device = fstat(&top)?.st_dev;
    let mut moved = 0;
    let mut work = TreeRemoval { top: top.as_fd(), device, moved: &mut moved, failed: None };
    work.empty(top.as_fd(), 0);
    let failed = work.failed;
    match unlinkat(parent, name, UnlinkatFlags::RemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(errno) => Err(failed.unwrap_or(errno)),
    }
}

struct TreeRemoval<'a> {
    top: BorrowedFd<'a>,
    device: libc::dev_t,
    /// Number of folders moved to the top, from which their new names are made.
    moved: &'a mut u64,
    failed: Option<Errno>,
}

impl TreeRemoval<'_> {
    /// Empties a folder. Entries that cannot be removed stay, and the first error is kept.
    fn empty(&mut self, folder: BorrowedFd<'_>, depth: usize) {
        let mut barren = 0;
        while barren < BARREN_ROUNDS_MAX {
            let names = match names_in(folder) {
                Ok(names) if names.is_empty() => return,
                Ok(names) => names,
                Err(errno) => return self.fail(errno),
            };
            let removed = names.iter().filter(|name| self.remove(folder, name, depth)).count();
            barren = if removed > 0 { 0 } else { barren + 1 };
        }
    }

    /// Removes one entry. Returns whether the folder has one name less.
    fn remove(&mut self, folder: BorrowedFd<'_>, name: &CStr, depth: usize) -> bool {
        let is_folder = match fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFDIR.bits(),
            Err(Errno::ENOENT) => return true,
            Err(_) => false,
        };
        let how = if is_folder { UnlinkatFlags::RemoveDir } else { UnlinkatFlags::NoRemoveDir };
        match unlinkat(folder, name, how) {
            Ok(()) | Err(Errno::ENOENT) => return true,
            Err(Errno::ENOTEMPTY) if is_folder => {}
            Err(Errno::EBUSY) => unmount(folder, name),
            Err(Errno::EPERM) => unlock(folder, name),
            Err(errno) => {
                self.fail(errno);
                return false;
            }
        }
        if is_folder {
            if depth >= DEPTH_MAX {
                return self.raise(folder, name);
            }
            self.descend(folder, name, depth);
        }
        match unlinkat(folder, name, how) {
            Ok(()) | Err(Errno::ENOENT) => true,
            Err(errno) => {
                self.fail(errno);
                false
            }
        }
    }

    fn descend(&mut self, folder: BorrowedFd<'_>, name: &CStr, depth: usize) {
        let inner = match enter(folder, name) {
            Ok(inner) => inner,
            Err(errno) => return self.fail(errno),
        };
        // A mounted file system is not the job's to empty: it is unmounted.
        let foreign = fstat(&inner).map_or(true, |stat| stat.st_dev != self.device);
        if foreign {
            drop(inner);
            return unmount(folder, name);
        }
        self.empty(inner.as_fd(), depth + 1);
    }

    fn raise(&mut self, folder: BorrowedFd<'_>, name: &CStr) -> bool {
        *self.moved += 1;
        let Ok(new) = CString::new(format!(".sluice-{}", self.moved)) else { return false };
        match renameat(folder, name, self.top, new.as_c_str()) {
            Ok(()) => true,
            Err(errno) => {
                self.fail(errno);
                false
            }
        }
    }

    fn fail(&mut self, errno: Errno) {
        self.failed.get_or_insert(errno);
    }
}

/// Opens a folder, also one without permissions.
fn enter(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let opened = openat(parent, name, FOLDER, Mode::empty());
    let folder = match opened {
        Ok(folder) => folder,
        // Only without root: a symbolic link could then lead only where the user may write anyway.
        Err(Errno::EACCES) if !privilege::is_root() => {
            fchmodat(parent, name, Mode::S_IRWXU, FchmodatFlags::FollowSymlink)?;
            openat(parent, name, FOLDER, Mode::empty())?
        }
        Err(errno) => return Err(errno),
    };
    // Root needs no permissions; another user needs those that the job has removed.
    let _ = fchmod(&folder, Mode::S_IRWXU);
    Ok(folder)
}

fn names_in(folder: BorrowedFd<'_>) -> Result<Vec<CString>, Errno> {
    let again = openat(folder, c".", FOLDER, Mode::empty())?;
    let mut names = Vec::new();
    for entry in Dir::from_fd(again)?.iter() {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
        if names.len() >= NAMES_MAX {
            break;
        }
    }
    Ok(names)
}

/// Unmounts all file systems that are mounted there.
fn unmount(folder: BorrowedFd<'_>, name: &CStr) {
    const MOUNTS_MAX: usize = 64;
    let mut path = format!("/proc/self/fd/{}/", folder.as_raw_fd()).into_bytes();
    path.extend_from_slice(name.to_bytes());
    let Ok(path) = CString::new(path) else { return };
    for _ in 0..MOUNTS_MAX {
        if umount2(path.as_c_str(), MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW).is_err() {
            return;
        }
    }
}

/// Clears the immutable and append-only flags of an entry and of its folder.
fn unlock(folder: BorrowedFd<'_>, name: &CStr) {
    allow_changes(folder);
    // Non-blocking, because the name may be a FIFO.
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    if let Ok(file) = openat(folder, name, flags, Mode::empty()) {
        allow_changes(file.as_fd());
    }
}

nix::ioctl_read!(file_flags, b'f', 1, libc::c_long);
nix::ioctl_write_ptr!(set_file_flags, b'f', 2, libc::c_long);

/// The flags of `chattr +i` and `+a`.
const LOCKED: libc::c_long = 0x10 | 0x20;

fn allow_changes(file: BorrowedFd<'_>) {
    let mut flags = 0;
    // SAFETY: both calls read and write the one number that they are given. File systems without flags refuse them.
    unsafe {
        if file_flags(file.as_raw_fd(), &mut flags).is_ok() && flags & LOCKED != 0 {
            let _ = set_file_flags(file.as_raw_fd(), &(flags & !LOCKED));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    fn remove(dir: &Path, name: &str) -> Result<(), Errno> {
        let parent = nix::fcntl::open(dir, FOLDER, Mode::empty()).expect("a folder");
        remove_tree(parent.as_fd(), &CString::new(name).expect("no NUL"))
    }

    #[test]
    fn odd_names_links_and_unreadable_folders_are_removed_but_not_the_links_targets() {
        let dir = tempfile::tempdir().expect("a scratch folder");
        let outside = dir.path().join("outside");
        std::fs::create_dir(&outside).expect("a folder");
        std::fs::write(outside.join("kept"), "x").expect("a file");
        let job = dir.path().join("job");
        std::fs::create_dir_all(job.join("closed/inner")).expect("folders");
        for name in ["-rf", "a b\n", "..x", "\u{1b}[2J"] {
            std::fs::write(job.join(name), "x").expect("a file");
        }
        std::fs::write(job.join(std::ffi::OsStr::from_bytes(b"\xff\xfe")), "x").expect("a file");
        symlink(&outside, job.join("link")).expect("a link");
        symlink("/", job.join("closed/inner/root")).expect("a link");
        let none = std::fs::Permissions::from_mode(0o000);
        std::fs::set_permissions(job.join("closed"), none).expect("a mode");
        assert_eq!(remove(dir.path(), "job"), Ok(()));
        assert!(!job.exists() && outside.join("kept").exists());
        assert_eq!(remove(dir.path(), "job"), Ok(()), "twice is no error");
    }

    #[test]
    fn many_names_and_deep_folders_are_removed() {
        let dir = tempfile::tempdir().expect("a scratch folder");
        let job = dir.path().join("job");
        std::fs::create_dir(&job).expect("a folder");
        for n in 0..NAMES_MAX * 2 + 3 {
            std::fs::write(job.join(n.to_string()), "").expect("a file");
        }
        let mut at = nix::fcntl::open(&job, FOLDER, Mode::empty()).expect("a folder");
        for _ in 0..DEPTH_MAX * 20 {
            nix::sys::stat::mkdirat(&at, "d", Mode::S_IRWXU).expect("a folder");
            at = openat(&at, "d", FOLDER, Mode::empty()).expect("a folder");
        }
        drop(at);
        assert_eq!(remove(dir.path(), "job"), Ok(()));
        assert!(!job.exists());
    }
}
