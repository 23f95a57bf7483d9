//! One record of a log file: a header with a checksum over all that follows it, and bytes of output.

use crate::disk::DiskFile;
use model::time::Timestamp;
use std::io;

pub const HEADER_BYTES: usize = 24;

/// A longer record is damage.
const RECORD_BYTES_MAX: u32 = 16 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub at: Timestamp,
    /// Where the bytes begin in the output.
    pub offset: u64,
    pub len: u32,
}

impl Header {
    /// The place after a record that begins at `place`.
    pub fn end(&self, place: u64) -> u64 {
        place + HEADER_BYTES as u64 + u64::from(self.len)
    }

    fn bytes(&self) -> [u8; HEADER_BYTES - 4] {
        let mut bytes = [0; HEADER_BYTES - 4];
        bytes[..4].copy_from_slice(&self.len.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.offset.to_le_bytes());
        bytes[12..].copy_from_slice(&self.at.millis().to_le_bytes());
        bytes
    }
}

pub fn encode(header: &Header, bytes: &[u8]) -> Vec<u8> {
    let head = header.bytes();
    let mut record = Vec::with_capacity(HEADER_BYTES + bytes.len());
    record.extend(checksum(&head, bytes).to_le_bytes());
    record.extend(head);
    record.extend(bytes);
    record
}

/// The record that begins at `place`; `None` at the end, and where a crash has cut one short.
pub fn read(file: &dyn DiskFile, place: u64) -> io::Result<Option<(Header, Vec<u8>)>> {
    let mut head = [0; HEADER_BYTES];
    if file.read_at(place, &mut head)? < HEADER_BYTES {
        return Ok(None);
    }
    let field = |from: usize| -> [u8; 8] { head[from..from + 8].try_into().expect("eight bytes") };
    let word = |from: usize| -> [u8; 4] { head[from..from + 4].try_into().expect("four bytes") };
    let header = Header {
        len: u32::from_le_bytes(word(4)),
        offset: u64::from_le_bytes(field(8)),
        at: Timestamp(i64::from_le_bytes(field(16))),
    };
    if header.len > RECORD_BYTES_MAX {
        return Ok(None);
    }
    let mut bytes = vec![0; header.len as usize];
    let whole = file.read_at(place + HEADER_BYTES as u64, &mut bytes)? == bytes.len();
    let sound = whole && u32::from_le_bytes(word(0)) == checksum(&header.bytes(), &bytes);
    Ok(sound.then_some((header, bytes)))
}

fn checksum(head: &[u8], bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(bytes);
    hasher.finalize()
}
