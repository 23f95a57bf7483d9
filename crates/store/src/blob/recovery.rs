//! Opening the blobs: the index in memory is read back from the packs and the files, and what is
//! unfinished or damaged there is said.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;
use std::sync::Arc;

use super::index::{BadBytes, BlobIndex, IndexedBlob};
use super::pack::{self, RECORD_HEADER, record_len};
use super::pack_name;
use super::{
    ActivePack, BIG, BlobError, BlobId, BlobLocation, BlobOptions, Blobs, FIRST_PACK, PACKS,
    TEMPORARY,
};
use crate::disk::{Disk, DiskFile, Entry};

/// What opening the blobs found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BlobRecovery {
    pub blobs: u64,
    /// The unfinished end of the newest pack, cut off: it was never acknowledged.
    pub torn_tail: Option<BadBytes>,
    /// Bytes that hold no sound record. What was there is missing, if it was ever acknowledged.
    pub damaged: Vec<BadBytes>,
}

impl Blobs {
    pub fn open(
        disk: Arc<dyn Disk>,
        options: BlobOptions,
    ) -> Result<(Self, BlobRecovery), BlobError> {
        Self::open_indexed(disk, options, BlobIndex::default())
    }

    /// As [`Blobs::open`], where some of the packs were read before.
    pub fn open_indexed(
        disk: Arc<dyn Disk>,
        options: BlobOptions,
        index: BlobIndex,
    ) -> Result<(Self, BlobRecovery), BlobError> {
        for dir in [PACKS, BIG] {
            disk.make_dir(dir).map_err(BlobError::io("make", dir))?;
        }
        disk.sync_dir("").map_err(BlobError::io("sync", "the blobs"))?;
        let mut blobs = Self {
            disk,
            options,
            known: HashMap::new(),
            packs: BTreeMap::new(),
            active: None,
            next_pack: FIRST_PACK,
            staged: HashMap::new(),
            staged_bytes: Vec::new(),
            unsynced: Vec::new(),
            is_unbacked: false,
            is_staged_private: false,
            with_journal: Vec::new(),
        };
        let mut recovery = BlobRecovery::default();
        blobs.release_held()?;
        blobs.read_packs(index, &mut recovery)?;
        blobs.read_big(&mut recovery)?;
        recovery.blobs = blobs.known.len() as u64;
        for bad in &recovery.damaged {
            tracing::error!("{}: {} damaged bytes at {}", bad.file, bad.bytes, bad.offset);
        }
        Ok((blobs, recovery))
    }

    fn list(&self, dir: &str) -> Result<Vec<Entry>, BlobError> {
        self.disk.list(dir).map_err(BlobError::io("list", dir))
    }

    fn read_packs(
        &mut self,
        mut index: BlobIndex,
        recovery: &mut BlobRecovery,
    ) -> Result<(), BlobError> {
        index.complete(&*self.disk)?;
        let newest = index.packs.keys().next_back().copied();
        (recovery.damaged, recovery.torn_tail) = index.bad_bytes();
        for (number, pack) in index.packs {
            for (id, IndexedBlob { offset, len }) in pack.blobs {
                self.index(id, BlobLocation::Packed { pack: number, offset, len });
            }
            // Behind the last sound record of an older pack may be a damaged one.
            let tail = if Some(number) == newest { 0 } else { pack.tail };
            self.packs.entry(number).or_default().end = (pack.end + tail) as u64;
            if Some(number) == newest {
                self.next_pack = number.saturating_add(1);
                let name = pack_name(number);
                let file = self.disk.open(&name).map_err(BlobError::io("open", &name))?;
                self.active = Some(reopen(number, file, pack.end, pack.tail)?);
            }
        }
        Ok(())
    }

    fn read_big(&mut self, recovery: &mut BlobRecovery) -> Result<(), BlobError> {
        // Names that a killed program left behind may not be durable yet.
        self.disk.sync_dir(BIG).map_err(BlobError::io("sync", BIG))?;
        for entry in self.list(BIG)? {
            let dir = format!("{BIG}/{}", entry.name);
            if !entry.is_dir {
                if entry.name.ends_with(TEMPORARY) {
                    self.disk.remove(&dir).map_err(BlobError::io("remove", &dir))?;
                }
                continue;
            }
            for entry in self.list(&dir)? {
                self.read_big_header(&format!("{dir}/{}", entry.name), &entry, recovery)?;
            }
            self.disk.sync_dir(&dir).map_err(BlobError::io("sync", &dir))?;
        }
        Ok(())
    }

    /// Large blobs are checked when they are read, not all at every start; here only the header.
    fn read_big_header(
        &mut self,
        path: &str,
        entry: &Entry,
        recovery: &mut BlobRecovery,
    ) -> Result<(), BlobError> {
        let file = self.disk.open(path).map_err(BlobError::io("open", path))?;
        let mut header = [0; RECORD_HEADER];
        let read = file.read_at(0, &mut header).map_err(BlobError::io("read", path))?;
        let described = pack::describe(&header[..read]);
        match (described, entry.name.parse::<BlobId>()) {
            (Some((id, _, len)), Ok(name)) if id == name && record_len(len) as u64 == entry.len => {
                self.index(id, BlobLocation::Big { len: len as u32 });
            }
            _ => {
                let file = path.to_owned();
                recovery.damaged.push(BadBytes { file, offset: 0, bytes: entry.len });
            }
        }
        Ok(())
    }
}

/// Takes up writing the newest pack: its unfinished end is cleared, and what a killed program had
/// written but not synced is synced before anyone relies on it.
fn reopen(
    number: NonZeroU32,
    file: Box<dyn DiskFile>,
    end: usize,
    tail: usize,
) -> Result<ActivePack, BlobError> {
    let name = pack_name(number);
    let end = end as u64;
    file.write_at(end, &vec![0; tail]).map_err(BlobError::io("cut", &name))?;
    file.sync_data().map_err(BlobError::io("sync", &name))?;
    Ok(ActivePack { number, file, end })
}
