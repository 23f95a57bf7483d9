//! What a layer may take: entries, bytes, the room in the store, and the space on the file system.

use std::os::fd::BorrowedFd;

use nix::sys::statvfs::fstatvfs;

use super::Limits;
use super::archive::{Entry, Fault};

/// What an entry takes beside its data: its inode and its name.
const ENTRY_BYTES: u64 = 512;
pub const BLOCK_BYTES: u64 = 4096;
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
        let bytes = ENTRY_BYTES + entry.size.next_multiple_of(BLOCK_BYTES);
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
}
