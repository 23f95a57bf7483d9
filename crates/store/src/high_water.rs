//! The high-water mark: a small file beside the journal that remembers which ids may have been given
//! out and how far the history had come, so that a journal that lost its end is found out.
//!
//! ```text
//! 0 magic[8] · 8 version u32 · 12 zero u32 · 16 leased ids u64 · 24 seq u64 · 32 chain[32]
//! 64 crc32 of bytes 0..64
//! ```

use std::io;

use crate::disk::{Disk, replace_file};
use crate::frame::{hash_at, u32_at, u64_at};
use crate::journal::{HighWater, JournalError};

pub const FILE: &str = "high-water";
const MAGIC: &[u8; 8] = b"SLUICEHW";
const VERSION: u32 = 1;
const LEN: usize = 68;

impl HighWater {
    /// The mark, or `None` where none was ever written.
    pub(crate) fn read(disk: &dyn Disk) -> Result<Option<Self>, JournalError> {
        let bytes = match disk.open(FILE).and_then(|file| file.read_all()) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(JournalError::io("read", FILE)(error)),
        };
        let damaged = |found: String| JournalError::damaged(FILE, 0, found);
        if bytes.len() != LEN || &bytes[..8] != MAGIC {
            return Err(damaged(format!("{} bytes that are not a high-water mark", bytes.len())));
        }
        if crc32fast::hash(&bytes[..64]) != u32_at(&bytes, 64) {
            return Err(damaged("the mark fails its checksum".into()));
        }
        let version = u32_at(&bytes, 8);
        if version != VERSION {
            return Err(JournalError::Newer { file: FILE.into(), found: version, known: VERSION });
        }
        Ok(Some(Self {
            leased_ids: u64_at(&bytes, 16),
            seq: u64_at(&bytes, 24),
            chain: hash_at(&bytes, 32),
        }))
    }

    /// The content of the mark's file.
    pub fn encode(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[0..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.leased_ids.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.seq.to_le_bytes());
        bytes[32..64].copy_from_slice(&self.chain);
        let crc = crc32fast::hash(&bytes[..64]);
        bytes[64..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn write(&self, disk: &dyn Disk) -> Result<(), JournalError> {
        let bytes = self.encode();
        replace_file(disk, FILE, &[&bytes]).map_err(|error| {
            if crate::disk::is_full(&error) {
                JournalError::Full { needed: LEN as u64 }
            } else {
                JournalError::io("write", FILE)(error)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faulty_disk::FaultyDisk;

    #[test]
    fn the_mark_is_read_back_and_damage_to_it_is_said() {
        let disk = FaultyDisk::default();
        assert_eq!(HighWater::read(&disk).unwrap(), None);
        let mark = HighWater { leased_ids: 2000, seq: 17, chain: [9; 32] };
        mark.write(&disk).unwrap();
        disk.restart(1);
        assert_eq!(HighWater::read(&disk).unwrap(), Some(mark));
        for byte in 0..LEN {
            let copy = disk.fork();
            copy.tamper(FILE, |bytes| bytes[byte] ^= 1).unwrap();
            let error = HighWater::read(&copy).unwrap_err();
            assert!(matches!(error, JournalError::Damaged { .. }), "byte {byte}");
        }
    }
}
