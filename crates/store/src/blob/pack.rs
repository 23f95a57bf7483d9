//! The record that holds one blob, in a pack or in a file of its own, and the scan of a pack.
//!
//! ```text
//! 0 magic[4] · 4 version u16 · 6 zero u16 · 8 length u32 · 12 crc32 of all else · 16 stored at u64
//! 24 SHA-256 of the content[32] · 56 content · zero to a multiple of 8
//! ```
//!
//! A record proves itself: whatever else is wrong with a pack, a record that checks out is the
//! content its hash names. So a scan goes on behind bad bytes and reports them.

use super::id::BlobId;
use crate::frame::{hash_at, u32_at, u64_at};

pub(crate) const RECORD_HEADER: usize = 56;
pub(crate) const ALIGN: usize = 8;
/// Bytes that no UTF-8 text contains, so that a script cannot look like a record.
const MAGIC: &[u8; 4] = b"\xf5SP\xfa";
const VERSION: u16 = 1;
const CRC: usize = 12;

/// One blob's record; the content has been checked against its checksum.
pub(crate) struct BlobRecord<'a> {
    pub id: BlobId,
    pub stored_s: u64,
    pub content: &'a [u8],
    /// With header and padding.
    pub len: usize,
}

pub(crate) fn record_len(content_len: usize) -> usize {
    (RECORD_HEADER + content_len).next_multiple_of(ALIGN)
}

/// Adds a record to `out`. The content's length fits the field: the caller bounds it.
pub(crate) fn encode(id: &BlobId, stored_s: u64, content: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&[0; 2]);
    out.extend_from_slice(&(content.len() as u32).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&stored_s.to_le_bytes());
    out.extend_from_slice(&id.0);
    out.extend_from_slice(content);
    out.resize(start + record_len(content.len()), 0);
    let crc = checksum(&out[start..]);
    out[start + CRC..start + CRC + 4].copy_from_slice(&crc.to_le_bytes());
}

impl<'a> BlobRecord<'a> {
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let header = bytes.get(..RECORD_HEADER)?;
        let content_len = u32_at(header, 8) as usize;
        if &header[0..4] != MAGIC || header[4..6] != VERSION.to_le_bytes() {
            return None;
        }
        let len = record_len(content_len);
        let whole = bytes.get(..len)?;
        (checksum(whole) == u32_at(header, CRC)).then(|| Self {
            id: BlobId(hash_at(header, 24)),
            stored_s: u64_at(header, 16),
            content: &whole[RECORD_HEADER..RECORD_HEADER + content_len],
            len,
        })
    }
}

/// What a record's header says, unchecked: the name, when it was stored, and the content's length.
pub(crate) fn describe(header: &[u8]) -> Option<(BlobId, u64, usize)> {
    let header = header.get(..RECORD_HEADER)?;
    let known = &header[0..4] == MAGIC && header[4..6] == VERSION.to_le_bytes();
    known.then(|| (BlobId(hash_at(header, 24)), u64_at(header, 16), u32_at(header, 8) as usize))
}

fn checksum(record: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&record[..CRC]);
    crc.update(&record[CRC + 4..]);
    crc.finalize()
}

/// What a scan of one pack found.
#[derive(Default)]
pub(crate) struct PackScan {
    /// Where the last sound record ends.
    pub end: usize,
    /// Bad bytes with a sound record after them: offset and length.
    pub gaps: Vec<(usize, usize)>,
    /// How many bytes, not all zero, lie behind the last sound record.
    pub tail: usize,
}

pub(crate) fn scan(bytes: &[u8], mut found: impl FnMut(usize, BlobRecord<'_>)) -> PackScan {
    let mut scan = PackScan::default();
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let mut offset = 0;
    while offset < used {
        let Some(record) = BlobRecord::parse(&bytes[offset..]) else {
            offset += ALIGN;
            continue;
        };
        if offset > scan.end {
            scan.gaps.push((scan.end, offset - scan.end));
        }
        offset += record.len;
        scan.end = offset;
        found(offset - record.len, record);
    }
    scan.tail = used.saturating_sub(scan.end);
    scan
}
