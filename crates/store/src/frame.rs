//! The journal's bytes: a segment's header, and the frame that holds one commit.
//!
//! All numbers are little-endian. A frame is padded to [`ALIGN`] bytes, and its checksum covers the
//! padding, so no flipped bit in it goes unseen.
//!
//! ```text
//! segment  0 magic[8] · 8 version u32 · 12 zero u32 · 16 number u64 · 24 first seq u64
//!          32 chain before it[32] · 64 term u64 · 72 crc32 of bytes 0..72 · 76 zero to 128
//! frame    0 magic[4] · 4 version u16 · 6 zero u16 · 8 payload length u32 · 12 events u32
//!          16 first seq u64 · 24 term u64 · 32 chain[32] · 64 crc32 of all else · 68 texts' length u32
//!          72 payload: for each event its length u32 and its bytes, then the texts · zero to a multiple of 8
//! ```
//!
//! A frame of version 1 has no texts. One of version 2 carries texts that its events name by their hashes, as records of a pack of
//! blobs (`blob/pack.rs`): so they reach the disk in the commit's own sync. The chain is over the events alone, which hold the
//! hashes; the checksum is over both.

use crate::journal::{EVENT_OVERHEAD, Hash, Position};
use crate::sha256::sha256;

pub(crate) const SEGMENT_HEADER: usize = 128;
pub(crate) const FRAME_HEADER: usize = 72;
pub(crate) const ALIGN: usize = 8;

const SEGMENT_MAGIC: &[u8; 8] = b"SLUICEJL";
/// Bytes that no UTF-8 text contains, so an event cannot look like a frame.
const FRAME_MAGIC: &[u8; 4] = b"\xf5SJ\xfa";
const VERSION: u16 = 1;
/// The version of a frame that carries texts.
const TEXTS_VERSION: u16 = 2;
/// The newest format that this program writes and reads.
pub const JOURNAL_FORMAT: u32 = TEXTS_VERSION as u32;
const SEGMENT_CRC: usize = 72;
const FRAME_CRC: usize = 64;
const TEXTS_LEN: usize = 68;

/// What a segment says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub number: u64,
    /// Where the history ended before this segment.
    pub before: Position,
    /// The highest term that had written by then.
    pub term: u64,
}

impl SegmentHeader {
    /// The header of the first segment of a new journal.
    pub const FIRST: Self = Self { number: 1, before: Position::START, term: 0 };

    pub fn encode(&self) -> [u8; SEGMENT_HEADER] {
        let mut bytes = [0; SEGMENT_HEADER];
        bytes[0..8].copy_from_slice(SEGMENT_MAGIC);
        bytes[8..12].copy_from_slice(&u32::from(VERSION).to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&(self.before.seq + 1).to_le_bytes());
        bytes[32..64].copy_from_slice(&self.before.chain);
        bytes[64..72].copy_from_slice(&self.term.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..SEGMENT_CRC]);
        bytes[SEGMENT_CRC..SEGMENT_CRC + 4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The header at the start of `bytes`, or what is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<Self, HeaderFault> {
        let Some(header) = bytes.get(..SEGMENT_HEADER) else {
            let found = format!("{} bytes, shorter than a segment's header", bytes.len());
            return Err(HeaderFault::Damaged(found));
        };
        if &header[0..8] != SEGMENT_MAGIC {
            return Err(HeaderFault::Damaged("not a journal segment".into()));
        }
        let padded = header[SEGMENT_CRC + 4..].iter().all(|byte| *byte == 0);
        if crc32fast::hash(&header[..SEGMENT_CRC]) != u32_at(header, SEGMENT_CRC) || !padded {
            return Err(HeaderFault::Damaged("the segment's header fails its checksum".into()));
        }
        let version = u32_at(header, 8);
        if !(u32::from(VERSION)..=JOURNAL_FORMAT).contains(&version) {
            return Err(HeaderFault::Version(version));
        }
        let no_seq = || HeaderFault::Damaged("a segment cannot start at seq 0".into());
        let seq = u64_at(header, 24).checked_sub(1).ok_or_else(no_seq)?;
        let before = Position { seq, chain: hash_at(header, 32) };
        Ok(Self { number: u64_at(header, 16), before, term: u64_at(header, 64) })
    }
}

/// Why bytes are not a segment's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    Damaged(String),
    /// Sound, and written by a program of another version.
    Version(u32),
}

/// Why bytes are not a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// What an unfinished write can leave behind.
    Unfinished(&'static str),
    /// Written whole, by a program of another version.
    Version(u16),
}

/// A frame whose checksum holds; its place in the chain is not yet checked.
#[derive(Debug)]
pub(crate) struct Frame<'a> {
    pub first_seq: u64,
    pub events: u32,
    pub term: u64,
    /// With padding.
    pub len: usize,
    /// Records of blobs that the events name.
    pub texts: &'a [u8],
    header: &'a [u8],
    /// The events.
    payload: &'a [u8],
}

impl<'a> Frame<'a> {
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Fault> {
        let header = bytes.get(..FRAME_HEADER).ok_or(Fault::Unfinished("a cut header"))?;
        if &header[0..4] != FRAME_MAGIC {
            return Err(Fault::Unfinished("no frame"));
        }
        let payload_len = u32_at(header, 8) as usize;
        let len = (FRAME_HEADER + payload_len).next_multiple_of(ALIGN);
        let whole = bytes.get(..len).ok_or(Fault::Unfinished("a cut frame"))?;
        if frame_crc(whole) != u32_at(header, FRAME_CRC) {
            return Err(Fault::Unfinished("a frame that fails its checksum"));
        }
        let texts_len = match u16::from_le_bytes([header[4], header[5]]) {
            VERSION => 0,
            TEXTS_VERSION => u32_at(header, TEXTS_LEN) as usize,
            other => return Err(Fault::Version(other)),
        };
        let events_len = payload_len.checked_sub(texts_len);
        let events_len = events_len.ok_or(Fault::Unfinished("texts longer than their frame"))?;
        let payload = &whole[FRAME_HEADER..FRAME_HEADER + payload_len];
        let (payload, texts) = payload.split_at(events_len);
        Ok(Self {
            first_seq: u64_at(header, 16),
            events: u32_at(header, 12),
            term: u64_at(header, 24),
            len,
            texts,
            header,
            payload,
        })
    }

    /// The position after this frame, if it continues the history that ends at `before`.
    pub fn follows(&self, before: &Position) -> Result<Position, String> {
        if self.first_seq != before.seq + 1 || self.events == 0 {
            return Err(format!(
                "a commit of {} events from seq {} where seq {} was due",
                self.events,
                self.first_seq,
                before.seq + 1
            ));
        }
        let chain = hash_at(self.header, 32);
        if chain != next_chain(&before.chain, &self.header[..32], self.payload) {
            return Err(format!("the hash chain breaks at seq {}", self.first_seq));
        }
        Ok(Position { seq: before.seq + u64::from(self.events), chain })
    }

    /// The events; an error says that the payload does not divide into as many as it should.
    pub fn each_event(&self) -> impl Iterator<Item = Result<&'a [u8], String>> + use<'a> {
        let mut rest = self.payload;
        let (mut left, seq) = (self.events, self.first_seq);
        std::iter::from_fn(move || {
            if left == 0 {
                let over = !std::mem::take(&mut rest).is_empty();
                return over.then(|| Err(format!("bytes after the events from seq {seq}")));
            }
            left -= 1;
            let split = rest
                .split_at_checked(4)
                .and_then(|(len, after)| after.split_at_checked(u32_at(len, 0) as usize));
            let Some((event, after)) = split else {
                (left, rest) = (0, &[]);
                return Some(Err(format!("the events from seq {seq} do not fill their commit")));
            };
            rest = after;
            Some(Ok(event))
        })
    }
}

/// The length of the frame for these events and texts, or `None` if no frame can be that long.
pub(crate) fn frame_len(events: &[&[u8]], texts: &[u8]) -> Option<usize> {
    let mut payload = texts.len();
    for event in events {
        payload = payload.checked_add(EVENT_OVERHEAD)?.checked_add(event.len())?;
    }
    u32::try_from(payload).ok()?;
    u32::try_from(events.len()).ok()?;
    Some((FRAME_HEADER + payload).next_multiple_of(ALIGN))
}

/// Writes the frame for `events`, and for `texts` that they name, into `out` and returns the position after it. The caller has
/// asked [`frame_len`], so every length fits its field.
pub(crate) fn encode(
    before: &Position,
    term: u64,
    events: &[&[u8]],
    texts: &[u8],
    out: &mut Vec<u8>,
) -> Position {
    out.clear();
    out.resize(FRAME_HEADER, 0);
    for event in events {
        out.extend_from_slice(&(event.len() as u32).to_le_bytes());
        out.extend_from_slice(event);
    }
    let events_end = out.len();
    out.extend_from_slice(texts);
    let payload_len = out.len() - FRAME_HEADER;
    out.resize(out.len().next_multiple_of(ALIGN), 0);
    // A program that knows no texts reads what has none.
    let version = if texts.is_empty() { VERSION } else { TEXTS_VERSION };
    out[0..4].copy_from_slice(FRAME_MAGIC);
    out[4..6].copy_from_slice(&version.to_le_bytes());
    out[8..12].copy_from_slice(&(payload_len as u32).to_le_bytes());
    out[12..16].copy_from_slice(&(events.len() as u32).to_le_bytes());
    out[16..24].copy_from_slice(&(before.seq + 1).to_le_bytes());
    out[24..32].copy_from_slice(&term.to_le_bytes());
    let chain = next_chain(&before.chain, &out[..32], &out[FRAME_HEADER..events_end]);
    out[32..64].copy_from_slice(&chain);
    out[TEXTS_LEN..TEXTS_LEN + 4].copy_from_slice(&(texts.len() as u32).to_le_bytes());
    let crc = frame_crc(out);
    out[FRAME_CRC..FRAME_CRC + 4].copy_from_slice(&crc.to_le_bytes());
    Position { seq: before.seq + events.len() as u64, chain }
}

fn next_chain(before: &Hash, header: &[u8], payload: &[u8]) -> Hash {
    sha256(&[before, header, payload])
}

fn frame_crc(frame: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&frame[..FRAME_CRC]);
    crc.update(&frame[FRAME_CRC + 4..]);
    crc.finalize()
}

/// Bytes that are looked at together for one that is not zero: the preallocated end of a segment is long.
const BLANK_STEP: usize = 512;

/// The position of the last byte that is not zero.
pub(crate) fn last_written(bytes: &[u8]) -> Option<usize> {
    // Without a way out of the loop over a chunk its bytes are taken many at a time.
    let is_blank = |chunk: &[u8]| chunk.iter().fold(0, |all, byte| all | byte) == 0;
    let mut end = bytes.len();
    while end >= BLANK_STEP && is_blank(&bytes[end - BLANK_STEP..end]) {
        end -= BLANK_STEP;
    }
    bytes[..end].iter().rposition(|byte| *byte != 0)
}

// The callers below have checked that the slice is long enough for the fixed layout.

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut value = [0; 4];
    value.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(value)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut value = [0; 8];
    value.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(value)
}

pub(crate) fn hash_at(bytes: &[u8], at: usize) -> Hash {
    let mut value = [0; 32];
    value.copy_from_slice(&bytes[at..at + 32]);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_of_a_frame_and_a_header_is_seen() {
        let start = Position { seq: 6, chain: [3; 32] };
        let mut frame = Vec::new();
        for (texts, version) in [(&b""[..], 1_u8), (&b"a text"[..], 2)] {
            let end = encode(&start, 2, &[b"one", b"", b"three"], texts, &mut frame);
            assert_eq!(Some(frame.len()), frame_len(&[b"one", b"", b"three"], texts));
            assert_eq!(frame[4], version);
            let parsed = Frame::parse(&frame).unwrap();
            assert_eq!(parsed.follows(&start), Ok(end));
            let events: Result<Vec<_>, _> = parsed.each_event().collect();
            assert_eq!(events.unwrap(), [&b"one"[..], b"", b"three"]);
            assert_eq!(parsed.texts, texts);
            for bit in 0..frame.len() * 8 {
                frame[bit / 8] ^= 1 << (bit % 8);
                assert!(Frame::parse(&frame).is_err(), "bit {bit}");
                frame[bit / 8] ^= 1 << (bit % 8);
            }
        }

        let header = SegmentHeader { number: 4, before: start, term: 2 };
        let mut bytes = header.encode();
        assert_eq!(SegmentHeader::parse(&bytes), Ok(header));
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHeader::parse(&bytes).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn last_written_byte_is_found_wherever_it_is() {
        let mut bytes = vec![0; 3 * BLANK_STEP + 7];
        assert_eq!(last_written(&bytes), None);
        for at in 0..bytes.len() {
            bytes[at] = 1;
            assert_eq!(last_written(&bytes), Some(at));
            bytes[at / 2] = 1;
            assert_eq!(last_written(&bytes), Some(at));
            (bytes[at], bytes[at / 2]) = (0, 0);
        }
        assert_eq!(last_written(&[]), None);
    }

    #[test]
    fn a_frame_follows_only_its_own_history() {
        let start = Position { seq: 6, chain: [3; 32] };
        let mut frame = Vec::new();
        encode(&start, 2, &[b"x"], b"a text", &mut frame);
        let frame = Frame::parse(&frame).unwrap();
        for other in [Position { seq: 5, ..start }, Position { chain: [4; 32], ..start }] {
            assert!(frame.follows(&other).is_err(), "{other:?}");
        }
    }
}
