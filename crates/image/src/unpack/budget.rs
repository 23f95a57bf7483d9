//! What a layer may take: entries, bytes, the room in the store, and the space on the file system.

use std::os::fd::BorrowedFd;

use nix::sys::statvfs::fstatvfs;

use super::Limits;
use super::archive::{Entry, Fault, Kind};

/// What an entry takes beside its data: its inode and its name.
const ENTRY_BYTES: u64 = 512;
const BLOCK_BYTES: u64 = 4096;
/// A symbolic link that is longer takes a block: ext4 keeps a shorter one in its inode.
const SHORT_LINK_BYTES: usize = 59;
/// Free space is asked for again after so many bytes.
const SPACE_STRIDE: u64 = 64 << 20;

pub struct Budget<'a> {
    root: BorrowedFd<'a>,
    limits: &'a Limits,
    pub entries: u64,
    pub disk_bytes: u64,
    unchecked_bytes: u64,
}

impl<'a> Budget<'a> {
    pub fn new(root: BorrowedFd<'a>, limits: &'a Limits) -> Self {
        Self { root, limits, entries: 0, disk_bytes: 0, unchecked_bytes: SPACE_STRIDE }
    }

    /// Counts an entry by what its header says, before anything of it is written.
    pub fn charge(&mut self, entry: &Entry) -> Result<(), Fault> {
        let Limits { bytes_max, room_bytes, entries_max, free_bytes_min, .. } = *self.limits;
        self.entries += 1;
        if self.entries > entries_max {
            let fault = format!("the layer has more than {entries_max} entries");
            return Err(Fault::refused(&entry.path, fault));
        }
        let bytes = disk_bytes(entry);
        self.disk_bytes += bytes;
        if self.disk_bytes > bytes_max {
            let fault = format!("the layer needs more than {bytes_max} bytes on disk");
            return Err(Fault::refused(&entry.path, fault));
        }
        if self.disk_bytes > room_bytes {
            let fault = format!(
                "a layer needs more than the {room_bytes} bytes that are left of its bound"
            );
            return Err(Fault::Full { fault });
        }
        self.unchecked_bytes += bytes;
        if self.unchecked_bytes >= SPACE_STRIDE {
            self.unchecked_bytes = 0;
            let space = fstatvfs(self.root).map_err(|e| Fault::Io(e.into()))?;
            let free = space.blocks_available().saturating_mul(space.fragment_size());
            if free < free_bytes_min.saturating_add(bytes) {
                let fault = format!(
                    "{free} bytes are free on its file system, and {free_bytes_min} must stay free"
                );
                return Err(Fault::Full { fault });
            }
        }
        Ok(())
    }

    /// Counts a folder that no entry names. Its bounds are looked at with the next entry.
    pub fn charge_folder(&mut self) {
        self.disk_bytes += BLOCK_BYTES;
        self.unchecked_bytes += BLOCK_BYTES;
    }
}

/// What an entry takes on disk, about.
fn disk_bytes(entry: &Entry) -> u64 {
    let attributes: usize = entry.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum();
    let data = match entry.kind {
        Kind::File => entry.size.next_multiple_of(BLOCK_BYTES),
        Kind::Folder => BLOCK_BYTES,
        Kind::Symlink if entry.link.len() > SHORT_LINK_BYTES => BLOCK_BYTES,
        Kind::Symlink | Kind::HardLink | Kind::Special => 0,
    };
    ENTRY_BYTES + attributes as u64 + data
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn entry(kind: Kind) -> Entry {
        Entry {
            path: b"x".to_vec(),
            link: Vec::new(),
            kind,
            size: 0,
            mode: 0o644,
            uid: 0,
            gid: 0,
            mtime: (0, 0),
            xattrs: Vec::new(),
        }
    }

    #[test]
    fn entry_counts_with_all_that_it_takes_on_disk() {
        let link = |bytes: usize| Entry { link: vec![b'x'; bytes], ..entry(Kind::Symlink) };
        let attribute = (b"user.x".to_vec(), vec![0; 60_000]);
        for (entry, bytes) in [
            (entry(Kind::File), 512),
            (Entry { size: 1, ..entry(Kind::File) }, 512 + 4096),
            (Entry { xattrs: vec![attribute], ..entry(Kind::File) }, 512 + 60_006),
            (entry(Kind::Folder), 512 + 4096),
            (link(59), 512),
            (link(60), 512 + 4096),
        ] {
            assert_eq!(disk_bytes(&entry), bytes, "{:?}", entry.kind);
        }
    }

    #[test]
    fn folders_that_no_entry_names_do_not_pass_by_the_free_space() {
        let folder = tempfile::tempdir().unwrap();
        let root = std::fs::File::open(folder.path()).unwrap();
        let limits = Limits { free_bytes_min: u64::MAX, ..Limits::default() };
        let mut budget = Budget::new(root.as_fd(), &limits);
        budget.unchecked_bytes = 0;
        let first = budget.charge(&entry(Kind::File));
        assert!(first.is_ok(), "it is asked for after many bytes only");
        (0..SPACE_STRIDE / BLOCK_BYTES).for_each(|_| budget.charge_folder());
        let next = budget.charge(&entry(Kind::File));
        assert!(matches!(next, Err(Fault::Full { .. })), "{next:?}");
    }
}
