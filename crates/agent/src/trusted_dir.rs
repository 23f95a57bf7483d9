//! Folders in which nobody but root and this process's user can plant a file or a link. Root makes and opens its files
//! only there: a path is walked one part at a time by handle, and a part that another user made, owns or could replace
//! is refused.

use crate::supervisor::folders::remove_tree::remove_tree;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, readlinkat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, mkdtemp, unlinkat};
use std::collections::VecDeque;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Links on one path; more is a circle.
const LINKS_MAX: usize = 40;
/// The mode of folders that are made on the way.
const PASSABLE: Mode = Mode::from_bits_truncate(0o755);
const HANDLE: OFlag =
    OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);
const READABLE: OFlag =
    OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

const STICKY: u32 = libc::S_ISVTX;

/// An open folder that nobody else can write to.
#[derive(Debug)]
pub struct TrustedDir {
    fd: OwnedFd,
    path: PathBuf,
}

impl TrustedDir {
    /// Opens the folder, and makes what is missing of its path with mode 755. An empty folder of this process's user that
    /// is open to others (a fresh tmpfs is) gets that mode too.
    pub fn make(path: &Path) -> io::Result<Self> {
        walk(path, true)
    }

    /// Opens the folder, which must exist.
    pub fn open(path: &Path) -> io::Result<Self> {
        walk(path, false)
    }

    /// Makes a folder with mode 700 and a name that cannot be guessed, in the folder for temporary files.
    pub fn make_temporary(prefix: &str) -> io::Result<Self> {
        Self::open(&mkdtemp(&std::env::temp_dir().join(format!("{prefix}XXXXXX")))?)
    }

    /// The path, without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        Ok(fchmod(&self.fd, Mode::from_bits_truncate(mode))?)
    }

    /// Opens a folder in this one, made with this mode if it is missing. The folder may be another user's.
    pub fn folder(&self, name: &str, mode: u32) -> io::Result<OwnedFd> {
        let mode = Mode::from_bits_truncate(mode);
        match mkdirat(&self.fd, name, mode) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        let folder = openat(&self.fd, name, READABLE, Mode::empty())?;
        fchmod(&folder, mode)?;
        Ok(folder)
    }

    /// Makes a file that does not exist yet.
    pub fn create_new(&self, name: impl AsRef<Path>, mode: u32) -> io::Result<File> {
        self.open_file(name.as_ref(), OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL, mode)
    }

    /// Opens a file to append to and to read, and gives it this mode.
    pub fn append(&self, name: &str, mode: u32) -> io::Result<File> {
        let file = self.open_file(
            name.as_ref(),
            OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_APPEND | OFlag::O_NONBLOCK,
            mode,
        )?;
        if fstat(&file)?.st_uid == Uid::effective().as_raw() {
            fchmod(&file, Mode::from_bits_truncate(mode))?;
        }
        Ok(file)
    }

    /// Writes a whole file: who reads it finds the old or the new content, never a part.
    pub fn replace(&self, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        let fresh = format!("{name}.new");
        // A crash may have left one.
        match unlinkat(&self.fd, fresh.as_str(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mut file = self.create_new(&fresh, mode)?;
        file.write_all(content)?;
        Ok(renameat(&self.fd, fresh.as_str(), &self.fd, name)?)
    }

    /// Removes the folder with all that is in it, by handle. Nothing is removed where its name is another's by now.
    pub fn remove(self) -> io::Result<()> {
        let parent = openat(&self.fd, "..", HANDLE, Mode::empty())?;
        let name = self.path.file_name().ok_or(Errno::EBUSY)?;
        let name = CString::new(name.as_bytes())?;
        let named = fstatat(&parent, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW)?;
        let own = fstat(&self.fd)?;
        if (own.st_dev, own.st_ino) != (named.st_dev, named.st_ino) {
            return Err(refused(format!("{} was replaced", self.path.display())));
        }
        Ok(remove_tree(parent.as_fd(), &name)?)
    }

    fn open_file(&self, name: &Path, how: OFlag, mode: u32) -> io::Result<File> {
        let how = how | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(openat(&self.fd, name, how, Mode::from_bits_truncate(mode))?.into())
    }
}

impl AsFd for TrustedDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn walk(path: &Path, make: bool) -> io::Result<TrustedDir> {
    // The folder that this process was started in may be gone: it is asked for only where it matters.
    let mut left =
        if path.is_absolute() { parts(path) } else { parts(&std::env::current_dir()?.join(path)) };
    let mut dir = root()?;
    let mut links = 0;
    while let Some(part) = left.pop_front() {
        if part == ".." {
            dir = TrustedDir {
                fd: openat(&dir.fd, "..", HANDLE, Mode::empty())?,
                path: dir.path.parent().unwrap_or(Path::new("/")).to_path_buf(),
            };
            continue;
        }
        let here = dir.path.join(&part);
        match enter(&dir, &part, make) {
            Ok(fd) => {
                dir = TrustedDir { fd, path: here };
                check(&fstat(&dir.fd)?, &dir.path)?;
            }
            Err(Errno::ENOTDIR | Errno::ELOOP) => {
                let target = trusted_link(&dir, &part, &here)?;
                links += 1;
                if links > LINKS_MAX {
                    return Err(Errno::ELOOP.into());
                }
                if target.is_absolute() {
                    dir = root()?;
                }
                parts(&target).into_iter().rev().for_each(|part| left.push_front(part));
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    dir.fd = openat(&dir.fd, ".", READABLE, Mode::empty())?;
    let stat = fstat(&dir.fd)?;
    if writable_by_others(&stat) && !(make && close_if_empty(&dir.fd, &stat)?) {
        return Err(refused(format!("{} is writable by other users", dir.path.display())));
    }
    Ok(dir)
}

/// Takes the others' right to write from an empty folder of ours. Looks again afterwards: somebody may have been faster.
fn close_if_empty(fd: &OwnedFd, stat: &FileStat) -> io::Result<bool> {
    if stat.st_uid != Uid::effective().as_raw() || !is_empty(fd)? {
        return Ok(false);
    }
    fchmod(fd, PASSABLE)?;
    is_empty(fd)
}

fn is_empty(fd: &OwnedFd) -> io::Result<bool> {
    let mut entries = Dir::from_fd(openat(fd, ".", READABLE, Mode::empty())?)?;
    let named = |entry: &nix::dir::Entry| ![c".", c".."].contains(&entry.file_name());
    Ok(entries.iter().all(|entry| entry.is_ok_and(|entry| !named(&entry))))
}

fn root() -> io::Result<TrustedDir> {
    let fd = nix::fcntl::open("/", HANDLE, Mode::empty())?;
    Ok(TrustedDir { fd, path: PathBuf::from("/") })
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let names = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    names.collect()
}

fn enter(dir: &TrustedDir, part: &OsStr, make: bool) -> Result<OwnedFd, Errno> {
    match openat(&dir.fd, part, HANDLE, Mode::empty()) {
        Err(Errno::ENOENT) if make => {}
        opened => return opened,
    }
    match mkdirat(&dir.fd, part, PASSABLE) {
        Ok(()) | Err(Errno::EEXIST) => openat(&dir.fd, part, HANDLE, Mode::empty()),
        Err(errno) => Err(errno),
    }
}

/// The target of a link that only a trusted user can have made.
fn trusted_link(dir: &TrustedDir, part: &OsStr, here: &Path) -> io::Result<PathBuf> {
    let stat = fstatat(&dir.fd, part, AtFlags::AT_SYMLINK_NOFOLLOW)?;
    if stat.st_mode & SFlag::S_IFMT.bits() != SFlag::S_IFLNK.bits() {
        return Err(Errno::ENOTDIR.into());
    }
    if !trusted_owner(stat.st_uid) {
        return Err(refused(format!("{} is a link of user {}", here.display(), stat.st_uid)));
    }
    Ok(readlinkat(&dir.fd, part)?.into())
}

/// Refuses a folder whose entries another user could replace. In a folder with the sticky bit only an entry's owner can
/// replace it, and the owner of the next part is checked as well.
fn check(stat: &FileStat, path: &Path) -> io::Result<()> {
    let shown = path.display();
    if !trusted_owner(stat.st_uid) {
        return Err(refused(format!("{shown} belongs to user {}", stat.st_uid)));
    }
    if writable_by_others(stat) && stat.st_mode & STICKY == 0 {
        return Err(refused(format!("{shown} is writable by other users")));
    }
    Ok(())
}

/// This process's own group may write: many systems give each user a group of his own.
fn writable_by_others(stat: &FileStat) -> bool {
    let group = stat.st_mode & 0o020 != 0 && stat.st_gid != Gid::effective().as_raw();
    group || stat.st_mode & 0o002 != 0
}

fn trusted_owner(uid: u32) -> bool {
    uid == 0 || uid == Uid::effective().as_raw() || Some(uid) == unmapped_owner()
}

/// In a user namespace the machine's own folders belong to a user without a number there. Nobody inside can act as it.
fn unmapped_owner() -> Option<u32> {
    let map = std::fs::read_to_string("/proc/self/uid_map").ok()?;
    let mut words = map.split_whitespace();
    let whole =
        (words.next(), words.next(), words.next()) == (Some("0"), Some("0"), Some("4294967295"));
    if whole {
        return None;
    }
    std::fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?.trim().parse().ok()
}

fn refused(why: String) -> io::Error {
    let advice = "expected a folder that only root and the user of this process can change";
    io::Error::new(io::ErrorKind::PermissionDenied, format!("{why}; {advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// An account that every Debian system has.
    const STRANGER: u32 = 5;

    fn refusal(path: &Path) -> String {
        TrustedDir::make(path).expect_err("refused").to_string()
    }

    #[test]
    fn missing_parts_are_made_and_own_links_followed() {
        let base = tempfile::tempdir().expect("a folder");
        let real = base.path().join("real");
        symlink("real", base.path().join("link")).expect("a link");
        let made = TrustedDir::make(&real.join("a/b")).expect("made");
        assert_eq!(made.path(), real.join("a/b").canonicalize().expect("it exists"));
        let through = TrustedDir::open(&base.path().join("link/a/../a/b")).expect("opened");
        assert_eq!(through.path(), made.path());
        assert!(TrustedDir::open(&base.path().join("none")).is_err());
        symlink("circle", base.path().join("circle")).expect("a link");
        assert!(TrustedDir::open(&base.path().join("circle")).is_err());
    }

    #[test]
    fn folder_that_others_may_write_to_is_refused_as_a_place_for_files() {
        let base = tempfile::tempdir().expect("a folder");
        for (mode, below) in [(0o1777, true), (0o777, false)] {
            let open = base.path().join(format!("{mode:o}"));
            std::fs::create_dir(&open).expect("a folder");
            std::fs::set_permissions(&open, std::fs::Permissions::from_mode(mode)).expect("a mode");
            std::fs::write(open.join("planted"), "").expect("a file");
            assert!(refusal(&open).contains("is writable by other users; expected"));
            assert_eq!(TrustedDir::make(&open.join("own")).is_ok(), below, "{mode:o}");
        }
    }

    #[test]
    fn empty_folder_of_our_own_is_closed_to_others_before_it_is_used() {
        let base = tempfile::tempdir().expect("a folder");
        std::fs::set_permissions(base.path(), std::fs::Permissions::from_mode(0o1777))
            .expect("a mode");
        assert!(TrustedDir::open(base.path()).is_err(), "only who makes a folder may change it");
        TrustedDir::make(base.path()).expect("made");
        let mode = std::fs::metadata(base.path()).expect("there").permissions().mode();
        assert_eq!(mode & 0o7777, 0o755);
    }

    #[test]
    fn folder_or_link_of_another_user_is_refused() {
        if !Uid::effective().is_root() {
            return;
        }
        let base = tempfile::tempdir().expect("a folder");
        let (theirs, link) = (base.path().join("theirs"), base.path().join("link"));
        std::fs::create_dir(&theirs).expect("a folder");
        std::os::unix::fs::chown(&theirs, Some(STRANGER), None).expect("given");
        symlink(base.path(), &link).expect("a link");
        std::os::unix::fs::lchown(&link, Some(STRANGER), None).expect("given");
        assert!(refusal(&theirs.join("state")).contains("theirs belongs to user 5; expected"));
        assert!(refusal(&link.join("state")).contains("link is a link of user 5; expected"));
        assert!(!theirs.join("state").exists() && !base.path().join("state").exists());
    }

    #[test]
    fn files_are_never_made_or_opened_through_a_link() {
        let base = tempfile::tempdir().expect("a folder");
        let target = base.path().join("target");
        std::fs::write(&target, "kept").expect("a file");
        let dir = TrustedDir::make(&base.path().join("dir")).expect("made");
        for name in ["log", "file", "file.new"] {
            symlink(&target, dir.path().join(name)).expect("a link");
        }
        assert!(dir.append("log", 0o640).is_err());
        assert!(dir.create_new("file", 0o600).is_err());
        dir.replace("file", 0o600, b"new").expect("the link is replaced");
        assert_eq!(std::fs::read_to_string(dir.path().join("file")).expect("read"), "new");
        assert_eq!(std::fs::read_to_string(&target).expect("read"), "kept");
    }

    #[test]
    fn temporary_folders_are_closed_and_their_names_differ() {
        let [one, other] =
            [(); 2].map(|()| TrustedDir::make_temporary("sluice-test-").expect("made"));
        let mode = std::fs::metadata(one.path()).expect("it exists").permissions().mode();
        assert!(mode & 0o777 == 0o700 && one.path() != other.path());
        for dir in [one, other] {
            dir.remove().expect("removed");
        }
    }

    #[test]
    fn folder_is_removed_whole_and_no_other_of_its_name() {
        let base = tempfile::tempdir().expect("a folder");
        let (kept, path) = (base.path().join("kept"), base.path().join("dir"));
        std::fs::create_dir(&kept).expect("a folder");
        let dir = TrustedDir::make(&path).expect("made");
        std::fs::create_dir_all(path.join("a/b")).expect("folders");
        std::fs::write(path.join("a/b/file"), "").expect("a file");
        symlink(&kept, path.join("a/link")).expect("a link");
        dir.remove().expect("removed");
        assert!(!path.exists() && kept.exists());
        let dir = TrustedDir::make(&path).expect("made");
        std::fs::rename(&path, base.path().join("moved")).expect("moved");
        std::fs::create_dir(&path).expect("another");
        assert!(dir.remove().expect_err("refused").to_string().contains("was replaced"));
        assert!(path.exists() && base.path().join("moved").exists());
    }
}
