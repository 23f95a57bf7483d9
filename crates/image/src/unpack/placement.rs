//! Where each entry of a layer goes. Everything is done relative to the handle of the folder that it lies in, which the
//! kernel looked up inside the layer's root.

use std::fs::File;
use std::io::{BufRead, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, SFlag, UtimensatFlags, fchmod, futimens, mkdirat, mknodat, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, fchown, fchownat, linkat, symlinkat};

use super::Limits;
use super::archive::{Archive, Entry, Fault, Kind};
use super::budget::Budget;
use super::entry_path::{EntryPath, Meaning, split};
use super::folder::{kind_at, open_in_root, remove_tree, set_xattr};

const FOLDER: OFlag = OFlag::O_DIRECTORY.union(OFlag::O_RDONLY);
/// Names of folders whose times are set at the end.
const FOLDER_NAMES_BYTES_MAX: usize = 256 << 20;
/// A folder that is itself of that name, and not behind a link.
const OWN_FOLDER: OFlag = FOLDER.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);
const SET_ID_BITS: u32 = 0o6000;

pub struct Placed {
    pub disk_bytes: u64,
    pub entries: u64,
    pub skipped: u64,
}

/// A folder's mode and time, which are set when everything is in it.
struct Finish {
    path: Vec<u8>,
    mode: u32,
    mtime: (i64, u32),
}

struct Placement<'a> {
    root: BorrowedFd<'a>,
    limits: &'a Limits,
    privileged: bool,
    own: (u32, u32),
    budget: Budget<'a>,
    skipped: u64,
    /// The folder that the last entry lay in: most entries lie beside the one before.
    last: Option<(Vec<u8>, OwnedFd)>,
    finish: Vec<Finish>,
    finish_bytes: usize,
}

/// Places all entries of a layer below `root`. `needs_end` asks for the archive's end mark, where no digest tells that it is whole.
pub fn place(
    _layer: &str,
    archive: &mut Archive<impl BufRead>,
    root: BorrowedFd,
    limits: &Limits,
    needs_end: bool,
) -> Result<Placed, Fault> {
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    let mut placement = Placement {
        root,
        limits,
        privileged: uid.is_root(),
        own: (uid.as_raw(), gid.as_raw()),
        budget: Budget::new(root, limits),
        skipped: 0,
        last: None,
        finish: Vec::new(),
        finish_bytes: 0,
    };
    while let Some(entry) = archive.next_entry()? {
        placement.budget.charge(&entry)?;
        placement.entry(&entry, archive)?;
    }
    if needs_end && !archive.ended_by_mark {
        return Err(Fault::Truncated { entry: "its last entry".into() });
    }
    placement.finish_folders()?;
    let Placement { budget: Budget { entries, disk_bytes, .. }, skipped, .. } = placement;
    Ok(Placed { disk_bytes, entries, skipped })
}

impl Placement<'_> {
    fn entry(&mut self, entry: &Entry, archive: &mut Archive<impl BufRead>) -> Result<(), Fault> {
        let path = EntryPath::new(&entry.path)?;
        let name = match path.meaning()? {
            Meaning::Root => {
                if entry.kind == Kind::Folder {
                    let root = self.root.try_clone_to_owned().map_err(Fault::Io)?;
                    self.dress(entry, root.as_fd())?;
                    self.finish_later(&path, entry)?;
                }
                return Ok(());
            }
            Meaning::Aufs => return Ok(()),
            Meaning::Opaque => {
                let parent = self.parent(path.parent(), &entry.path)?;
                return self.set_opaque(parent.as_fd());
            }
            Meaning::Whiteout { name } => {
                let parent = self.parent(path.parent(), &entry.path)?;
                return self.whiteout(parent.as_fd(), name);
            }
            Meaning::Plain { name } => name,
        };
        if entry.kind == Kind::Special {
            self.skipped += 1;
            return Ok(());
        }
        // A clone of the handle would cost two calls for every entry; it is put back instead.
        let parent = self.parent(path.parent(), &entry.path)?;
        let outcome = self.place_at(parent.as_fd(), name, &path, entry, archive);
        if self.last.is_none() && outcome.as_ref().is_ok_and(|kept| *kept) {
            self.last = Some((path.parent().to_vec(), parent));
        }
        outcome.map(drop)
    }

    /// Places one entry. Returns whether the lookup of its folder still holds: not when something was removed.
    fn place_at(
        &mut self,
        parent: BorrowedFd,
        name: &[u8],
        path: &EntryPath,
        entry: &Entry,
        archive: &mut Archive<impl BufRead>,
    ) -> Result<bool, Fault> {
        let mut kept = true;
        loop {
            let done = match entry.kind {
                Kind::Folder => self.folder(parent, name, path, entry),
                Kind::File => self.file(parent, name, entry, archive),
                Kind::Symlink => self.symlink(parent, name, entry),
                Kind::HardLink => self.hard_link(parent, name, entry),
                Kind::Special => Ok(()),
            };
            match done {
                Err(Fault::Io(error)) if error.raw_os_error() == Some(libc::EEXIST) && kept => {
                    // Something else has the name: the later entry counts.
                    let was_whiteout = kind_at(parent, name).map_err(io)? == Some(SFlag::S_IFCHR);
                    remove_tree(parent, name).map_err(io)?;
                    kept = false;
                    if was_whiteout && entry.kind == Kind::Folder {
                        self.folder(parent, name, path, entry)?;
                        let folder = openat(parent, name, OWN_FOLDER, Mode::empty()).map_err(io)?;
                        self.set_opaque(folder.as_fd())?;
                        return Ok(kept);
                    }
                }
                other => return other.map(|()| kept),
            }
        }
    }

    /// The folder at a path of the layer, made with everything above it where it is missing.
    fn parent(&mut self, path: &[u8], entry: &[u8]) -> Result<OwnedFd, Fault> {
        if let Some((last, folder)) = self.last.take()
            && last == path
        {
            return Ok(folder);
        }
        let mut made = false;
        loop {
            let fault = match open_in_root(self.root, path, FOLDER) {
                Ok(folder) => return Ok(folder),
                Err(Errno::ENOENT | Errno::ENOTDIR) if !made => {
                    self.make_folders(path)?;
                    made = true;
                    continue;
                }
                Err(Errno::ENOENT) => "it lies behind a symbolic link that leads nowhere",
                Err(Errno::ENOTDIR) => "it lies in what is a file and not a folder",
                Err(Errno::ELOOP) => "it lies behind symbolic links that never end",
                Err(other) => return Err(io(other)),
            };
            return Err(Fault::refused(entry, fault));
        }
    }

    /// Makes every missing folder of a path, as other tools do: root's, open to read.
    fn make_folders(&mut self, path: &[u8]) -> Result<(), Fault> {
        let ends = path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
        for end in ends.chain([path.len()]) {
            let (above, name) = split(&path[..end]);
            let above = match open_in_root(self.root, above, FOLDER) {
                Ok(above) => above,
                Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => return Ok(()),
                Err(other) => return Err(io(other)),
            };
            // A folder in the place of a whiteout shows nothing of the layers below.
            let was_whiteout = kind_at(above.as_fd(), name).map_err(io)? == Some(SFlag::S_IFCHR);
            if was_whiteout {
                remove_tree(above.as_fd(), name).map_err(io)?;
            }
            match mkdirat(&above, name, Mode::from_bits_truncate(0o755)) {
                Ok(()) => {
                    let folder = openat(&above, name, OWN_FOLDER, Mode::empty()).map_err(io)?;
                    fchmod(&folder, Mode::from_bits_truncate(0o755)).map_err(io)?;
                    if was_whiteout {
                        self.set_opaque(folder.as_fd())?;
                    }
                    self.budget.charge_folder();
                }
                Err(Errno::EEXIST) => {}
                Err(other) => return Err(io(other)),
            }
        }
        Ok(())
    }

    fn folder(
        &mut self,
        parent: BorrowedFd,
        name: &[u8],
        path: &EntryPath,
        entry: &Entry,
    ) -> Result<(), Fault> {
        match mkdirat(parent, name, Mode::S_IRWXU) {
            Ok(()) => {}
            Err(Errno::EEXIST) if kind_at(parent, name).map_err(io)? == Some(SFlag::S_IFDIR) => {}
            Err(other) => return Err(io(other)),
        }
        let folder = openat(parent, name, OWN_FOLDER, Mode::empty()).map_err(io)?;
        self.dress(entry, folder.as_fd())?;
        self.finish_later(path, entry)
    }

    fn file(
        &mut self,
        parent: BorrowedFd,
        name: &[u8],
        entry: &Entry,
        archive: &mut Archive<impl BufRead>,
    ) -> Result<(), Fault> {
        let flags =
            OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mut file =
            File::from(openat(parent, name, flags, Mode::S_IRUSR | Mode::S_IWUSR).map_err(io)?);
        archive.read_data(|bytes| file.write_all(bytes).map_err(Fault::Io))?;
        self.dress(entry, file.as_fd())?;
        fchmod(&file, self.mode(entry)).map_err(io)?;
        let (atime, mtime) = times(entry.mtime);
        futimens(&file, &atime, &mtime).map_err(io)
    }

    fn symlink(&mut self, parent: BorrowedFd, name: &[u8], entry: &Entry) -> Result<(), Fault> {
        if entry.link.is_empty() || entry.link.len() > 4095 || entry.link.contains(&0) {
            return Err(Fault::refused(&entry.path, "its link leads to what is no name"));
        }
        symlinkat(entry.link.as_slice(), parent, name).map_err(io)?;
        if let Some((uid, gid)) = self.other_owner(entry) {
            fchownat(parent, name, Some(uid), Some(gid), AtFlags::AT_SYMLINK_NOFOLLOW)
                .map_err(io)?;
        }
        let (atime, mtime) = times(entry.mtime);
        utimensat(parent, name, &atime, &mtime, UtimensatFlags::NoFollowSymlink).map_err(io)
    }

    /// Links to a file that is already there, and in this layer.
    fn hard_link(&mut self, parent: BorrowedFd, name: &[u8], entry: &Entry) -> Result<(), Fault> {
        let target = EntryPath::new(&entry.link)?;
        let refused = |fault: &str| {
            Err(Fault::refused(
                &entry.path,
                format!("a hard link to {}, {fault}", crate::error::shown(&entry.link)),
            ))
        };
        let (above, target_name) = split(target.as_bytes());
        if target_name.is_empty() {
            return refused("which is the root");
        }
        let above = match open_in_root(self.root, above, FOLDER) {
            Ok(above) => above,
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => {
                return refused("which is not in the layer before it");
            }
            Err(other) => return Err(io(other)),
        };
        match kind_at(above.as_fd(), target_name).map_err(io)? {
            Some(kind) if kind == SFlag::S_IFREG || kind == SFlag::S_IFLNK => {}
            Some(_) => return refused("which is not a file"),
            None => return refused("which is not in the layer before it"),
        }
        match linkat(&above, target_name, parent, name, AtFlags::empty()) {
            // A link to itself would otherwise be removed for itself.
            Err(Errno::EEXIST) if same_file(above.as_fd(), target_name, parent, name) => Ok(()),
            Err(Errno::EMLINK) => refused("which has as many links as a file can have"),
            other => other.map_err(io),
        }
    }

    /// Hides a name of the layers below. What this layer itself has of that name stays, but nothing shows through it.
    fn whiteout(&mut self, parent: BorrowedFd, name: &[u8]) -> Result<(), Fault> {
        match mknodat(parent, name, SFlag::S_IFCHR, Mode::empty(), 0) {
            Ok(()) => Ok(()),
            Err(Errno::EEXIST) if kind_at(parent, name).map_err(io)? == Some(SFlag::S_IFDIR) => {
                let folder = openat(parent, name, OWN_FOLDER, Mode::empty()).map_err(io)?;
                self.set_opaque(folder.as_fd())
            }
            Err(Errno::EEXIST) => Ok(()),
            Err(other) => Err(io(other)),
        }
    }

    /// Without root the attribute is `user.overlay.opaque`, which overlayfs reads when mounted with `userxattr`.
    fn set_opaque(&self, folder: BorrowedFd) -> Result<(), Fault> {
        let name = if self.privileged { c"trusted.overlay.opaque" } else { c"user.overlay.opaque" };
        set_xattr(folder, name, b"y").map_err(io)
    }

    /// Owner and attributes. Without root everything is the user's own, and capabilities are left out.
    fn dress(&self, entry: &Entry, file: BorrowedFd) -> Result<(), Fault> {
        if let Some((uid, gid)) = self.other_owner(entry) {
            fchown(file, Some(uid), Some(gid)).map_err(io)?;
        }
        for (name, value) in &entry.xattrs {
            let capability =
                name == b"security.capability" && self.limits.keep_setuid && self.privileged;
            let of_user = name.starts_with(b"user.") && !name.starts_with(b"user.overlay.");
            if !capability && !of_user {
                continue;
            }
            let Ok(name) = std::ffi::CString::new(name.as_slice()) else { continue };
            match set_xattr(file, &name, value) {
                // A file system without attributes, or an attribute larger than it takes.
                Ok(())
                | Err(
                    Errno::EOPNOTSUPP
                    | Errno::ENOSPC
                    | Errno::E2BIG
                    | Errno::ERANGE
                    | Errno::EINVAL
                    | Errno::EPERM,
                ) => {}
                Err(other) => return Err(io(other)),
            }
        }
        Ok(())
    }

    fn other_owner(&self, entry: &Entry) -> Option<(Uid, Gid)> {
        let wanted = (entry.uid, entry.gid);
        (self.privileged && wanted != self.own)
            .then(|| (Uid::from_raw(wanted.0), Gid::from_raw(wanted.1)))
    }

    fn mode(&self, entry: &Entry) -> Mode {
        let kept = if self.limits.keep_setuid { entry.mode } else { entry.mode & !SET_ID_BITS };
        Mode::from_bits_truncate(kept)
    }

    fn finish_later(&mut self, path: &EntryPath, entry: &Entry) -> Result<(), Fault> {
        let path = path.as_bytes().to_vec();
        self.finish_bytes += path.len() + size_of::<Finish>();
        if self.finish_bytes > FOLDER_NAMES_BYTES_MAX {
            return Err(Fault::refused(
                &path,
                "the layer has more folders than can be kept in mind",
            ));
        }
        self.finish.push(Finish { path, mode: self.mode(entry).bits(), mtime: entry.mtime });
        Ok(())
    }

    /// Sets modes and times of folders, the deepest first: without root a closed folder cannot be entered any more.
    fn finish_folders(&mut self) -> Result<(), Fault> {
        // Stable: of several entries for one folder the last one is set last.
        self.finish.sort_by_key(|f| std::cmp::Reverse(f.path.len()));
        for Finish { path, mode, mtime } in &self.finish {
            let folder = match open_in_root(self.root, path, FOLDER | OFlag::O_NOFOLLOW) {
                Ok(folder) => folder,
                // It was replaced by something else.
                Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => continue,
                Err(Errno::EACCES) if !self.privileged => continue,
                Err(other) => return Err(io(other)),
            };
            fchmod(&folder, Mode::from_bits_truncate(*mode)).map_err(io)?;
            let (atime, mtime) = times(*mtime);
            futimens(&folder, &atime, &mtime).map_err(io)?;
        }
        Ok(())
    }
}

fn same_file(a: BorrowedFd, a_name: &[u8], b: BorrowedFd, b_name: &[u8]) -> bool {
    let at = |folder, name| {
        nix::sys::stat::fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW)
            .map(|s| (s.st_dev, s.st_ino))
    };
    matches!((at(a, a_name), at(b, b_name)), (Ok(a), Ok(b)) if a == b)
}

fn times((seconds, nanos): (i64, u32)) -> (TimeSpec, TimeSpec) {
    let time = TimeSpec::new(seconds, nanos.into());
    (time, time)
}

fn io(error: Errno) -> Fault {
    Fault::Io(error.into())
}
