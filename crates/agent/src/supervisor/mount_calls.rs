//! System calls for mounts by handle, which `nix` does not have.

use crate::supervisor::process::credentials::as_user;
use model::os_text;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use wire::order::UserIds;

const AT_RECURSIVE: libc::c_uint = 0x8000;
const OPEN_TREE_CLONE: libc::c_uint = 1;
const MOVE_MOUNT_FROM_EMPTY: libc::c_uint = 0x04;
const MOVE_MOUNT_TO_EMPTY: libc::c_uint = 0x40;
const MOUNT_ATTR_RDONLY: u64 = 1;
const MOUNT_ATTR_NOSUID: u64 = 2;
const MOUNT_ATTR_NODEV: u64 = 4;
const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;
const RESOLVE_NO_XDEV: u64 = 0x01;
const RESOLVE_IN_ROOT: u64 = 0x10;
const RESOLVE_NO_MAGICLINKS: u64 = 0x02;
const RESOLVE_NO_SYMLINKS: u64 = 0x04;
/// Parts of one path.
const DEPTH_MAX: usize = 64;

#[repr(C)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

#[repr(C)]
#[derive(Default)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns_fd: u64,
}

fn fd_of(result: libc::c_long) -> nix::Result<OwnedFd> {
    let fd = Errno::result(result)? as i32;
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A path as the kernel takes it; its text may stand for other bytes.
fn path_bytes(path: &str) -> nix::Result<CString> {
    CString::new(os_text::to_bytes(path)).map_err(|_| Errno::EINVAL)
}

/// Opens a path as a process whose root is `root` would: no link leads out of it.
pub(crate) fn open_in_root(root: impl AsFd, path: &str, flags: OFlag) -> nix::Result<OwnedFd> {
    open_in_root_with(root.as_fd(), path, flags, 0)
}

/// With whose rights a path below a container's root is looked up: root tells nobody which files the node has.
#[derive(Clone, Copy)]
pub(crate) enum Rights<'a> {
    /// Root's: no file of the node can be on the way.
    Root,
    /// The user's, and root's where the way stays in the container's own files, which are an image's. What is mounted in them
    /// is the node's.
    UserOrImage(&'a UserIds),
    /// The user's alone: the container's own files are a folder of the node.
    User(&'a UserIds),
}

impl<'a> Rights<'a> {
    /// In a container in which nothing is mounted yet that a user named. `of_folder`: its own files are a folder of the node.
    pub fn before_mounts(user: &'a UserIds, of_folder: bool) -> Self {
        if of_folder { Rights::User(user) } else { Rights::Root }
    }

    /// In a container in which folders of the node may be mounted.
    pub fn among_mounts(user: &'a UserIds, of_folder: bool) -> Self {
        if of_folder { Rights::User(user) } else { Rights::UserOrImage(user) }
    }

    /// As [`open_in_root`].
    pub fn open(self, root: impl AsFd, path: &str, flags: OFlag) -> nix::Result<OwnedFd> {
        let root = root.as_fd();
        match self {
            Rights::Root => open_in_root(root, path, flags),
            Rights::User(user) => as_user(user, || open_in_root(root, path, flags))?,
            Rights::UserOrImage(user) => match as_user(user, || open_in_root(root, path, flags))? {
                Err(Errno::EACCES) => match open_in_root_with(root, path, flags, RESOLVE_NO_XDEV) {
                    Err(Errno::EXDEV) => Err(Errno::EACCES),
                    opened => opened,
                },
                opened => opened,
            },
        }
    }
}

fn open_in_root_with(
    root: BorrowedFd,
    path: &str,
    flags: OFlag,
    more: u64,
) -> nix::Result<OwnedFd> {
    let path = path_bytes(path)?;
    let how = OpenHow {
        flags: (flags | OFlag::O_CLOEXEC).bits() as u64,
        mode: 0,
        resolve: RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | more,
    };
    let root = root.as_raw_fd();
    // SAFETY: the path and the structure live through the call, and the size is the structure's own.
    fd_of(unsafe {
        libc::syscall(libc::SYS_openat2, root, path.as_ptr(), &how, size_of::<OpenHow>())
    })
}

/// Opens a path of the node without the links of `/proc`: those of this process lead to what root has opened.
pub(crate) fn open_plain(path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
    open_plain_at(None, path, flags)
}

/// As `open_plain`, a relative path below `folder`.
pub(crate) fn open_plain_at(
    folder: Option<&OwnedFd>,
    path: &Path,
    flags: OFlag,
) -> nix::Result<OwnedFd> {
    open_resolved(folder, path, flags, RESOLVE_NO_MAGICLINKS)
}

/// Opens a path of the node of which no part is a link.
pub(crate) fn open_without_links(path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
    open_resolved(None, path, flags, RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS)
}

fn open_resolved(
    folder: Option<&OwnedFd>,
    path: &Path,
    flags: OFlag,
    resolve: u64,
) -> nix::Result<OwnedFd> {
    let folder = folder.map_or(libc::AT_FDCWD, AsRawFd::as_raw_fd);
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
    let how = OpenHow { flags: (flags | OFlag::O_CLOEXEC).bits() as u64, mode: 0, resolve };
    let size = size_of::<OpenHow>();
    // SAFETY: the path and the structure live through the call, and the size is the structure's own.
    fd_of(unsafe { libc::syscall(libc::SYS_openat2, folder, path.as_ptr(), &how, size) })
}

/// Whether the folder is of the container's own mount. Root makes nothing in what a user had mounted, which may be of
/// the same file system.
fn check_own(root: BorrowedFd, folder: &OwnedFd) -> nix::Result<()> {
    if mount_of(root)? == mount_of(folder)? { Ok(()) } else { Err(Errno::ENOENT) }
}

fn is_link(folder: &OwnedFd, name: &CStr) -> nix::Result<bool> {
    let status = fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
    Ok(status.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFLNK.bits())
}

/// The mount that a handle is of, and its file system.
fn mount_of(file: impl AsFd) -> nix::Result<(u64, u32, u32)> {
    // SAFETY: a structure of integers, for which zeros are values.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    let (fd, mask) = (file.as_fd().as_raw_fd(), libc::STATX_MNT_ID);
    // SAFETY: the empty path is a constant, and the structure lives through the call.
    let done = unsafe { libc::statx(fd, c"".as_ptr(), libc::AT_EMPTY_PATH, mask, &mut found) };
    Errno::result(done)?;
    if found.stx_mask & mask == 0 {
        return Err(Errno::ENOSYS);
    }
    Ok((found.stx_mnt_id, found.stx_dev_major, found.stx_dev_minor))
}

/// Nothing that is mounted in this mount, or in those below it, is mounted outside of this namespace too. What the node
/// mounts later still comes in, as automounted folders need it.
pub(crate) fn stop_propagation(mount: impl AsFd) -> nix::Result<()> {
    let propagation = libc::MS_SLAVE;
    set_attributes(mount.as_fd(), &MountAttr { propagation, ..MountAttr::default() })
}

/// Sets the attributes of a mount and of every mount below it.
fn set_attributes(mount: BorrowedFd, attributes: &MountAttr) -> nix::Result<()> {
    let flags = libc::AT_EMPTY_PATH as libc::c_uint | AT_RECURSIVE;
    let (fd, size) = (mount.as_raw_fd(), size_of::<MountAttr>());
    // SAFETY: the structure lives through the call, and the size is its own.
    let done = unsafe {
        libc::syscall(libc::SYS_mount_setattr, fd, c"".as_ptr(), flags, attributes, size)
    };
    Errno::result(done).map(drop)
}

/// The folder at `path` below `root`, made with what is missing of its path.
pub(crate) fn make_folder_in_root(root: impl AsFd, path: &str) -> nix::Result<OwnedFd> {
    MountPoints { root: root.as_fd(), rights: Rights::Root }.folder(path)
}

/// Mount points in a container, made in its own files where they are missing. What exists already is looked up with `rights`.
#[derive(Clone, Copy)]
pub(crate) struct MountPoints<'a> {
    pub root: BorrowedFd<'a>,
    pub rights: Rights<'a>,
}

impl MountPoints<'_> {
    fn open(&self, path: &str, flags: OFlag) -> nix::Result<OwnedFd> {
        self.rights.open(self.root, path, flags)
    }

    pub fn folder(&self, path: &str) -> nix::Result<OwnedFd> {
        let mut at = open_in_root(self.root, "/", OFlag::O_PATH | OFlag::O_DIRECTORY)?;
        let mut walked = String::new();
        let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        if parts.len() > DEPTH_MAX || parts.contains(&"..") {
            return Err(Errno::EINVAL);
        }
        for part in parts {
            walked = format!("{walked}/{part}");
            let flags = OFlag::O_PATH | OFlag::O_DIRECTORY;
            at = match self.open(&walked, flags) {
                Err(Errno::ENOENT) => {
                    check_own(self.root, &at)?;
                    mkdirat(&at, &*path_bytes(part)?, Mode::from_bits_truncate(0o755))?;
                    self.open(&walked, flags)?
                }
                found => found?,
            };
        }
        Ok(at)
    }

    /// The file at a path, empty if it was missing.
    pub fn file(&self, path: &str) -> nix::Result<OwnedFd> {
        match self.open(path, OFlag::O_PATH) {
            Err(Errno::ENOENT) => {}
            found => return found,
        }
        let (folder, name) = path.rsplit_once('/').ok_or(Errno::EINVAL)?;
        let (folder, name) = (self.folder(folder)?, path_bytes(name)?);
        let name = name.as_c_str();
        check_own(self.root, &folder)?;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let make = || openat(&folder, name, flags, Mode::from_bits_truncate(0o644));
        match make() {
            // A link that leads nowhere gives way, in the container's own files: images of systems with systemd-resolved have
            // one as resolv.conf.
            Err(Errno::EEXIST) if is_link(&folder, name)? => {
                unlinkat(&folder, name, UnlinkatFlags::NoRemoveDir)?;
                make()?
            }
            made => made?,
        };
        self.open(path, OFlag::O_PATH)
    }
}

/// A copy of a mount that is not yet shown anywhere. What is mounted in it does not reach the mount that it is a copy
/// of, even where the node shares its mounts.
pub(crate) struct Tree(OwnedFd);

impl AsFd for Tree {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Tree {
    /// Copies the file or folder that a handle of this mount namespace stands for, with everything mounted below it.
    pub fn copy(source: impl AsFd) -> nix::Result<Tree> {
        Tree::copy_with(source, AT_RECURSIVE)
    }

    /// As `copy`, without what is mounted below it.
    pub fn copy_alone(source: impl AsFd) -> nix::Result<Tree> {
        Tree::copy_with(source, 0)
    }

    fn copy_with(source: impl AsFd, flags: libc::c_uint) -> nix::Result<Tree> {
        let flags = flags
            | OPEN_TREE_CLONE
            | libc::O_CLOEXEC as libc::c_uint
            | libc::AT_EMPTY_PATH as libc::c_uint;
        let fd = source.as_fd().as_raw_fd();
        // SAFETY: the empty path is a constant.
        let tree = unsafe { libc::syscall(libc::SYS_open_tree, fd, c"".as_ptr(), flags) };
        let tree = Tree(fd_of(tree)?);
        stop_propagation(&tree)?;
        Ok(tree)
    }

    /// No program in it gains rights, and no device in it opens.
    pub fn restrict(&self, read_only: bool) -> nix::Result<()> {
        let read_only = if read_only { MOUNT_ATTR_RDONLY } else { 0 };
        let set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | read_only;
        set_attributes(self.as_fd(), &MountAttr { set, ..MountAttr::default() })
    }

    /// Owners are shown as this user namespace maps them.
    pub fn map_owners(&self, user_namespace: impl AsFd) -> nix::Result<()> {
        let userns_fd = user_namespace.as_fd().as_raw_fd() as u64;
        let attributes = MountAttr { set: MOUNT_ATTR_IDMAP, userns_fd, ..MountAttr::default() };
        set_attributes(self.as_fd(), &attributes)
    }

    pub fn show_at(self, target: impl AsFd) -> nix::Result<()> {
        let (tree, target) = (self.0.as_raw_fd(), target.as_fd().as_raw_fd());
        let flags = MOVE_MOUNT_FROM_EMPTY | MOVE_MOUNT_TO_EMPTY;
        let empty = c"".as_ptr();
        // SAFETY: the empty path is a constant.
        let done =
            unsafe { libc::syscall(libc::SYS_move_mount, tree, empty, target, empty, flags) };
        Errno::result(done).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::open;
    use nix::mount::{MsFlags, mount};
    use nix::sched::{CloneFlags, unshare};
    use std::fs;

    fn handle(path: &Path) -> OwnedFd {
        open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).expect("opened")
    }

    /// A shared file system and a private one, in a mount namespace of this thread alone.
    fn in_own_namespace(test: impl FnOnce(&Path, &Path) + Send + 'static) {
        if !nix::unistd::Uid::effective().is_root() {
            return;
        }
        let thread = std::thread::spawn(|| {
            let dir = tempfile::tempdir().expect("scratch folder");
            let none: Option<&str> = None;
            unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace");
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).expect("private");
            let paths = ["node", "root"].map(|name| dir.path().join(name));
            for path in &paths {
                fs::create_dir(path).expect("made");
                let kind = Some("tmpfs");
                mount(kind, path, kind, MsFlags::empty(), none).expect("mounted");
            }
            let shared = MsFlags::MS_REC | MsFlags::MS_SHARED;
            mount(none, &paths[0], none, shared, none).expect("shared");
            test(&paths[0], &paths[1]);
        });
        thread.join().expect("the test");
    }

    #[test]
    fn root_a_mount_in_a_copy_does_not_reach_the_node() {
        in_own_namespace(|node, root| {
            fs::write(node.join("passwd"), "the node's").expect("written");
            fs::write(node.join("other"), "the user's").expect("written");
            let (copy, other) = (Tree::copy(handle(node)), Tree::copy(handle(&node.join("other"))));
            let at = make_folder_in_root(handle(root), "/host").expect("made");
            copy.and_then(|tree| tree.show_at(at)).expect("shown");
            let handle_of_root = handle(root);
            let points = MountPoints { root: handle_of_root.as_fd(), rights: Rights::Root };
            let at = points.file("/host/passwd").expect("found");
            other.and_then(|tree| tree.show_at(at)).expect("shown");
            let read = |path: &Path| fs::read_to_string(path).expect("read");
            assert_eq!(read(&root.join("host/passwd")), "the user's");
            assert_eq!(read(&node.join("passwd")), "the node's");
        });
    }

    /// Whether a file is there is told in the container's own files, and in what is mounted in it only to who could look.
    #[test]
    fn root_what_a_user_cannot_see_in_a_mount_is_not_told_by_root() {
        in_own_namespace(|node, root| {
            let closed = |path: &Path| {
                use std::os::unix::fs::PermissionsExt;
                fs::set_permissions(path, fs::Permissions::from_mode(0o700)).expect("closed");
            };
            for folder in [node.join("closed"), root.join("own")] {
                fs::create_dir(&folder).expect("made");
                fs::write(folder.join("there"), "").expect("written");
                closed(&folder);
            }
            std::os::unix::fs::symlink("/host/closed/there", root.join("link")).expect("a link");
            let handle_of_root = handle(root);
            let at = make_folder_in_root(&handle_of_root, "/host").expect("made");
            Tree::copy(handle(node)).and_then(|tree| tree.show_at(at)).expect("shown");
            let user = UserIds { name: "kim".into(), uid: 12_345, gid: 12_345, groups: Vec::new() };
            let rights = Rights::among_mounts(&user, false);
            let points = MountPoints { root: handle_of_root.as_fd(), rights };
            for path in ["/host/closed/there", "/host/closed/absent", "/link"] {
                assert_eq!(points.file(path).err(), Some(Errno::EACCES), "{path}");
                let opened = rights.open(&handle_of_root, path, OFlag::O_PATH);
                assert_eq!(opened.err(), Some(Errno::EACCES), "{path}");
            }
            assert_eq!(points.folder("/host/closed/absent/x").err(), Some(Errno::EACCES));
            assert!(points.file("/own/there").is_ok(), "the container's own");
            let opened = rights.open(&handle_of_root, "/own/absent", OFlag::O_PATH);
            assert_eq!(opened.err(), Some(Errno::ENOENT));
            assert!(points.folder("/own/made/deep").is_ok() && root.join("own/made/deep").is_dir());
            assert!(points.folder("/host/closed").is_ok(), "the user sees that it is there");
        });
    }

    /// A folder of the node as an image has files that its user may not see: root looks for none of them.
    #[test]
    fn root_what_a_user_cannot_see_in_a_folder_as_an_image_is_not_told_by_root() {
        in_own_namespace(|_, root| {
            use std::os::unix::fs::PermissionsExt;
            let closed = root.join("closed");
            fs::create_dir(&closed).expect("made");
            fs::write(closed.join("there"), "").expect("written");
            fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).expect("closed");
            std::os::unix::fs::symlink("/closed/there", root.join("link")).expect("a link");
            let user = UserIds { name: "kim".into(), uid: 12_345, gid: 12_345, groups: Vec::new() };
            let handle_of_root = handle(root);
            for rights in [Rights::before_mounts(&user, true), Rights::among_mounts(&user, true)] {
                let points = MountPoints { root: handle_of_root.as_fd(), rights };
                for path in ["/closed/there", "/closed/absent", "/link"] {
                    assert_eq!(points.file(path).err(), Some(Errno::EACCES), "{path}");
                    let opened = rights.open(&handle_of_root, path, OFlag::O_PATH);
                    assert_eq!(opened.err(), Some(Errno::EACCES), "{path}");
                }
                assert_eq!(points.folder("/closed/absent/x").err(), Some(Errno::EACCES));
                assert!(points.folder("/made/deep").is_ok(), "what is seen to be missing is made");
            }
            assert!(!closed.join("absent").exists());
        });
    }

    #[test]
    fn root_a_link_that_leads_nowhere_gives_way_to_a_mount_point() {
        in_own_namespace(|_, root| {
            fs::create_dir(root.join("etc")).expect("made");
            let link = root.join("etc/resolv.conf");
            std::os::unix::fs::symlink("../run/stub.conf", &link).expect("a link");
            let handle_of_root = handle(root);
            let points = MountPoints { root: handle_of_root.as_fd(), rights: Rights::Root };
            assert!(points.file("/etc/resolv.conf").is_ok());
            assert!(fs::symlink_metadata(&link).expect("it is there").is_file());
            // One that leads somewhere stays.
            std::os::unix::fs::symlink("resolv.conf", root.join("etc/other")).expect("a link");
            assert!(points.file("/etc/other").is_ok());
            assert!(fs::symlink_metadata(root.join("etc/other")).expect("there").is_symlink());
        });
    }

    #[test]
    fn root_nothing_is_made_in_a_mount_of_the_same_file_system() {
        in_own_namespace(|_, root| {
            fs::create_dir_all(root.join("closed")).expect("made");
            let copy = Tree::copy(handle(&root.join("closed"))).expect("copied");
            let at = make_folder_in_root(handle(root), "/shown").expect("made");
            copy.show_at(at).expect("shown");
            let made = make_folder_in_root(handle(root), "/shown/made");
            assert_eq!(made.map(drop), Err(Errno::ENOENT));
            assert!(!root.join("closed/made").exists());
        });
    }
}
