//! What the packs hold, as far as they were read. Packs only grow and are removed whole: whoever has read them before reads on, and
//! not all of them anew. So a server that waits for the lead opens the blobs of a long queue at once.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::num::NonZeroU32;

use super::pack::{self, RECORD_HEADER};
use super::{BlobError, BlobId, PACKS, pack_name, pack_number};
use crate::disk::{Disk, DiskFile};

/// Bytes of a file that hold no sound record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadBytes {
    pub file: String,
    pub offset: u64,
    pub bytes: u64,
}

#[derive(Default)]
pub struct BlobIndex {
    pub(super) packs: BTreeMap<NonZeroU32, IndexedPack>,
}

/// Where a blob lies in its pack.
#[derive(Clone, Copy)]
pub(super) struct IndexedBlob {
    pub offset: u32,
    pub len: u32,
}

#[derive(Default)]
pub(super) struct IndexedPack {
    /// The header of its first record, which tells the pack from a later one of the same number.
    first: Vec<u8>,
    /// The last record of each content is the one that counts.
    pub blobs: HashMap<BlobId, IndexedBlob>,
    /// Where the last sound record ends.
    pub end: usize,
    /// How far it was looked through, and whether it was the newest then.
    seen: usize,
    was_newest: bool,
    /// Bad bytes with a sound record after them: offset and length.
    pub gaps: Vec<(usize, usize)>,
    /// How many bytes, not all zero, lie behind the last sound record.
    pub tail: usize,
}

impl BlobIndex {
    /// Where a blob lies, as far as the packs were read. Content that was stored again lies in the later pack.
    pub(super) fn find(&self, id: &BlobId) -> Option<(NonZeroU32, IndexedBlob)> {
        let mut packs = self.packs.iter().rev();
        packs.find_map(|(number, pack)| pack.blobs.get(id).map(|blob| (*number, *blob)))
    }

    /// Reads on in one pack that has grown, `bytes_max` bytes where that is enough for a record; whether there is more to be read.
    pub fn read_on(&mut self, disk: &dyn Disk, bytes_max: usize) -> Result<bool, BlobError> {
        let there = self.list(disk)?;
        let newest = there.keys().last().copied();
        let (mut has_read, mut is_more) = (false, false);
        for (number, len) in there {
            let pack = self.packs.entry(number).or_default();
            let has_grown = usize::try_from(len).unwrap_or(usize::MAX) > pack.seen;
            // The newest may have its whole length from the beginning, and be filled later.
            let may_be_filled = pack.was_newest || Some(number) == newest;
            if has_read && has_grown {
                return Ok(true);
            }
            if has_read || !(has_grown || may_be_filled) {
                continue;
            }
            let name = pack_name(number);
            let file = disk.open(&name).map_err(BlobError::io("open", &name))?;
            let end = pack.end;
            is_more = pack.read_on(&*file, bytes_max).map_err(BlobError::io("read", &name))?;
            pack.was_newest = Some(number) == newest || (pack.was_newest && is_more);
            has_read = has_grown || pack.end > end;
        }
        Ok(is_more)
    }

    /// Reads all that was not read yet, and anew what has become another pack.
    pub(super) fn complete(&mut self, disk: &dyn Disk) -> Result<(), BlobError> {
        for (number, _) in self.list(disk)? {
            let name = pack_name(number);
            let file = disk.open(&name).map_err(BlobError::io("open", &name))?;
            let pack = self.packs.entry(number).or_default();
            let read = |error| BlobError::io("read", &name)(error);
            if !pack.is_still(&*file).map_err(read)? {
                *pack = IndexedPack::default();
            }
            while pack.read_on(&*file, usize::MAX).map_err(read)? {}
        }
        Ok(())
    }

    /// Bytes that hold no sound record, and the unfinished end of the newest pack: behind the last sound record of an older one may be a
    /// damaged one.
    pub(super) fn bad_bytes(&self) -> (Vec<BadBytes>, Option<BadBytes>) {
        let newest = self.packs.keys().next_back();
        let (mut damaged, mut torn_tail) = (Vec::new(), None);
        for (number, pack) in &self.packs {
            let bad = |(offset, bytes): (usize, usize)| BadBytes {
                file: pack_name(*number),
                offset: offset as u64,
                bytes: bytes as u64,
            };
            damaged.extend(pack.gaps.iter().copied().map(bad));
            let tail = Some((pack.end, pack.tail)).filter(|(_, bytes)| *bytes > 0).map(bad);
            if Some(number) == newest {
                torn_tail = tail;
            } else {
                damaged.extend(tail);
            }
        }
        (damaged, torn_tail)
    }

    /// The packs that are there, in order, with their lengths. Others are forgotten.
    fn list(&mut self, disk: &dyn Disk) -> Result<BTreeMap<NonZeroU32, u64>, BlobError> {
        let entries = match disk.list(PACKS) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(BlobError::io("list", PACKS)(error)),
        };
        let numbered = entries.iter().filter_map(|e| Some((pack_number(&e.name)?, e.len)));
        let there: BTreeMap<NonZeroU32, u64> = numbered.collect();
        self.packs.retain(|number, _| there.contains_key(number));
        Ok(there)
    }
}

impl IndexedPack {
    /// Whether a file begins as the pack did that was read.
    fn is_still(&self, file: &dyn DiskFile) -> io::Result<bool> {
        let mut first = vec![0; self.first.len()];
        let read = file.read_at(0, &mut first)?;
        Ok(read == first.len() && first == self.first && file.len()? >= self.end as u64)
    }

    /// Reads on behind the last sound record; whether there is more.
    fn read_on(&mut self, file: &dyn DiskFile, bytes_max: usize) -> io::Result<bool> {
        let len = usize::try_from(file.len()?).map_err(io::Error::other)?;
        // A pack has its whole length from the beginning: what nobody has written yet is not read.
        let mut written = usize::try_from(file.written_end()?).map_err(io::Error::other)?;
        let mut wanted = written.saturating_sub(self.end).min(bytes_max);
        loop {
            let mut bytes = vec![0; wanted];
            let read = file.read_at(self.end as u64, &mut bytes)?;
            bytes.truncate(read);
            let base = self.end;
            if base == 0 {
                self.first = bytes[..read.min(RECORD_HEADER)].to_vec();
            }
            let blobs = &mut self.blobs;
            let scan = pack::scan(&bytes, |offset, record| {
                let (offset, len) = ((base + offset) as u32, record.content.len() as u32);
                blobs.insert(record.id, IndexedBlob { offset, len });
            });
            let shifted = scan.gaps.iter().map(|(offset, bytes)| (base + offset, *bytes));
            self.gaps.extend(shifted);
            self.end = base + scan.end;
            self.tail = scan.tail;
            let is_all = base + read >= written || read < wanted;
            if is_all && scan.tail > 0 && written < len {
                // The last record may end in zeros that nobody had to write.
                (written, wanted) = (len, len.saturating_sub(self.end));
                continue;
            }
            if is_all || scan.end > 0 {
                self.seen = if is_all { len } else { self.end };
                return Ok(!is_all);
            }
            // Bad bytes, or a record that is longer: the rest is looked through at once.
            wanted = written - base;
        }
    }
}
