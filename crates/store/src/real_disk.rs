//! The disk of this machine: one folder, held by a handle and locked against a second process.
//!
//! Every access goes through the handle, so moving or replacing the folder's path under a running
//! server cannot send writes elsewhere. Files are mode 600, folders 700, links are not followed.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::Path;

use nix::dir::Dir;
use nix::fcntl::{AtFlags, FallocateFlags, Flock, FlockArg, OFlag, fallocate, openat, renameat};
use nix::sys::stat::{Mode, SFlag, fstatat, mkdirat};
use nix::sys::statvfs::fstatvfs;
use nix::unistd::{UnlinkatFlags, linkat, unlinkat};

use crate::disk::{Disk, DiskFile, Entry, checked};

const FILE_MODE: Mode = Mode::S_IRUSR.union(Mode::S_IWUSR);
const DIR_MODE: Mode = Mode::S_IRWXU;
/// How much zero is written in one call while preallocating.
const ZERO_BLOCK: usize = 1 << 20;

/// A folder of the real file system.
pub struct RealDisk {
    root: Flock<OwnedFd>,
}

impl RealDisk {
    /// Opens the folder, making it if need be, and locks it until dropped. A folder that another
    /// process holds is refused with [`io::ErrorKind::WouldBlock`].
    pub fn open(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let root = nix::fcntl::open(path, directory_flags(), Mode::empty())?;
        let root = Flock::lock(root, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| {
            let said = format!("{} is in use by another process: {errno}", path.display());
            io::Error::new(io::Error::from(errno).kind(), said)
        })?;
        Ok(Self { root })
    }

    fn handle(&self, path: &str, flags: OFlag) -> io::Result<OwnedFd> {
        let path = if path.is_empty() { "." } else { checked(path)? };
        let flags = flags | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        Ok(openat(&*self.root, path, flags, FILE_MODE)?)
    }
}

fn directory_flags() -> OFlag {
    OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC
}

impl Disk for RealDisk {
    fn open(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(RealFile(self.handle(path, OFlag::O_RDWR)?.into())))
    }

    fn create(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_TRUNC;
        Ok(Box::new(RealFile(self.handle(path, flags)?.into())))
    }

    fn make_dir(&self, path: &str) -> io::Result<()> {
        match mkdirat(&*self.root, checked(path)?, DIR_MODE) {
            Ok(()) | Err(nix::Error::EEXIST) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(&*self.root, checked(from)?, &*self.root, checked(to)?)?)
    }

    fn link(&self, path: &str, to: &str) -> io::Result<()> {
        let (path, to) = (checked(path)?, checked(to)?);
        Ok(linkat(&*self.root, path, &*self.root, to, AtFlags::empty())?)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        Ok(unlinkat(&*self.root, checked(path)?, UnlinkatFlags::NoRemoveDir)?)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<Entry>> {
        let mut folder = Dir::from_fd(self.handle(dir, directory_flags())?)?;
        let mut names = Vec::new();
        for entry in folder.iter() {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort_unstable();
        let mut entries = Vec::with_capacity(names.len());
        for name in names {
            let stat = match fstatat(&folder, name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(nix::Error::ENOENT) => continue,
                Err(errno) => return Err(errno.into()),
            };
            let is_dir = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR;
            entries.push(Entry { name, len: stat.st_size.max(0).unsigned_abs(), is_dir });
        }
        Ok(entries)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        File::from(self.handle(dir, directory_flags())?).sync_all()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let stat = fstatvfs(&*self.root)?;
        Ok(stat.blocks_available().saturating_mul(stat.fragment_size()))
    }
}

struct RealFile(File);

impl DiskFile for RealFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    /// `fallocate` alone leaves extents that are marked unwritten, and the first sync after each
    /// write into them has to commit that mark as well; zeros written once, ahead, take this out of
    /// the path of every later commit.
    fn preallocate(&self, len: u64) -> io::Result<()> {
        let old = self.len()?;
        let signed = i64::try_from(len).map_err(io::Error::other)?;
        match fallocate(&self.0, FallocateFlags::empty(), 0, signed) {
            // Not every file system can; the zeros below then allocate.
            Ok(()) | Err(nix::Error::EOPNOTSUPP) => {}
            Err(errno) => return Err(errno.into()),
        }
        let zeros = vec![0; ZERO_BLOCK];
        let mut offset = old;
        while offset < len {
            let step = usize::try_from(len - offset).unwrap_or(ZERO_BLOCK).min(ZERO_BLOCK);
            self.0.write_all_at(&zeros[..step], offset)?;
            offset += step as u64;
        }
        Ok(())
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.0.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn files_are_private_and_the_folder_is_locked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let disk = RealDisk::open(&path).unwrap();
        let file = disk.create("a").unwrap();
        file.preallocate(3 << 20).unwrap();
        file.write_at(5, b"hello").unwrap();
        file.sync_data().unwrap();
        disk.make_dir("sub").unwrap();
        disk.make_dir("sub").unwrap();
        disk.rename("a", "sub/b").unwrap();
        disk.sync_dir("sub").unwrap();

        let mode = |p: &str| std::fs::metadata(path.join(p)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(""), mode("sub"), mode("sub/b")), (0o700, 0o700, 0o600));
        let entry = Entry { name: "b".into(), len: 3 << 20, is_dir: false };
        assert_eq!(disk.list("sub").unwrap(), [entry]);
        let bytes = disk.open("sub/b").unwrap().read_all().unwrap();
        assert_eq!(&bytes[..12], b"\0\0\0\0\0hello\0\0");
        assert!(disk.free_bytes().unwrap() > 0);

        let second = RealDisk::open(&path).err().expect("the folder is locked");
        assert_eq!(second.kind(), io::ErrorKind::WouldBlock);
        drop(disk);
        RealDisk::open(&path).expect("the lock goes with its holder");
    }

    #[test]
    fn paths_that_leave_the_folder_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let disk = RealDisk::open(folder.path()).unwrap();
        for path in ["../x", "/etc/passwd", "a/../../x", "a//b", "./a"] {
            let error = disk.create(path).err().expect(path);
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path}");
        }
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).unwrap();
        assert!(disk.open("link").is_err(), "links are not followed");
    }
}
