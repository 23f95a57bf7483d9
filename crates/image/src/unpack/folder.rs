//! Files and folders by handle. The kernel keeps every lookup inside the layer (`openat2`), whatever symbolic links it holds.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{Mode, SFlag, fchmod, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};

/// A lookup that raced with a rename elsewhere is tried again, so often.
const RACES_MAX: u32 = 64;
/// Folders that are open at once while a tree is removed; what lies deeper is moved up first.
const REMOVE_DEPTH_MAX: usize = 128;

/// Opens a path with `root` as the root folder: symbolic links and `..` cannot lead out.
pub fn open_in_root(root: BorrowedFd, path: &[u8], flags: OFlag) -> nix::Result<OwnedFd> {
    open_resolved(
        root,
        path,
        flags,
        ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS,
    )
}

/// Opens a path below `root` that has no symbolic link in it.
pub fn open_beneath(root: BorrowedFd, path: &[u8], flags: OFlag) -> nix::Result<OwnedFd> {
    open_resolved(
        root,
        path,
        flags,
        ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS,
    )
}

fn open_resolved(
    root: BorrowedFd,
    path: &[u8],
    flags: OFlag,
    resolve: ResolveFlag,
) -> nix::Result<OwnedFd> {
    let path = if path.is_empty() { b"." } else { path };
    let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC).resolve(resolve);
    for _ in 0..RACES_MAX {
        match openat2(root, path, how) {
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            other => return other,
        }
    }
    Err(Errno::EAGAIN)
}

/// Whether a folder has something of this name.
pub fn exists(folder: BorrowedFd, name: &[u8]) -> bool {
    kind_at(folder, name).is_ok_and(|kind| kind.is_some())
}

/// Reads a regular file of at most `max` bytes; anything else is an error, and nothing is waited for.
pub fn read_bounded(fd: OwnedFd, max: u64) -> io::Result<Vec<u8>> {
    let status = fstat(&fd)?;
    if status.st_mode & SFlag::S_IFMT.bits() != SFlag::S_IFREG.bits() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    File::from(fd).take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("more than {max} bytes")));
    }
    Ok(bytes)
}

/// Folders that were moved up, to be removed in their turn.
#[derive(Default)]
struct Moved {
    waiting: Vec<Vec<u8>>,
    count: usize,
}

/// Removes a file, or a folder with everything in it, by handle and without following links. A tree may be deeper than
/// handles can be held: what is too deep is moved into `parent`, and removed from there.
pub fn remove_tree(parent: BorrowedFd, name: &[u8]) -> nix::Result<()> {
    let mut moved = Moved::default();
    let mut next = Some(name.to_vec());
    while let Some(name) = next {
        remove(parent, parent, &name, 0, &mut moved)?;
        next = moved.waiting.pop();
    }
    Ok(())
}

fn remove(
    top: BorrowedFd,
    parent: BorrowedFd,
    name: &[u8],
    depth: usize,
    moved: &mut Moved,
) -> nix::Result<()> {
    match unlinkat(parent, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => return Ok(()),
        Err(Errno::EISDIR | Errno::EPERM) => {}
        Err(other) => return Err(other),
    }
    match unlinkat(parent, name, UnlinkatFlags::RemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => return Ok(()),
        Err(Errno::ENOTEMPTY | Errno::EEXIST | Errno::EACCES) => {}
        Err(other) => return Err(other),
    }
    if depth >= REMOVE_DEPTH_MAX {
        let up = format!(".deep.{}.{}", std::process::id(), moved.count).into_bytes();
        nix::fcntl::renameat(parent, name, top, up.as_slice())?;
        moved.count += 1;
        moved.waiting.push(up);
        return Ok(());
    }
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let folder = match openat(parent, name, flags, Mode::empty()) {
        Err(Errno::EACCES) => {
            nix::sys::stat::fchmodat(
                parent,
                name,
                Mode::S_IRWXU,
                nix::sys::stat::FchmodatFlags::FollowSymlink,
            )?;
            openat(parent, name, flags, Mode::empty())?
        }
        other => other?,
    };
    // Without root, a folder that may not be written keeps what is in it.
    if !nix::unistd::geteuid().is_root() {
        fchmod(&folder, Mode::S_IRWXU)?;
    }
    let mut listing = Dir::openat(&folder, ".", flags, Mode::empty())?;
    let mut folders = Vec::new();
    for entry in listing.iter() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        if entry.file_type().is_some_and(|t| t != Type::Directory)
            && unlinkat(&folder, name, UnlinkatFlags::NoRemoveDir).is_ok()
        {
            continue;
        }
        folders.push(name.to_vec());
    }
    drop(listing);
    for name in folders {
        remove(top, folder.as_fd(), &name, depth + 1, moved)?;
    }
    match unlinkat(parent, name, UnlinkatFlags::RemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(other) => Err(other),
    }
}

/// What there is at a name in a folder, not following a link.
pub fn kind_at(folder: BorrowedFd, name: &[u8]) -> nix::Result<Option<SFlag>> {
    match fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(status) => Ok(Some(SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT)),
        Err(Errno::ENOENT) => Ok(None),
        Err(other) => Err(other),
    }
}

pub fn set_xattr(file: BorrowedFd, name: &std::ffi::CStr, value: &[u8]) -> nix::Result<()> {
    use std::os::fd::AsRawFd;
    // SAFETY: the name ends in NUL, and the value's pointer and length are of one slice; the kernel only reads them.
    let done = unsafe {
        libc::fsetxattr(file.as_raw_fd(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0)
    };
    Errno::result(done).map(drop)
}

/// Whether the folder hides what the layers below have in theirs.
#[cfg(test)]
pub fn is_opaque(folder: BorrowedFd) -> bool {
    use std::os::fd::AsRawFd;
    [c"trusted.overlay.opaque", c"user.overlay.opaque"].iter().any(|name| {
        let mut value = [0u8; 1];
        // SAFETY: the name ends in NUL, and the kernel writes at most one byte into `value`.
        let n = unsafe {
            libc::fgetxattr(folder.as_raw_fd(), name.as_ptr(), value.as_mut_ptr().cast(), 1)
        };
        n == 1 && value == *b"y"
    })
}
