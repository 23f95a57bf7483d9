//! One record of a log file: a header with a checksum over all that follows it, and bytes of output.

use crate::disk::DiskFile;
use model::time::Timestamp;
use std::io;

pub const HEADER_BYTES: usize = 24;

/// A longer record is damage.
const RECORD_BYTES_MAX: u32 = 16 << 20;

/// Bytes that are read of what looks like a record, while one is looked for, and is none. The output of a job may look like records
/// at every fourth byte, and who asks for it says where to begin.
const FALSE_BYTES_MAX: u64 = 64 << 20;

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

    /// Reads the header; the checksum before it is not asked.
    fn parse(head: &[u8]) -> Header {
        let field = |from: usize| -> [u8; 8] { head[from..from + 8].try_into().expect("eight") };
        let len: [u8; 4] = head[4..8].try_into().expect("four bytes");
        Header {
            len: u32::from_le_bytes(len),
            offset: u64::from_le_bytes(field(8)),
            at: Timestamp(i64::from_le_bytes(field(16))),
        }
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

/// What is at a place of a file.
pub enum Next {
    Record(Header, Vec<u8>),
    /// No record that can be read; the next one that can begins at `until`.
    Damage {
        until: u64,
    },
    /// The end, also where a crash has cut the last record short.
    End,
}

/// What is at `place`, where the output has come to `len` if that is known.
pub fn next(file: &dyn DiskFile, place: u64, len: Option<u64>) -> io::Result<Next> {
    if let Some((header, bytes)) = read(file, place)? {
        return Ok(Next::Record(header, bytes));
    }
    Ok(find(file, place, len)?.map_or(Next::End, |until| Next::Damage { until }))
}

/// Where the first record after `place` begins that can be read. What lies between is at least one record: its header, and
/// the bytes by which the found one is further in the output. Nothing where too much looks like one and is none.
fn find(file: &dyn DiskFile, place: u64, len: Option<u64>) -> io::Result<Option<u64>> {
    let end = file.len()?;
    let rest = end.saturating_sub(place).min((HEADER_BYTES + RECORD_BYTES_MAX as usize) as u64);
    let mut window = vec![0; rest as usize];
    let read = file.read_at(place, &mut window)?;
    let mut false_bytes = 0;
    for at in 1..read.saturating_sub(HEADER_BYTES - 1) {
        let (header, found) = (Header::parse(&window[at..at + HEADER_BYTES]), place + at as u64);
        let further = len.is_none_or(|len| {
            header.offset.checked_sub(len).is_some_and(|further| further <= at as u64)
        });
        let fits = further && (1..=RECORD_BYTES_MAX).contains(&header.len);
        if !fits || header.end(found) > end {
            continue;
        }
        if self::read(file, found)?.is_some() {
            return Ok(Some(found));
        }
        false_bytes += header.end(0);
        if false_bytes > FALSE_BYTES_MAX {
            break;
        }
    }
    Ok(None)
}

/// The record that begins at `place`, if there is one and it is whole.
fn read(file: &dyn DiskFile, place: u64) -> io::Result<Option<(Header, Vec<u8>)>> {
    let mut head = [0; HEADER_BYTES];
    if file.read_at(place, &mut head)? < HEADER_BYTES {
        return Ok(None);
    }
    let header = Header::parse(&head);
    if header.len > RECORD_BYTES_MAX {
        return Ok(None);
    }
    let mut bytes = vec![0; header.len as usize];
    let whole = file.read_at(place + HEADER_BYTES as u64, &mut bytes)? == bytes.len();
    let said: [u8; 4] = head[..4].try_into().expect("four bytes");
    let sound = whole && u32::from_le_bytes(said) == checksum(&header.bytes(), &bytes);
    Ok(sound.then_some((header, bytes)))
}

fn checksum(head: &[u8], bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(bytes);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A file that is only read, and counts the bytes that were asked for.
    struct CountedReads {
        content: Vec<u8>,
        asked: AtomicU64,
    }

    impl DiskFile for CountedReads {
        fn len(&self) -> io::Result<u64> {
            Ok(self.content.len() as u64)
        }
        fn preallocate(&self, _: u64) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }
        fn truncate(&self, _: u64) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }
        fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
            self.asked.fetch_add(buffer.len() as u64, Ordering::Relaxed);
            let rest = self.content.get(offset as usize..).unwrap_or_default();
            let len = rest.len().min(buffer.len());
            buffer[..len].copy_from_slice(&rest[..len]);
            Ok(len)
        }
        fn sync_data(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn output_that_looks_like_records_everywhere_is_not_read_again_and_again() {
        // At every fourth byte a length of 16 KiB: four thousand times the file, if all of them were read.
        let content = [0_u8, 0x40, 0, 0].repeat(256 << 10);
        let file = CountedReads { content, asked: AtomicU64::new(0) };
        assert!(matches!(next(&file, 1, None).expect("read"), Next::End));
        let asked = file.asked.load(Ordering::Relaxed);
        assert!(asked < 2 * FALSE_BYTES_MAX, "{asked}");
    }
}
