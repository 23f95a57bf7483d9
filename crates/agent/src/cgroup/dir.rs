//! One directory of a control-group file system, held by descriptor.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::sys::stat::{Mode, fstat, mkdirat};
use nix::unistd::{AccessFlags, UnlinkatFlags, faccessat, unlinkat};

use super::error::CgroupError;
use crate::kernel_file;

/// More than any job's `cgroup.procs` should hold; a longer list is processed in rounds.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Levels of groups below a job's. A container runtime nests a few; more is an error.
const DEPTH_MAX: usize = 16;
/// Groups below one group. More is an error, so that none is silently left out.
const CHILDREN_MAX: usize = 65_536;
const REMOVE_TRIES_MAX: u32 = 100;

const DIRECTORY: OFlag =
    OFlag::O_DIRECTORY.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC).union(OFlag::O_RDONLY);

pub(super) struct GroupDir {
    fd: OwnedFd,
    /// For messages only; never opened again.
    path: Box<str>,
}

impl GroupDir {
    pub fn open(path: &Path) -> Result<GroupDir, CgroupError> {
        let text = path.to_string_lossy();
        let fd = open(path, DIRECTORY, Mode::empty())
            .map_err(|errno| CgroupError::io("open", text.as_ref(), errno))?;
        Ok(GroupDir { fd, path: text.into() })
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    pub fn file_path(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }

    pub fn open_child(&self, name: &str) -> Result<GroupDir, CgroupError> {
        let fd = openat(&self.fd, name, DIRECTORY, Mode::empty())
            .map_err(|errno| CgroupError::io("open", self.file_path(name), errno))?;
        Ok(GroupDir { fd, path: self.file_path(name).into() })
    }

    pub fn make_child(&self, name: &str) -> Result<GroupDir, CgroupError> {
        match mkdirat(&self.fd, name, Mode::from_bits_truncate(0o755)) {
            Ok(()) => self.open_child(name),
            Err(Errno::EEXIST) => Err(CgroupError::Exists { path: self.file_path(name) }),
            Err(errno) => Err(CgroupError::io("create", self.file_path(name), errno)),
        }
    }

    pub fn make_or_open_child(&self, name: &str) -> Result<GroupDir, CgroupError> {
        match self.make_child(name) {
            Err(CgroupError::Exists { .. }) => self.open_child(name),
            made => made,
        }
    }

    pub fn has(&self, file: &str) -> bool {
        faccessat(&self.fd, file, AccessFlags::F_OK, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok()
    }

    pub fn check_writable(&self, file: &str) -> Result<(), CgroupError> {
        faccessat(&self.fd, file, AccessFlags::W_OK, AtFlags::AT_EACCESS)
            .map_err(|errno| CgroupError::io("write", self.file_path(file), errno))
    }

    pub fn open_file(&self, file: &str, access: OFlag) -> Result<OwnedFd, CgroupError> {
        openat(&self.fd, file, access | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())
            .map_err(|errno| CgroupError::io("open", self.file_path(file), errno))
    }

    pub fn write(&self, file: &str, value: &str) -> Result<(), CgroupError> {
        let mut handle = File::from(self.open_file(file, OFlag::O_WRONLY)?);
        // Must be one write call: the kernel parses each write separately.
        handle.write_all(value.as_bytes()).map_err(|source| CgroupError::Write {
            path: self.file_path(file),
            value: value.to_owned(),
            source,
        })
    }

    pub fn read(&self, file: &str) -> Result<String, CgroupError> {
        let handle = File::from(self.open_file(file, OFlag::O_RDONLY)?);
        let mut text = kernel_file::read(handle, FILE_BYTES_MAX)
            .map_err(|source| CgroupError::io("read", self.file_path(file), source))?;
        if text.len() as u64 == FILE_BYTES_MAX {
            // A pid cut in half would be another process's.
            text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
        }
        Ok(text)
    }

    /// A file that holds one number; `max` and unreadable files are no number.
    pub fn read_number(&self, file: &str) -> Option<u64> {
        self.read(file).ok()?.trim().parse().ok()
    }

    /// The value after `key` in a file of `key value` lines.
    pub fn read_keyed(&self, file: &str, key: &str) -> Option<u64> {
        keyed_value(&self.read(file).ok()?, key)
    }

    /// Names of the groups directly below.
    pub fn children(&self) -> Result<Vec<String>, CgroupError> {
        // The link count of a kernfs directory is two plus its subdirectories: one call instead of a listing.
        if fstat(&self.fd).is_ok_and(|status| status.st_nlink == 2) {
            return Ok(Vec::new());
        }
        let failed = |errno: Errno| CgroupError::io("list", self.path(), errno);
        let mut listing = Dir::openat(&self.fd, ".", DIRECTORY, Mode::empty()).map_err(failed)?;
        let mut names = Vec::new();
        for entry in listing.iter() {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy();
            if entry.file_type() != Some(Type::Directory) || name == "." || name == ".." {
                continue;
            }
            if names.len() == CHILDREN_MAX {
                return Err(failed(Errno::E2BIG));
            }
            names.push(name.into_owned());
        }
        Ok(names)
    }

    /// Calls `visit` for this group and every group below it; a group that is removed meanwhile is skipped.
    pub fn walk(&self, visit: &mut GroupVisitor) -> Result<(), CgroupError> {
        self.walk_to(DEPTH_MAX, visit)
    }

    fn walk_to(&self, depth: usize, visit: &mut GroupVisitor) -> Result<(), CgroupError> {
        unless_gone(visit(self))?;
        let children = self.children()?;
        if depth == 0 && !children.is_empty() {
            return Err(CgroupError::io("walk below", self.path(), Errno::ELOOP));
        }
        for name in children {
            if let Some(child) = unless_gone(self.open_child(&name))? {
                child.walk_to(depth - 1, visit)?;
            }
        }
        Ok(())
    }

    /// The processes of this group and of all groups below it.
    pub fn pids(&self) -> Result<Vec<i32>, CgroupError> {
        let mut pids = Vec::new();
        self.walk(&mut |group| {
            let text = group.read("cgroup.procs")?;
            let listed = text.lines().filter_map(|line| line.parse::<i32>().ok());
            // A process of another pid namespace shows as 0, which kill(2) takes for "my own process group".
            pids.extend(listed.filter(|pid| *pid > 0));
            Ok(())
        })?;
        Ok(pids)
    }

    /// Removes the empty group `name` with all groups below it. Succeeds if it does not exist.
    pub fn remove_child(&self, name: &str) -> Result<(), CgroupError> {
        let mut wait = Duration::from_micros(200);
        for _ in 0..REMOVE_TRIES_MAX {
            match unlinkat(&self.fd, name, UnlinkatFlags::RemoveDir) {
                Ok(()) | Err(Errno::ENOENT) => return Ok(()),
                Err(Errno::EBUSY) => {}
                Err(errno) => return Err(CgroupError::io("remove", self.file_path(name), errno)),
            }
            // Busy: either it has children, or its last process is still leaving the kernel.
            let Some(child) = unless_gone(self.open_child(name))? else { return Ok(()) };
            let below = child.children()?;
            for grandchild in &below {
                child.remove_child(grandchild)?;
            }
            if !child.pids()?.is_empty() {
                break;
            }
            if below.is_empty() {
                thread::sleep(wait);
                wait = (wait * 2).min(Duration::from_millis(20));
            }
        }
        Err(CgroupError::io("remove", self.file_path(name), Errno::EBUSY))
    }

    /// For sharing between a group and its children.
    pub fn shared(self) -> Arc<GroupDir> {
        Arc::new(self)
    }
}

type GroupVisitor<'a> = dyn FnMut(&GroupDir) -> Result<(), CgroupError> + 'a;

/// `None` if the group was removed meanwhile, or is threaded and lists its processes in the group above. Any other
/// error is returned: an unreadable group must not count as empty.
pub(super) fn unless_gone<T>(result: Result<T, CgroupError>) -> Result<Option<T>, CgroupError> {
    const GONE: [Errno; 3] = [Errno::ENOENT, Errno::ENODEV, Errno::EOPNOTSUPP];
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error)
            if error.raw_os_error().is_some_and(|raw| GONE.contains(&Errno::from_raw(raw))) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

pub(super) fn keyed_value(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Checks that a name is one path component, cannot lead upwards, and is not a kernel file such as `cgroup.procs`.
pub(super) fn check_name(name: &str) -> Result<(), CgroupError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    let good = (1..=200).contains(&name.len())
        && name.bytes().all(plain)
        && !name.starts_with('.')
        && !name.starts_with("cgroup.");
    if good { Ok(()) } else { Err(CgroupError::Name { name: name.to_owned() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_name_is_one_safe_path_component() {
        for good in ["job_12_1", "sluice", "step-0", "a.b", &"x".repeat(200)] {
            assert!(check_name(good).is_ok(), "{good:?}");
        }
        let long = "x".repeat(201);
        for bad in ["", ".", "..", "a/b", "/a", "cgroup.procs", "a\0b", "a\nb", "ä", &long] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn keyed_values_match_whole_keys() {
        let text = "oom 1\noom_kill 3\noom_group_kill 0\n";
        for (key, value) in [("oom", Some(1)), ("oom_kill", Some(3)), ("kill", None)] {
            assert_eq!(keyed_value(text, key), value, "{key}");
        }
    }

    #[test]
    fn only_a_removed_group_counts_as_gone() {
        let failed = |errno| Err::<(), _>(CgroupError::io("read", "x", errno));
        for errno in [Errno::ENOENT, Errno::ENODEV, Errno::EOPNOTSUPP] {
            assert!(matches!(unless_gone(failed(errno)), Ok(None)), "{errno}");
        }
        for errno in [Errno::EMFILE, Errno::ENOMEM, Errno::EACCES] {
            assert!(unless_gone(failed(errno)).is_err(), "{errno}");
        }
    }

    #[test]
    fn removed_group_may_be_removed_again() {
        let scratch = tempfile::tempdir().expect("scratch folder");
        let root = GroupDir::open(scratch.path()).expect("open");
        let job = root.make_child("job").expect("make");
        assert!(matches!(root.make_child("job"), Err(CgroupError::Exists { .. })));
        job.write("cgroup.procs", "").expect_err("a group has only the files the kernel gives it");
        root.remove_child("job").expect("remove");
        root.remove_child("job").expect("already gone is removed");
        assert_eq!(root.children().expect("list"), Vec::<String>::new());
    }
}
