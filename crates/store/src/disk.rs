//! The interface to the disk: a folder of files, named by relative paths with `/` between parts.
//!
//! What a caller may rely on after a crash is only what it has synced: a file's bytes after
//! [`DiskFile::sync_data`], a name (created, renamed, removed) after [`Disk::sync_dir`] of its folder.

use std::io;

/// What a listing says about one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub len: u64,
    pub is_dir: bool,
}

/// A folder on some disk. The empty path `""` names the folder itself.
pub trait Disk: Send + Sync {
    /// Opens an existing file for reading and writing.
    fn open(&self, path: &str) -> io::Result<Box<dyn DiskFile>>;
    /// Makes an empty file; one that is there already is emptied.
    fn create(&self, path: &str) -> io::Result<Box<dyn DiskFile>>;
    /// Makes a folder; one that is there already is fine.
    fn make_dir(&self, path: &str) -> io::Result<()>;
    /// Replaces `to` by `from` in one step.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Gives a file a second name, which must be new.
    fn link(&self, path: &str, to: &str) -> io::Result<()>;
    fn remove(&self, path: &str) -> io::Result<()>;
    /// The names in a folder, sorted.
    fn list(&self, dir: &str) -> io::Result<Vec<Entry>>;
    fn sync_dir(&self, dir: &str) -> io::Result<()>;
    /// Bytes that could still be written.
    fn free_bytes(&self) -> io::Result<u64>;
}

/// An open file.
pub trait DiskFile: Send + Sync {
    fn len(&self) -> io::Result<u64>;
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Makes the file `len` bytes long, the new part zero and really allocated: a later write inside
    /// it meets no full disk, and syncing it changes no allocation.
    fn preallocate(&self, len: u64) -> io::Result<()>;
    fn truncate(&self, len: u64) -> io::Result<()>;
    /// Writes all of `bytes`, or fails having written any part of them.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Reads up to `buffer.len()` bytes; fewer only at the end of the file.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
    fn sync_data(&self) -> io::Result<()>;

    /// Where the bytes end that may be other than zero: the file's length, where the disk knows no better.
    fn written_end(&self) -> io::Result<u64> {
        self.len()
    }

    /// Writes bytes that have to be durable no sooner than the next commit of the journal in the same store. Returns true where they
    /// go with that commit, and are lost with it if it fails; false where they are durable now.
    fn write_with_journal(&self, offset: u64, bytes: &[u8]) -> io::Result<bool> {
        self.write_at(offset, bytes)?;
        self.sync_data().map(|()| false)
    }

    fn read_all(&self) -> io::Result<Vec<u8>> {
        let len = usize::try_from(self.len()?).map_err(io::Error::other)?;
        let mut bytes = vec![0; len];
        let read = self.read_at(0, &mut bytes)?;
        bytes.truncate(read);
        Ok(bytes)
    }
}

/// Puts `bytes` at `path` so that after a crash either the old content or the new is there, whole,
/// and after return the new.
pub fn replace_file(disk: &dyn Disk, path: &str, parts: &[&[u8]]) -> io::Result<()> {
    let temporary = format!("{path}.tmp");
    let written = write_new(disk, &temporary, parts).and_then(|()| disk.rename(&temporary, path));
    if let Err(error) = written {
        // The half-written file would hold space that a full disk needs; it is found again by name
        // and overwritten next time if it cannot be removed now.
        let _ = disk.remove(&temporary);
        return Err(error);
    }
    disk.sync_dir(parent(path))
}

fn write_new(disk: &dyn Disk, path: &str, parts: &[&[u8]]) -> io::Result<()> {
    let file = disk.create(path)?;
    let mut offset = 0;
    for part in parts {
        file.write_at(offset, part)?;
        offset += part.len() as u64;
    }
    file.sync_data()
}

/// The folder part of a path, `""` for a name at the top.
pub fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

/// Whether an error says that the disk, or the user's part of it, is full.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Refuses what would reach outside the folder.
pub(crate) fn checked(path: &str) -> io::Result<&str> {
    let sound = path.is_empty()
        || path.split('/').all(|part| !matches!(part, "" | "." | "..") && !part.contains('\0'));
    if sound {
        Ok(path)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("'{path}' is not a plain relative path"),
        ))
    }
}
